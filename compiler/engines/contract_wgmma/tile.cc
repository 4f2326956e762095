// See the header. The model counts clocks of one SM: tensor cores, the way from L2, shared memory;
// the slowest of them is a step's time. Its numbers are from measurements on an H200
// (docs/log).
#include "compiler/engines/contract_wgmma/tile.h"

#include <algorithm>
#include <cmath>

#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/contract_members.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

constexpr int64_t kAlignment = 1024;  // of a box in shared memory
constexpr int kMostStages = 8;
constexpr int kMostAccumulators = 128;  // of a thread; with two terms as many sums
constexpr int kMostFolded = 96;         // beside as many totals; half of them where left has some
constexpr int kMostInTurns = 192;       // of groups whose stores hide under the other's products
constexpr int kPreparedColumns = 32;
constexpr int kTermRegisters = 32, kMostTermRegisters = 176;  // of a block of 64 rows; of a thread
constexpr int64_t kBarrierBytes = 16;  // of a stage, or of a slot of full operands
constexpr int kShortSum = 3;           // steps of tiles that are made faster than a box comes
constexpr int64_t kMostSliceElements = int64_t{1} << 30;

constexpr double kClockShare = 16.0 / 17;  // of the machine's: wgmma leaves 1.6 of 1.7 GHz
constexpr double kL2Share = 0.85;          // of what all multiprocessors together are given
constexpr double kClusterClocks = 600;     // until the blocks of a cluster have met
constexpr double kClusterBytes = 32;       // per clock, from other blocks' shared memory
constexpr double kStoreClocks = 0.11, kDirectClocks = 0.03;  // of an element of the result
constexpr double kRightLanes = 13;       // lanes along right that store as fast as along left
constexpr double kFullClocks = 0.015;    // more, for each full operand
constexpr double kBoxClocks = 1200;      // until a box comes that could not be asked for ahead
constexpr double kReduceShare = 0.25;    // of a store, for each reduction of the result
constexpr double kTileClocks = 900;      // to fill the pipeline and to drain it
constexpr double kSliceShare = 0.4261;   // of what the L2 cache gives: 4.5 of an H200's 10.6 TB/s
constexpr double kPrologueClocks = 800;  // of a kernel: barriers, maps of operands
constexpr double kPartBytes = 40;       // per clock, of parts that a stream's workers leave and add
constexpr double kPartClocks = 800;     // until a part has come
constexpr double kWideInTurns = 1.25;   // more than kMostAccumulators; timed with gelu alone
constexpr double kUnevenCluster = 1.2;  // times as long, where phases have unlike numbers of taps
constexpr double kHidden = 0.5;         // of a tile without taps, under products, if it is filled
constexpr double kStreamStep = 1.1;  // workers read other places of k: the L2 is asked more often
constexpr int64_t kMostStreamSteps = int64_t{1} << 30;

int64_t OperandBytes(const Sm90Plan& plan, const Sm90Operand& operand, int rows) {
  if (!operand.is_outer) return int64_t{rows} * plan.row_bytes;
  return CeilDiv(rows, plan.panel()) * plan.depth() * 128;
}

// Accumulators that each thread holds.
int AccumulatorsOf(const Sm90Tile& tile) {
  return tile.left / 64 / tile.groups_left() * tile.columns() / 2;
}

int MostBesideTotals(const Sm90Plan& plan) {
  return plan.left_in_registers() ? kMostAccumulators / 2 : kMostFolded;
}

// Whole sums in turns that are stored from registers leave room for what else an epilogue holds.
// Seen in ptxas' log: blocks without a cluster spill 4 bytes of 160 and of 192 where gelu is made.
int MostAccumulators(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  if (FoldsOf(plan, tile, target) > 0) return MostBesideTotals(plan);
  const bool stores_alone = tile.direct && tile.slot() == 0 && tile.reductions == 0;
  return tile.ping_pong && tile.cluster > 1 && stores_alone && tile.split_k == 1 &&
                 !plan.left_in_registers()
             ? kMostInTurns
             : kMostAccumulators / plan.terms;
}

// Boxes of a group's part of a tile.
int BoxesOf(const Sm90Tile& tile) {
  return tile.left / 64 / tile.groups_left() * tile.columns() / BoxColumns(tile);
}

// The count of steps that filling keeps up with.
int64_t StepBytes(const Sm90Tile& tile) { return tile.fill ? 8 : 0; }

int64_t BarrierBytes(const Sm90Plan& plan) { return plan.prepares_right() ? 24 : kBarrierBytes; }

