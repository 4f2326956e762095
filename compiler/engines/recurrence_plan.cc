#include "compiler/engines/recurrence_plan.h"

#include <algorithm>
#include <cmath>

#include "compiler/engines/contract_mma.h"

namespace kiln::compiler {

using graph::RnnCell;

namespace {

constexpr int kRegisters = 255;  // of a thread
constexpr int kColumnTile = 8, kRowTile = 16;
constexpr int kMostResident = 32;  // chunks, whose products are unrolled

// Registers of a thread that its elements keep through a product: places, states, values.
int ElementRegisters(const RecurrencePlan& p) {
  const bool is_lstm = p.shape.attrs.cell == RnnCell::kLstm;
  const auto kept = static_cast<int>(p.shape.blocks.kept);
  const int values =
      p.shape.is_grad ? 1 + kept + (is_lstm ? 2 : 1) : 2 * static_cast<int>(p.shape.blocks.gates);
  const int elements = static_cast<int>(CeilDiv(int64_t{p.units} * p.columns, p.threads()));
  return elements * (3 + (is_lstm ? 2 : 1) + values);
}

// A step waits for the exchange, and then multiplies, adds up and makes cells one after the other.
// Seen on an H100 (docs/perf-log.md): a counter that blocks arrive at and thread 0 polls takes 0.86
// us for 16 blocks and 0.98 for 128, reading what the others have written 0.3 us and its bytes.
// With numbers a step is one way there and back, until many blocks ask for few bytes again and
// again. Few loads on their way take longer, by about the time of some dozens of instructions each
// time that all of them are waited for. A matrix that is streamed comes with the states, and from
// memory what the L2 cache does not keep.
double StepSeconds(const RecurrencePlan& p, const Target& target) {
  constexpr double kClock = 1.7e9, kArrivalSeconds = 1.2e-6, kNumberedSeconds = 0.9e-6,
                   kSecondsOfBlocks = 7e-11, kSecondsOfPart = 1e-9, kReadBytesPerSecond = 0.8e11,
                   kSharedBytesPerCycle = 128, kCellCycles = 300, kCyclesOfElement = 60,
                   kWaitCycles = 100, kFmaInstructionsPerCycle = 2.5, kOfCache = 0.7,
                   kOfMemory = 0.7;
  const int tiles = p.columns / kColumnTile, passes = tiles / p.pass;
  const double sums = static_cast<double>(p.rows()) * p.columns,
               products = sums * static_cast<double>(p.pitch()),
               columns = p.numbered
                             ? static_cast<double>(std::min<int64_t>(p.columns, p.shape.batch))
                             : p.columns,
               states = (p.numbered ? 2 : 1) * p.row_warps * columns *
                        static_cast<double>(p.pitch() * p.element_bytes());
  const double streamed = static_cast<double>(p.streamed() * p.chunk_bytes());
  const double matrix = static_cast<double>(p.in_shared * p.chunk_bytes()) * passes + 2 * streamed;
  const double resident = static_cast<double>(passes) * (p.held + p.in_shared);
  const int64_t elements = CeilDiv(int64_t{p.units} * p.columns, p.threads());
  // A read of shared memory is 16 bytes of states for all lanes, and four products of each of their
  // rows.
  const double multiplying =
      p.fma ? products / 32 / 4 * std::max(1.0, 4 / kFmaInstructionsPerCycle)
            : products / (MmaMultiplyAddsPerCycle(target) * (p.rounds ? 0.5 : 1.0));
  const double cycles = multiplying +
                        (8.0 * p.depth_warps() * sums + matrix) / kSharedBytesPerCycle +
                        kWaitCycles * resident / p.ahead + kCellCycles +
                        kCyclesOfElement * static_cast<double>(elements);
  const auto all = static_cast<double>(p.streamed_bytes());
  const bool is_cached = all < kOfCache * static_cast<double>(target.l2_bytes);
  const double reading = std::max((states + streamed) / kReadBytesPerSecond,
                                  is_cached ? 0 : all / (kOfMemory * BytesPerSecond(target)));
  const auto blocks = static_cast<double>(p.blocks());
  const double waiting = p.numbered
                             ? kNumberedSeconds + kSecondsOfBlocks * blocks * blocks
                             : kArrivalSeconds + kSecondsOfPart * static_cast<double>(p.parts);
  return waiting + reading + cycles / kClock;
}

// States with numbers are all asked for at once, so that few have room, and all of the matrix is in
// registers. Two units are stored together, and lanes read whole pieces of the depth.
bool PlaceNumbered(RecurrencePlan& p, int64_t shared_limit) {
  constexpr int kAddresses = 48, kMostPieces = 8;
  const int tiles = p.columns / kColumnTile, vector = 16 / p.element_bytes();
  if (p.fma || p.pass != 1 || tiles * p.chunks > kMostPieces || p.units % 2 != 0 ||
      p.shape.hidden % 2 != 0 || p.depth % vector != 0)
    return false;
  const int taken = kAddresses + ElementRegisters(p) + p.row_tiles * 4 + tiles * p.chunks * 8 +
                    p.chunks * p.row_tiles * 8;
  p.held = p.chunks;
  p.in_shared = 0;
  p.stages = 1;
  return taken <= kRegisters && p.shared_bytes() <= shared_limit;
}

// Where a block's matrix stays, for a number of column tiles that are multiplied together and of
// loads that are ahead: in registers what they have room for, then in shared memory. The rest is
// streamed, once a step, so that all columns are multiplied together. False if that cannot be.
bool Place(RecurrencePlan& p, int64_t shared_limit) {
  constexpr int kAddresses = 44, kMostSums = 64, kMostStreamedSums = 128, kMostStages = 8;
  // Values of elements may wait in the L1 cache while a product that is long anyway is made.
  constexpr int kMostSpilled = 40;
  constexpr int64_t kRingBytes = 96 * 1024;
  const int tiles = p.columns / kColumnTile, sums = p.row_tiles * p.pass * 4;
  const int on_their_way = p.fma ? 16 + 2 * p.row_tiles : p.ahead * p.pass * 4;
  const int taken = kAddresses + ElementRegisters(p) + sums + on_their_way;
  p.held =
      std::clamp((kRegisters - taken) / (8 * p.row_tiles), 0, std::min(p.chunks, kMostResident));
  p.stages = 1;
  p.in_shared = p.chunks - p.held;
  if (p.chunks <= kMostResident && p.shared_bytes() <= shared_limit) return sums <= kMostSums;
  if (p.fma || p.pass < tiles || sums > kMostStreamedSums || taken > kRegisters + kMostSpilled)
    return false;
  p.in_shared = 0;
  p.stages =
      static_cast<int>(std::clamp<int64_t>(kRingBytes / p.ring_chunk_bytes(), 2, kMostStages));
  const int64_t room = shared_limit - p.shared_bytes();
  if (room < 0) return false;
  p.in_shared = static_cast<int>(
      std::min<int64_t>({room / p.chunk_bytes(), p.chunks - p.held - 1, kMostResident - p.held}));
  p.in_shared = std::max(p.in_shared, 0);
  p.stages = std::min(p.stages, p.streamed());
  return p.streamed() > 0;
}

// Divides warps between rows and depth, registers and shared memory between the matrix, sums and
// what is on its way. False if the block is too large.
bool PlaceMatrix(RecurrencePlan& p, const Target& target, int exchange) {
  // A lane of FMA units has a row of 32.
  const int row_tile = p.fma ? 2 * kRowTile : kRowTile;
  const int row_tiles =
      static_cast<int>(CeilDiv(int64_t{p.units} * p.gates, row_tile)) * (p.fma ? 2 : 1);
  const int64_t chunks = std::max<int64_t>(1, CeilDiv(p.depth, p.chunk()));
  const int tiles = p.columns / kColumnTile;
  RecurrencePlan best;
  double least = kNoSeconds;
  for (const int row_warps : {1, 2}) {
    if (row_warps > (p.fma ? 1 : row_tiles)) continue;
    RecurrencePlan q = p;
    q.row_warps = row_warps;
    q.row_tiles = static_cast<int>(CeilDiv(row_tiles, row_warps));
    q.chunks = static_cast<int>(CeilDiv(chunks, q.depth_warps()));
    for (q.pass = 1; q.pass <= (p.fma ? 1 : tiles); q.pass *= 2) {
      for (const int loading : {24, 32, 48}) {
        q.ahead = std::clamp(loading / (4 * q.pass), 1, tiles / q.pass * q.chunks);
        for (const bool numbered : {false, true}) {
          if (exchange == (numbered ? kCounted : kNumbered)) continue;
          q.numbered = numbered;
          const int64_t limit = target.shared_limit();
          if (!(q.numbered ? PlaceNumbered(q, limit) : Place(q, limit))) continue;
          const double seconds = StepSeconds(q, target);
          if (seconds > least) continue;
          least = seconds;
          best = q;
        }
      }
    }
  }
  if (least < kNoSeconds) p = best;
  return least < kNoSeconds;
}

Status CheckShape(const RecurrenceShape& shape) {
  if (shape.is_projected)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "states are projected from {} to {}: units exchange what they have made "
                         "once a step here",
                         shape.hidden, shape.projected);
  if (shape.accumulator != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "it computes in f32, the recurrence in {}",
                         Info(shape.accumulator).text);
  return {};
}

}  // namespace

