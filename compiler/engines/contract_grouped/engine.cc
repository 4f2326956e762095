// contract_grouped_sm90: products that need nothing of one another, in one launch of wgmma.
//
// Takes: on sm_90a, a group of products of f16 or bf16 (the gradients of the weights of some
// layers) with operands that are contiguous along their own axes, results that are added to, sums
// of an operand, and operands that are two tensors one behind the other; as many products as a
// launch has arguments for.
//
// How: blocks take tile after tile, whatever product they are of. The second tensor of an operand
// is a second tensor map, and sums of an operand are its product by ones. Tiles of a last turn that
// has few are shared by neighbouring blocks; with few tiles the blocks of a cluster make parts of a
// sum. contract_grouped_sm90.cuh is the skeleton.
//
// Wins: for weight gradients of recurrent networks, whose products are too small for the GPU one by
// one: 295.2 us instead of 392.4 for LSTM T 100 B 64 H 1024 L 2 (H100).
//
// Declines: other GPUs and KILN_LAUNCH=minimal; other groups; sequences of several lengths, whose
// states are computed.
#include "compiler/engines/contract_grouped/engine.h"

#include <utility>

#include "compiler/engines/contract_grouped/plan.h"
#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/kernel/contract_members.h"
#include "compiler/kernel/grouped_members.h"
#include "compiler/kernel/kernel_builder.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::kAbsent;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

constexpr KnobRow kKnobs[] = {
    {.name = "tile_m", .cudnn_type = kKnobTileM, .domain = kGroupedLeft},
    {.name = "tile_n", .cudnn_type = kKnobTileN, .domain = kGroupedRight},
    {.name = "cluster", .cudnn_type = kKnobClusterM, .domain = kGroupedClusters},
    {.name = "split_k", .cudnn_type = kKnobSplitKSlices, .domain = kGroupedSplits},
    {.name = "stream_k", .cudnn_type = kKnobStreamK, .domain = kGroupedTails},
};
constexpr int kVector = 8;  // neighbours that the skeleton hands over at once
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