// Staging memory of all groups, with the barriers of their slots.
int64_t StagingBytes(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  const int64_t buffers = BuffersOf(plan, tile, target);
  int64_t bytes =
      buffers > 0 ? buffers * contract::kBoxBytes : contract::kChunk * contract::kPitch * 4;
  if (tile.slot() > 0) bytes += buffers / tile.slot() * kBarrierBytes;
  return kSm90Groups * bytes;
}

// True if some worker has a part of a tile, and the skeleton has the rest of the form.
bool IsLegalStream(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  if (tile.ping_pong || tile.split_cluster > 1 || tile.reductions > 0 || tile.slot() > 0)
    return false;
  // ptxas would serialise the products (C7515).
  if (plan.left_in_registers()) return false;
  // Registers do not suffice for 128 accumulators and those of a part.
  if (AccumulatorsOf(tile) > 96) return false;
  const int64_t tiles = TilesOf(plan, tile), workers = StreamWorkers(plan, tile, target);
  const int64_t steps = tiles * plan.k_steps;
  return workers > 0 && tiles % workers != 0 && steps >= workers && steps <= kMostStreamSteps;
}

// Clocks of a tile, on average over the phases: `main` for its products, `store` for its result.
double ClocksOfTile(const Sm90Plan& plan, const Sm90Tile& tile, double main, double store) {
  const double empty = tile.ping_pong ? (store + kTileClocks) / 2 : store + 0.4 * kTileClocks;
  const double clocks =
      tile.ping_pong ? std::max(main + 0.2 * kTileClocks, main / 2 + empty) : main + empty;
  if (!tile.fill) return clocks;
  const auto phases = static_cast<double>(NumElements(plan.phases));
  return clocks - kHidden * empty * (1 - static_cast<double>(plan.tap_phases) / phases);
}

// All workers take as long: their steps, the tiles that they finish, and the parts on the way.
double StreamClocks(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target, double step,
                    double store) {
  const int64_t tiles = TilesOf(plan, tile), workers = StreamWorkers(plan, tile, target);
  const double steps = static_cast<double>(CeilDiv(tiles * plan.k_steps, workers));
  const auto finished = static_cast<double>(CeilDiv(tiles, workers));
  const auto added = static_cast<double>(CeilDiv(workers, tiles));
  const double part = tile.left * tile.right * 4.0 / kPartBytes;
  return kStreamStep * steps * step + finished * (store + 0.4 * kTileClocks) + 2 * kTileClocks +
         part + added * (part + kPartClocks) + (tile.cluster > 1 ? kClusterClocks : 0);
}

}  // namespace

int64_t StageBytes(const Sm90Plan& plan, const Sm90Tile& tile) {
  return OperandBytes(plan, plan.left, tile.left) +
         plan.terms * OperandBytes(plan, plan.right, tile.right);
}

int BoxColumns(const Sm90Tile& tile) {
  if (tile.columns() % 64 == 0 && tile.result_bytes == 2) return 64;
  return tile.columns() % 32 == 0 ? 32 : 16;
}

// Full operands are asked for while their tile is multiplied, where its sum is short also those of
// the next: as many slots as leave the stages that keep the tensor cores going.
int BuffersOf(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  if (!tile.direct) return 0;
  if (tile.slot() == 0) return 2;
  const int64_t stages = plan.k_steps == 1 ? 2 : 3;
  const int64_t room = target.shared_bytes_per_block - kAlignment -
                       stages * (StageBytes(plan, tile) + BarrierBytes(plan));
  const int64_t slots = room / (kSm90Groups * (tile.slot() * contract::kBoxBytes + kBarrierBytes));
  const int64_t most = BoxesOf(tile) * (plan.k_steps <= kShortSum ? 2 : 1);
  return static_cast<int>(std::clamp<int64_t>(slots, 2, std::max<int64_t>(most, 2))) * tile.slot();
}

int StagesOf(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  const int64_t room = target.shared_bytes_per_block - StagingBytes(plan, tile, target) -
                       kAlignment - StepBytes(tile);
  return static_cast<int>(
      std::min<int64_t>(room / (StageBytes(plan, tile) + BarrierBytes(plan)), kMostStages));
}

int64_t SharedBytes(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  const int64_t stages = StagesOf(plan, tile, target);
  return AlignUp(stages * StageBytes(plan, tile), kAlignment) + StagingBytes(plan, tile, target) +
         BarrierBytes(plan) * stages + StepBytes(tile);
}

int64_t TilesOf(const Sm90Plan& plan, const Sm90Tile& tile) {
  return CeilDiv(plan.left_size, int64_t{tile.left} * tile.cluster) *
         CeilDiv(plan.right_size, tile.right) * plan.batches;
}