Result<RecurrencePlan> RecurrencePlanOf(const RecurrenceShape& shape, const Target& target,
                                        const RecurrenceSplit& split, RecurrenceUnits units) {
  RETURN_IF_ERROR(CheckShape(shape));
  const bool fma = units == RecurrenceUnits::kFma;
  RecurrencePlan p{.shape = shape, .fma = fma, .rounds = shape.type == DType::kF32 && !fma};
  p.units = split.units;
  p.columns = split.columns;
  p.gates = shape.is_grad ? 1 : static_cast<int>(shape.blocks.gates);
  p.depth = shape.is_grad ? shape.blocks.gates * shape.hidden : shape.projected;
  p.warps = p.depth <= 4 * p.chunk() ? 4 : 8;
  p.parts = std::max<int64_t>(1, CeilDiv(shape.hidden, p.units));
  p.groups = std::max<int64_t>(1, CeilDiv(shape.batch, p.columns));
  const int64_t resident = std::max(target.multiprocessors, 1);
  if (p.parts * shape.directions > resident)
    return Status::Error(Code::kUnsupportedShape,
                         "{} units, {} a block, in {} directions are {} blocks that wait for one "
                         "another, and {} run at a time",
                         shape.hidden, p.units, shape.directions, p.parts * shape.directions,
                         resident);
  p.first_groups = std::min(p.groups, resident / (p.parts * shape.directions));
  if (!PlaceMatrix(p, target, split.exchange))
    return Status::Error(
        Code::kSharedMemoryInsufficient,
        "{} units and {} sequences a block, of {} products each, are more than the "
        "registers and {} bytes of shared memory of {} hold",
        p.units, p.columns, p.depth, target.shared_limit(), target.arch);
  return p;
}

