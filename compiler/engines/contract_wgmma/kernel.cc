#include "compiler/engines/contract_wgmma/kernel.h"

#include <algorithm>
#include <utility>

#include "compiler/engines/contract_wgmma/candidates.h"
#include "compiler/engines/contraction/skeleton_functions.h"
#include "compiler/engines/contraction/split_sum.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/contract_members.h"

namespace kiln::compiler {
namespace {

using tile::Block;
using tile::Call;

struct RegisterRow {
  int producer, consumer;
};
constexpr RegisterRow kRegisters = {40, 232};
// Registers where operands do not lie along k: a warp of the producer holds a panel.
constexpr RegisterRow kTurningRegisters = {72, 216}, kSplittingRegisters = {88, 208};

const RegisterRow& RegistersOf(const Sm90Plan& plan) {
  if (plan.terms == 2) return kSplittingRegisters;
  return plan.left_in_registers() || plan.prepares_right() ? kTurningRegisters : kRegisters;
}

std::string Describe(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target) {
  return fmt::format("wgmma_sm90: tile {}x{}x{}, {} stages, cluster {}{}{}{}", tile.left,
                     tile.right, plan.depth(), StagesOf(plan, tile, target), tile.cluster,
                     tile.ping_pong ? ", ping-pong" : "", tile.fill ? ", fill" : "",
                     tile.stream     ? ", stream-K"
                     : tile.splits() ? ", split-K"
                                     : "");
}

class Sm90Kernel {
 public:
  Sm90Kernel(const EpilogueReductions& reductions, const Target& target, const Sm90Plan& plan,
             const Sm90Tile& tile)
      : b_(reductions.tile(), target, Describe(plan, tile, target)),
        x_{b_, reductions.tile(), reductions, c_, target, plan, tile} {
    for (const char* reserved : {"bx", "shape", "store"}) b_.Name(reserved);
    if (!reductions.empty())
      for (const char* reserved : {"start", "combine", "flush"}) b_.Name(reserved);
    c_ = DescribeContraction(b_, ContractionOf(x_.group));
  }

  void Lower(Lowered& lowered) {
    const Sm90Tile& tile = x_.tile;
    Call call{.skeleton = Skeleton()};
    AddOperands(call);
    Configure(call);
    const int64_t tiles = AddSm90Shape(x_, call);
    const int64_t workers = tile.stream ? StreamWorkers(x_.plan, tile, x_.target) : tiles;
    if (tile.stream) AddStreamBuffers(workers, call, lowered);
    if (tile.direct) AddSm90DirectOutput(x_, call);
    if (!tile.direct || tile.fill) call.functions.push_back(MakeSm90StoreFunction(x_, lowered));
    PartialResults partial = Partial();
    if (!x_.reductions.empty()) {
      call.config.push_back({contract::kKeepsSums, KeepsSums() ? 1 : 0});
      partial.Allocate(lowered);
      AddReductionFunctions(b_, x_.reductions, partial, x_.plan.left_size,
                            {.images = x_.plan.images, .parts_of_image = TileParts()}, call);
    }
    Finish(std::move(call), tiles, workers, lowered);
    partial.Finish(x_.target, lowered);
  }

  const Sm90Context& context() const { return x_; }

 private:
  const char* Skeleton() const {
    if (!x_.reductions.empty()) return "contract_reduced_sm90";
    if (x_.tile.slot() > 0) return "contract_full_sm90";
    if (x_.is_phased() || x_.tile.fill) return "contract_phased_sm90";
    return x_.tile.stream ? "contract_stream_sm90" : "contract_sm90";
  }

  // Adds the maps that read the operands, and the instruction that multiplies them.
  void AddOperands(Call& call) {
    const Sm90Plan& plan = x_.plan;
    const auto boxed = [&](TensorMapSpec map, const Sm90Operand& operand, int rows) {
      SetBox(map, plan, operand, rows);
      if (plan.terms == 2) map.type = DType::kI32;  // not rounded to tf32
      return map;
    };
    call.maps = {b_.Map("left_map", plan.left.id, boxed(plan.left_map, plan.left, x_.tile.left)),
                 b_.Map("right_map", plan.right.id,
                        boxed(plan.right_map, plan.right, x_.tile.right / x_.tile.cluster))};
    call.wgmma = {.columns = x_.tile.columns(),
                  .type = x_.group.graph[plan.left.id].dtype,
                  .right_type = x_.group.graph[plan.right.id].dtype,
                  .left_is_outer = plan.left.is_outer,
                  .right_is_outer = plan.right.is_outer};
    call.shared_bytes = SharedBytes(plan, x_.tile, x_.target);
  }