GroupedTile TileOf(std::span<const int> knobs) {
  return {knobs[0], knobs[1], knobs[2], knobs[3], knobs[4]};
}
std::vector<int> KnobsOf(const GroupedTile& tile) {
  return {tile.left, tile.right, tile.cluster, tile.split, tile.tail};
}

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, const GroupedPlan& plan,
           const GroupedTile& tile)
      : target_(target),
        plan_(plan),
        tile_(tile),
        b_(group, target,
           fmt::format("contract_grouped_sm90: {} products, tile {}x{}x{}, {} stages{}{}",
                       plan.products.size(), tile.left, tile.right, GroupedPlan::kDepth,
                       plan.stages(tile, target),
                       tile.cluster > 1 ? fmt::format(", cluster {}", tile.cluster) : "",
                       tile.split > 1   ? fmt::format(", {} parts", tile.split)
                       : tile.tail != 0 ? ", the last turn shared"
                                        : "")) {
    for (const char* reserved : {"bx", "shape", "store", "keep"}) b_.Name(reserved);
  }

  void Lower(Lowered& lowered) {
    Call call{.skeleton = "contract_grouped_sm90",
              .wgmma = {.columns = tile_.right,
                        .type = plan_.type,
                        .right_type = plan_.type,
                        .left_is_outer = true,
                        .right_is_outer = true},
              .shared_bytes = plan_.shared_bytes(tile_, target_)};
    // Ones stand along k, eight columns of them.
    if (plan_.has_sums())
      call.second = Call::Wgmma{
          .columns = 8, .type = plan_.type, .right_type = plan_.type, .left_is_outer = true};
    Configure(call);
    Shape(call);
    for (const GroupedPlan::Product& product : plan_.products) AddMaps(product, call);
    if (tile_.tail != 0) AddShared(lowered, call);
    if (tile_.split > 1) call.functions.push_back(Store());
    if (plan_.has_sums()) call.functions.push_back(Keep());
    const int64_t blocks = plan_.clusters(tile_, target_) * tile_.blocks();
    b_.Finish(CallOfBlocks(b_, blocks, std::move(call)), {blocks, 1, 1},
              128 * (GroupedPlan::kGroups + 1), lowered, 1);
    lowered.kernels.back().cluster = tile_.blocks();
  }

 private:
  void Configure(Call& call) const {
    call.config = {{contract::kProducts, static_cast<int64_t>(plan_.products.size())},
                   {contract::kTileLeft, tile_.left},
                   {contract::kTileRight, tile_.right},
                   {contract::kRowBytes, 128},
                   {contract::kTerms, 1},
                   {contract::kFolds, plan_.folds(tile_)},
                   {contract::kStages, plan_.stages(tile_, target_)},
                   {contract::kCluster, tile_.cluster},
                   {contract::kSplitCluster, tile_.split},
                   {contract::kGroupsLeft, GroupedPlan::kGroups},
                   {contract::kGroupsRight, 1},
                   {contract::kPingPong, 0},
                   {contract::kProducerRegisters, kProducerRegisters},
                   {contract::kConsumerRegisters, kConsumerRegisters},
                   {contract::kVectorLeft, 0},
                   {contract::kBuffers, 2},
                   {contract::kResultBytes, 2},
                   {contract::kAdds, plan_.adds ? 1 : 0},
                   {contract::kSums, plan_.has_sums() ? 1 : 0},
                   {contract::kTail, tile_.tail},
                   {contract::kPackBf16, plan_.type == DType::kBF16 ? 1 : 0}};
  }

  void Shape(Call& call) {
    const int64_t tiles = plan_.tiles(tile_);
    AddShapeMember(b_, call, grouped::tiles, tiles);
    if (tile_.tail != 0) {
      AddShapeMember(b_, call, grouped::whole_tiles, tiles - plan_.shared_tiles(tile_, target_));
      AddShapeMember(b_, call, grouped::shares, plan_.shares(tile_, target_));
    }
    int64_t first = 0;
    for (size_t p = 0; p < plan_.products.size(); ++p) {
      const GroupedPlan::Product& product = plan_.products[p];
      const auto add = [&](const ShapeMember& member, int64_t value, const char* part = "") {
        const std::string at = fmt::format("products[{}].{}{}", p, member.name, part);
        const char* second = std::string_view(part) == "[1]" ? "second_" : "";
        AddShapeMember(call, {at}, b_.Arg(fmt::format("{}{}_{}", second, member.name, p), value));
      };
      const int64_t left = CeilDiv(product.rows, int64_t{tile_.left} * tile_.cluster),
                    right = CeilDiv(product.columns, int64_t{tile_.right});
      const auto steps = [&](size_t part) {
        return part < product.parts.size()
                   ? CeilDiv(product.parts[part].rows, int64_t{GroupedPlan::kDepth})
                   : 0;
      };
      add(grouped::first_tile, first);
      add(grouped::left_tiles, left);
      add(grouped::right_tiles, right);
      add(grouped::steps, steps(0), "[0]");
      add(grouped::steps, steps(1), "[1]");
      add(grouped::second_k, product.parts.back().left_row);
      add(grouped::is_summed, product.sums.empty() ? 0 : 1);
      first += left * right;
    }
  }

  // Products read the same operands: one parameter for each map.
  std::string Map(const char* role, const GroupedMatrix& matrix) {
    for (const auto& [known, name] : maps_)
      if (known.id == matrix.id && known.map == matrix.map) return name;
    maps_.emplace_back(matrix, b_.Map(fmt::format("{}_map", role), matrix.id, matrix.map));
    return maps_.back().second;
  }
  void AddMaps(const GroupedPlan::Product& product, Call& call) {
    for (const GroupedPlan::Part* part : {&product.parts.front(), &product.parts.back()}) {
      call.maps.push_back(Map("left", part->left));
      call.maps.push_back(Map("right", part->right));
    }
    call.maps.push_back(Map("out", product.result));
    call.maps.push_back(plan_.adds ? Map("before", product.before) : call.maps.back());
  }

  // Buffers of the blocks that share tiles: accumulators, sums of left and stamps of each group.
  void AddShared(Lowered& lowered, Call& call) {
    const int64_t blocks =
        plan_.shared_tiles(tile_, target_) * plan_.shares(tile_, target_) * tile_.cluster;
    lowered.scratch_bytes = {blocks * tile_.left * tile_.right * 4,
                             blocks * tile_.left / 64 * 128 * 16,
                             blocks * GroupedPlan::kGroups * 8};
    call.buffers = {b_.Scratch(0, DType::kF32, false), b_.Scratch(1, DType::kF32, false),
                    b_.Scratch(2, DType::kI64, false)};
  }

  // if product == p { … } for each.
  template <class Fill>
  void ForEach(Block& out, const Expr& product, const Expr& left, Fill&& fill) {
    for (size_t p = 0; p < plan_.products.size(); ++p) {
      Block inside;
      fill(plan_.products[p], inside);
      if (inside.empty()) continue;
      const Expr is_it = tile::Op(ScalarOp::kEq, {product, b_.Idx(static_cast<int64_t>(p))});
      const Expr rows = b_.Arg(fmt::format("rows_{}", p), plan_.products[p].rows);
      out.push_back({tile::If{tile::And(is_it, tile::Lt(left, rows)), std::move(inside), {}}});
    }
  }
  Expr Rounded(const Expr& value) const { return tile::Cast(plan_.type, value); }
  // `old` is read where something was there before.
  Expr Added(const std::string& old, const Expr& at, const Expr& value) const {
    return value + tile::Cast(DType::kF32, tile::Load(old, plan_.type, at));
  }

  Call::Function Keep() {
    Call::Function f{.name = "keep"};
    const Expr product = AddScalar(b_, f, "product", b_.index_type()),
               left = AddScalar(b_, f, "left", b_.index_type()),
               value = AddScalar(b_, f, "value", DType::kF32);
    ForEach(f.body, product, left, [&](const GroupedPlan::Product& of, Block& inside) {
      for (const GroupedResult& sum : of.sums) {
        const Index at = {b_.Idx(0), b_.Idx(0), left};
        Expr whole = value;
        if (sum.before != kAbsent)
          whole = Added(b_.Pointer(sum.before), b_.Offset(sum.before, at), value);
        inside.push_back(
            {tile::Store{b_.Pointer(sum.stored), b_.Offset(sum.stored, at), Rounded(whole)}});
      }
    });
    return f;
  }

  Call::Function Store() {
    Call::Function f{.name = "store"};
    const Expr product = AddScalar(b_, f, "product", b_.index_type()),
               left = AddScalar(b_, f, "left", b_.index_type()),
               right = AddScalar(b_, f, "right", b_.index_type());
    const std::string values = AddArray(b_, f, "values", DType::kF32, kVector);
    ForEach(f.body, product, left, [&](const GroupedPlan::Product& of, Block& inside) {
      Block eight;
      const Index at = {b_.Idx(0), left, right};
      const TensorId y = of.result.id, before = of.before.id;
      const std::string old = b_.Name("old"), rounded = b_.Name("rounded");
      if (before != kAbsent) {
        eight.push_back({tile::Alloc{old, plan_.type, tile::Space::kReg, kVector}});
        WideCopy(eight, plan_.type, old, b_.Idx(0), b_.Pointer(before), b_.Offset(before, at),
                 kVector);
      }
      eight.push_back({tile::Alloc{rounded, plan_.type, tile::Space::kReg, kVector}});
      for (int e = 0; e < kVector; ++e) {
        Expr value = tile::Load(values, DType::kF32, b_.Idx(e));
        if (before != kAbsent) value = Added(old, b_.Idx(e), value);
        eight.push_back({tile::Store{rounded, b_.Idx(e), Rounded(value)}});
      }
      WideCopy(eight, plan_.type, b_.Pointer(y), b_.Offset(y, at), rounded, b_.Idx(0), kVector);
      inside.push_back({tile::If{tile::Lt(right, b_.Extent(y, 2)), std::move(eight), {}}});
    });
    return f;
  }

  const Target& target_;
  const GroupedPlan& plan_;
  const GroupedTile& tile_;
  KernelBuilder b_;
  std::vector<std::pair<GroupedMatrix, std::string>> maps_;
};