int64_t StreamWorkers(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  const int64_t slots = std::max(1, target.multiprocessors / tile.cluster);
  return std::min(slots, TilesOf(plan, tile) * tile.split_k);
}

int FoldsOf(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  const int64_t most = MostProducts(plan.type);
  int64_t steps = plan.k_steps;  // of a part
  if (tile.splits()) steps = CeilDiv(steps, int64_t{tile.split_k});
  if (tile.stream) {
    const int64_t workers = std::max<int64_t>(StreamWorkers(plan, tile, target), 1);
    steps = std::min(steps, CeilDiv(steps * TilesOf(plan, tile), workers));
  }
  const int64_t products = steps * plan.depth();
  if (plan.type == DType::kI8 || plan.terms == 2) return 0;
  const bool has_room = AccumulatorsOf(tile) <= MostBesideTotals(plan);
  // Sums over images grow with the batch: with totals where there is room, whatever the batch, so
  // that all batch sizes share a kernel.
  const bool may_be_long = plan.sums_images && has_room;
  if (products <= most && !may_be_long) return 0;
  if (!has_room && products <= MostProductsAlone(plan.type, plan.result)) return 0;
  return static_cast<int>(most / plan.depth());
}

Sm90Tile WithRoomForTotals(const Sm90Plan& plan, Sm90Tile tile, const Target& target) {
  while (FoldsOf(plan, tile, target) > 0 && tile.right % 16 == 0 &&
         AccumulatorsOf(tile) > MostAccumulators(plan, tile, target))
    tile.right /= 2;
  return tile;
}

bool IsLegal(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  const int columns = tile.columns(), blocks = tile.left / 64 / tile.groups_left();
  if (columns % 8 != 0 || columns > 256) return false;
  if (blocks < 1 || AccumulatorsOf(tile) > MostAccumulators(plan, tile, target)) return false;
  if (plan.terms == 2) {
    if (tile.right % kPreparedColumns != 0) return false;
    // Two sums, and both terms of left's pieces. Seen in ptxas' log: 192 spill.
    if (blocks * (columns + kTermRegisters) > kMostTermRegisters) return false;
  }
  // A reduction needs whole sums, and the staged form keeps it for one block of 64 rows.
  if (tile.reductions > 0 && (tile.split_k > 1 || (!tile.direct && blocks > 1))) return false;
  // Phases take the place of splits.
  if (tile.split_k > 1 && !plan.phases.empty()) return false;
  if (tile.stream && (!plan.phases.empty() || !IsLegalStream(plan, tile, target))) return false;
  // The warps that fill have no operands to prepare; what is reduced takes all tiles in their
  // order.
  if (tile.fill && (!plan.has_empty_phases() || plan.prepares_right() || tile.reductions > 0))
    return false;
  if (tile.split_k % tile.split_cluster != 0 || tile.split_k > std::max<int64_t>(plan.k_steps, 1))
    return false;
  // Slices are addressed by 32-bit indices where the tensors are.
  const int64_t slice = plan.batches * plan.right_size * plan.left_size;
  if (tile.slices() > 1 && slice > kMostSliceElements / tile.slices()) return false;
  if (tile.split_cluster > 1) {
    const int64_t sums = int64_t{tile.right} * (tile.left + 4) * 4;
    const bool fits = sums <= StagesOf(plan, tile, target) * StageBytes(plan, tile);
    if (!fits || tile.cluster > 1 || tile.ping_pong || tile.right % tile.split_cluster != 0)
      return false;
  }
  if (plan.right.is_outer) {
    if (!plan.turns_right() && tile.right % (plan.panel() * tile.groups_right()) != 0) return false;
    if (tile.right % (plan.panel() * tile.cluster) != 0) return false;
  }
  if (tile.right / tile.cluster % 8 != 0) return false;
  // Seen on an H200: a load of pixels whose box is no whole number of kilobytes writes over what
  // follows it, up to the next one.
  const int pixel_bytes = tile.right / tile.cluster * plan.row_bytes;
  if (plan.right.is_pixels && pixel_bytes % kAlignment != 0) return false;
  if (!plan.right.is_outer && tile.right / tile.cluster > 256) return false;
  if (plan.left.is_pixels && tile.cluster > 1 && plan.left_size <= tile.left) return false;
  return StagesOf(plan, tile, target) >= 2;
}