  void Configure(Call& call) const {
    const Sm90Plan& plan = x_.plan;
    const Sm90Tile& tile = x_.tile;
    const RegisterRow& registers = RegistersOf(plan);
    call.config = {
        {contract::kTileLeft, tile.left},
        {contract::kTileRight, tile.right},
        {contract::kRowBytes, plan.row_bytes},
        {contract::kTerms, plan.terms},
        {contract::kFolds, FoldsOf(plan, tile, x_.target)},
        {contract::kStages, StagesOf(plan, tile, x_.target)},
        {contract::kCluster, tile.cluster},
        {contract::kGroupsLeft, tile.groups_left()},
        {contract::kGroupsRight, tile.groups_right()},
        {contract::kPingPong, tile.ping_pong ? 1 : 0},
        {contract::kProducerRegisters, registers.producer},
        {contract::kConsumerRegisters, registers.consumer},
        {contract::kLeft, plan.left.is_pixels ? 1 : 0},
        {contract::kRight, plan.right.is_pixels ? 1 : 0},
        {contract::kSpatial, plan.spatial},
        {contract::kBatched, plan.batches > 1 ? 1 : 0},
        {contract::kSplit, tile.splits() ? 1 : 0},
        {contract::kSplitCluster, tile.split_cluster},
        {contract::kStream, tile.stream ? 1 : 0},
        {contract::kPhased, plan.phases.empty() ? 0 : 1},
        {contract::kMayBeEmpty, plan.has_empty_phases() && !tile.fill ? 1 : 0},
        {contract::kFills, tile.fill ? 1 : 0},
        {contract::kVectorLeft, StoresAlongRight(plan, tile) ? 0 : 1},
        {contract::kBuffers, BuffersOf(plan, tile, x_.target)},
        {contract::kSlot, tile.slot()},
        {contract::kFull, tile.full},
        {contract::kResults, tile.results},
        {contract::kResultBytes, tile.result_bytes},
    };
  }

  // Stream-K: each group of consumers has a part, and the stamp that says that it lies there.
  void AddStreamBuffers(int64_t workers, Call& call, Lowered& lowered) {
    const int64_t blocks = workers * x_.tile.cluster;
    lowered.scratch_bytes = {blocks * x_.tile.left * x_.tile.right * 4, blocks * kSm90Groups * 8};
    call.buffers = {b_.Scratch(0, x_.accumulator(), false), b_.Scratch(1, DType::kI64, false)};
  }

  // The grid is persistent, but where a cluster sums: its stages hold the sums when the next tile's
  // would come.
  void Finish(Call call, int64_t tiles, int64_t workers, Lowered& lowered) {
    const Sm90Tile& tile = x_.tile;
    const int64_t blocks = tile.split_cluster > 1 ? tiles * tile.split_cluster
                                                  : std::min(workers, Slots()) * tile.cluster;
    Block inner, body;
    inner.push_back({std::move(call)});
    body.push_back({tile::For{"bx", b_.index_type(), b_.Arg("blocks", blocks), tile::Bind::kBlockX,
                              std::move(inner)}});
    b_.Finish(std::move(body), {blocks, 1, 1}, 128 * (kSm90Groups + 1), lowered, 1);
    lowered.kernels.back().cluster = tile.cluster * tile.split_cluster;
  }

  // ---- reductions of the result

  PartialResults Partial() const {
    const PartialAxis left{x_.plan.left_size, TileParts() * x_.plan.images};
    return {x_.reductions, x_.plan.batches / x_.plan.images, left, left, !x_.plan.left_is_a};
  }

  // Clusters that run at a time.
  int64_t Slots() const { return std::max(1, x_.target.multiprocessors / x_.tile.cluster); }

  // True if every tile of a block has the same places of left.
  bool KeepsSums() const {
    return x_.tile.direct && x_.plan.batches == 1 && x_.plan.phases.empty() &&
           x_.plan.left_size <= int64_t{x_.tile.left} * x_.tile.cluster;
  }

  // Consumer groups of one batch that share a place of left: of tiles, or of blocks.
  int64_t TileParts() const {
    if (KeepsSums())
      return std::min(TilesOf(x_.plan, x_.tile), Slots()) *
             (x_.tile.ping_pong ? kSm90Groups : x_.tile.groups_right());
    return CeilDiv(x_.plan.right_size, x_.tile.right) * NumElements(x_.plan.phases) *
           x_.tile.groups_right();
  }

  KernelBuilder b_;
  Contraction c_{};
  Sm90Context x_;
};

}  // namespace

Lowered LowerSm90(const Group& group, const Target& target, const Sm90Plan& plan,
                  const Sm90Tile& tile) {
  Lowered lowered;
  const EpilogueReductions reductions(group);
  Sm90Kernel kernel(reductions, target, plan, tile);
  kernel.Lower(lowered);
  if (tile.slices() > 1) {
    const Sm90Context& x = kernel.context();
    SumSplits(group, target,
              {.splits = tile.slices(),
               .batches = plan.batches,
               .left_pitch = AlignUp(plan.left_size, kSm90Vector),
               .accumulator = x.accumulator(),
               .axes = x.axes()},
              lowered);
  }
  return lowered;
}

}  // namespace kiln::compiler