// ---- the engine's row

struct GroupedEnginePlan {
  const Group& group;
  const Target& target;
  GroupedPlan plan;

  std::vector<Proposal> Proposals() const {
    std::vector<Proposal> all;
    for (const GroupedTile& tile : GroupedTiles(plan, target))
      all.push_back({.knobs = KnobsOf(tile),
                     .seconds = GroupedSeconds(plan, tile, target),
                     .shared_bytes = plan.shared_bytes(tile, target)});
    return all;
  }
  Estimate EstimateOf(std::span<const int> knobs) const {
    const GroupedTile tile = TileOf(knobs);
    const bool is_legal = CheckGroupedTile(plan, tile, target).ok();
    return {.seconds = is_legal ? GroupedSeconds(plan, tile, target) : kNoSeconds,
            .shared_bytes = plan.shared_bytes(tile, target)};
  }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    const GroupedTile tile = TileOf(knobs);
    RETURN_IF_ERROR(CheckGroupedTile(plan, tile, target));
    Lowered lowered;
    Schedule(group, target, plan, tile).Lower(lowered);
    return lowered;
  }
};

Result<GroupedEnginePlan> PlanOf(const Group& group, const Target& target) {
  ASSIGN_OR_RETURN(GroupedPlan plan, GroupedPlanOf(group));
  if (!target.is_cuda() || target.sm_version != 90)
    return Status::Error(Code::kArchMismatch, "wgmma needs sm_90a, the target is {}", target.arch);
  if (target.minimal_launch)
    return Status::Error(Code::kArchMismatch,
                         "KILN_LAUNCH=minimal allows neither tensor maps nor clusters");
  return GroupedEnginePlan{group, target, std::move(plan)};
}

constexpr int kNumerical[] = {kNoteTensorCore};

}  // namespace

const Engine kContractGroupedSm90Engine = EngineOf<PlanOf>(
    {.name = "contract_grouped_sm90", .version = 1, .knobs = kKnobs, .numerical = kNumerical});

}  // namespace kiln::compiler