namespace {

// A step of k: the slowest of tensor cores, the way from L2 and shared memory.
double StepClocks(const Sm90Plan& plan, const Sm90Tile& tile, const Machine& machine) {
  const double macs = machine.wgmma.Of(SizeOf(plan.type));
  const double row = plan.row_bytes;
  // An SM reads the operands of wgmma: each group its rows of left, and its columns of right for
  // every 64 rows. Products of two terms read right three times.
  const int columns = tile.columns(), products = plan.terms == 2 ? 3 : 1;
  const double wgmmas = static_cast<double>(tile.left / 64) * tile.groups_right();
  const double reads = wgmmas * (64 + products * columns) * row;
  const double writes = (tile.left + tile.right) * row;
  const double prepared = plan.prepares_right() ? (1 + plan.terms) * row * tile.right : 0;
  const double tensor = 1.0 * products * tile.left * tile.right * plan.depth() / macs;
  const double l2 = (tile.left + static_cast<double>(tile.right) / tile.cluster) * row /
                    (kL2Share * machine.l2_bytes);
  const double shared = (reads + writes + prepared) / machine.shared_bytes;
  return std::max({tensor, l2, shared});
}

// All products at wgmma's rate, whatever the tile.
double TensorSeconds(const Sm90Plan& plan, const Machine& machine) {
  const double products = (plan.terms == 2 ? 3.0 : 1.0) * static_cast<double>(plan.left_size) *
                          static_cast<double>(plan.right_size) *
                          static_cast<double>(plan.batches * plan.all_steps * plan.depth());
  return machine.Seconds(products / machine.wgmma.Of(SizeOf(plan.type))) / machine.multiprocessors;
}

// The result of a tile.
double StoreClocks(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  const double narrow = tile.right_lanes > 0 ? kRightLanes / tile.right_lanes : 1;
  const double element =
      tile.direct ? kDirectClocks * tile.results * tile.result_bytes / 2 + kFullClocks * tile.full
                  : kStoreClocks * narrow;
  const double store = element * tile.left * tile.right * (tile.ping_pong ? 1.2 : 1.0) *
                       (1 + kReduceShare * tile.reductions);
  if (tile.full == 0) return store;
  const int slots = BuffersOf(plan, tile, target) / tile.slot();
  return store + kBoxClocks * static_cast<double>(CeilDiv(BoxesOf(tile), slots) - 1);
}

}  // namespace

double Sm90Seconds(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target,
                   double floor_bytes) {
  const Machine machine = MachineOf(target);
  const double clock = kClockShare * machine.clock;
  const double launch = machine.StartSeconds() + kPrologueClocks / clock;
  const double step = StepClocks(plan, tile, machine), store = StoreClocks(plan, tile, target);
  const double floor = floor_bytes / ComparedMemory(machine);
  const double own_memory = OwnMemorySeconds(machine, floor_bytes, TensorSeconds(plan, machine));

  // Clusters of more than two blocks leave some SMs of a GPC without work.
  const int slots = tile.split_cluster > 1
                        ? std::max(1, target.multiprocessors * 31 / 32 / tile.split_cluster)
                        : std::max(1, target.multiprocessors / tile.cluster);
  const int64_t phases = NumElements(plan.phases);  // 1 where there are none
  const int64_t tiles = TilesOf(plan, tile) * tile.slices() * phases;
  if (tile.stream) {
    const double seconds = StreamClocks(plan, tile, target, step, store) / clock;
    return std::max(seconds, floor) + own_memory + launch;
  }
  const double steps = static_cast<double>(plan.all_steps) /
                       (static_cast<double>(phases) * tile.split_k);  // of a tile, on average
  const double waves = static_cast<double>(CeilDiv(tiles, slots));
  const double main = steps * step;
  double clocks =
      waves * ClocksOfTile(plan, tile, main, store) + kTileClocks + (tile.ping_pong ? store : 0);
  if (AccumulatorsOf(tile) > kMostAccumulators) clocks *= kWideInTurns;
  if (plan.has_uneven_phases() && tile.cluster > 1) clocks *= kUnevenCluster;
  if (tile.cluster > 1) clocks += kClusterClocks;
  if (tile.split_cluster > 1) clocks += 2000 + tile.left * tile.right * 4.0 / kClusterBytes;
  const double main_kernel = clocks / clock + (tile.reductions > 0 ? launch : 0);
  double seconds = std::max(main_kernel, floor) + own_memory + launch;
  if (tile.slices() > 1) {
    const double slices = static_cast<double>(plan.left_size) *
                          static_cast<double>(plan.right_size) * static_cast<double>(plan.batches) *
                          tile.slices() * 4;
    seconds += 2 * slices / (kSliceShare * machine.l2_share() * machine.multiprocessors) + launch;
  }
  return seconds;
}

}  // namespace kiln::compiler