std::vector<RecurrenceSplit> RecurrenceSplits(const RecurrenceShape& shape, const Target& target,
                                              int exchange, RecurrenceUnits of) {
  struct Ranked {
    RecurrenceSplit split;
    double seconds;
  };
  std::vector<Ranked> ranked;
  for (const int units : kRecurrenceUnits) {
    for (const int columns : kRecurrenceColumns) {
      if (units == 0 || columns == 0) continue;
      // Twice what there is does nothing for anybody.
      if ((units > 2 && units / 2 >= shape.hidden) || (columns > 8 && columns / 2 >= shape.batch))
        continue;
      const auto plan = RecurrencePlanOf(shape, target, {units, columns, exchange}, of);
      if (plan.ok())
        ranked.push_back({{units, columns, exchange}, RecurrenceSeconds(*plan, target)});
    }
  }
  std::ranges::stable_sort(ranked, {}, &Ranked::seconds);
  std::vector<RecurrenceSplit> splits;
  for (const Ranked& r : ranked) splits.push_back(r.split);
  return splits;
}

double RecurrenceSeconds(const RecurrencePlan& p, const Target& target) {
  constexpr double kLaunchSeconds = 8e-6;
  const double rounds = static_cast<double>(CeilDiv(p.groups, p.first_groups));
  return kLaunchSeconds + StepSeconds(p, target) * rounds * static_cast<double>(p.shape.steps);
}

}  // namespace kiln::compiler
