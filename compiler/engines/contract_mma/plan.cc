#include "compiler/engines/contract_mma/plan.h"

#include <algorithm>

#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/accumulation.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

// The most accumulators of a warp, by what registers hold beside fragments and addresses.
constexpr int kWarpTile = 64 * 64;
// Accumulators of a thread that has as many totals beside them, and elements on their way or not.
constexpr int kFoldedAccumulators = 64, kFoldedBesideElements = 32;
// Room for the rows' places (contract_mma/panel.h).
constexpr int64_t kPlacesBytes = 8 * 1024;

// The output's neighbours in memory lie along m.
bool WalksM(const Graph& g, const Node& node) {
  TensorId stored = node.outputs[0];
  for (TensorId id : graph::Outputs(g)) {
    if (g[id].dims != g[stored].dims) continue;  // a reduction of the result
    stored = id;
    break;
  }
  const Tensor& y = g[stored];
  const int64_t rank = y.rank();
  if (node.op == GraphOp::kConvWgrad) return false;
  if (node.op == GraphOp::kMatmul)
    return y.strides[rank - 2] == 1 && y.strides[rank - 1] != 1 && y.dims[rank - 1] != 1;
  return !ChannelsLast(y) && y.strides[rank - 1] == 1;
}

// True if `chunk` neighbours along `dim`, from a multiple of it on, are 16 aligned bytes; an axis
// walks `extent` of them.
bool IsWide(const Graph& g, TensorId id, int64_t dim, int64_t extent, DType type) {
  const Tensor& t = g[id];
  const int chunk = 16 / SizeOf(type);
  if (t.dtype != type || graph::Producers(g)[id] >= 0 || t.by_value || t.alignment % 16 != 0)
    return false;
  if (t.strides[dim] != 1 || t.dims[dim] == 1 || extent % chunk != 0) return false;
  for (int64_t d = 0; d < t.rank(); ++d)
    if (d != dim && t.dims[d] != 1 && t.strides[d] % chunk != 0) return false;
  return true;
}

// The dims that the innermost extents of an operand's axes walk, one for one and never into the
// padding, and those extents; -1 where there is none.
struct Innermost {
  int64_t k_dim = -1, k_extent = 1, row_dim = -1, row_extent = 1;
};

Innermost InnermostOf(const Graph& g, const Node& node, bool is_a) {
  const auto dims = [&](TensorId id) -> const Dims& { return g[id].dims; };
  if (node.op == GraphOp::kMatmul) {
    const Dims& d = dims(node.inputs[is_a ? 0 : 1]);
    const auto rank = static_cast<int64_t>(d.size());
    return is_a ? Innermost{rank - 1, d[rank - 1], rank - 2, d[rank - 2]}
                : Innermost{rank - 2, d[rank - 2], rank - 1, d[rank - 1]};
  }
  const bool wgrad = node.op == GraphOp::kConvWgrad, dgrad = node.op == GraphOp::kConvDgrad;
  const Dims& x = dims(dgrad ? node.outputs[0] : node.inputs[0]);
  const Dims& w = dims(wgrad ? node.outputs[0] : node.inputs[1]);
  const int64_t groups = w[1] == 0 ? 1 : std::max<int64_t>(x[1] / w[1], 1);
  const int64_t channels = w[1], filters = w[0] / groups;
  const bool one_tap = NumElements(std::span(w).subspan(2)) == 1;
  // Taps stand outside of the channels where the tensor that moves with both has them so.
  const Tensor& moved = g[node.inputs[0]];
  const bool channel_is_inner = one_tap || ChannelsLast(moved);
  if (wgrad) {
    if (is_a) {  // dy: rows are filters, k is images and places
      const auto rank = static_cast<int64_t>(dims(node.inputs[1]).size());
      return {rank - 1, dims(node.inputs[1]).back(), 1, filters};
    }
    return {-1, 1, channel_is_inner ? 1 : -1, channels};
  }
  const int64_t summed = dgrad ? filters : channels;
  if (is_a) return {channel_is_inner ? 1 : -1, summed, -1, 1};
  return dgrad ? Innermost{channel_is_inner ? 0 : -1, summed, 1, channels}
               : Innermost{channel_is_inner ? 1 : -1, summed, 0, filters};
}

OperandPath PathOf(const Graph& g, const Node& node, bool is_a, DType type) {
  const bool second = is_a == (node.op == GraphOp::kConvWgrad);
  const TensorId id = node.inputs[second ? 1 : 0];
  const Innermost inner = InnermostOf(g, node, is_a);
  if (inner.k_dim >= 0 && IsWide(g, id, inner.k_dim, inner.k_extent, type))
    return OperandPath::kDepth;
  if (SizeOf(type) == 2 && inner.row_dim >= 0 &&
      IsWide(g, id, inner.row_dim, inner.row_extent, type))
    return OperandPath::kRows;
  return OperandPath::kElements;
}

void FitWarps(MmaPlan& plan, int warps) {
  if (plan.tile_m * plan.tile_n > 2 * 4 * kWarpTile) plan.tile_n = 128;
  const bool elements = plan.a == OperandPath::kElements || plan.b == OperandPath::kElements;
  if (plan.folds) {
    const int most = 8 * 32 * (elements ? kFoldedBesideElements : kFoldedAccumulators);
    while (plan.tile_m * plan.tile_n > most)
      (plan.tile_m > plan.tile_n ? plan.tile_m : plan.tile_n) /= 2;
    warps = 8;
  }
  // Elements on their way wait in registers, and long warp tiles have more fragments than square
  // ones: with 8 warps there is room.
  if (elements || plan.tile_m + plan.tile_n > 256) warps = 8;
  plan.warps_m = 2;
  plan.warps_n = warps / 2;
  if (warps == 8 && (plan.tile_n == 64 || plan.tile_m > plan.tile_n))
    std::swap(plan.warps_m, plan.warps_n);
}

void FitShared(MmaPlan& plan, const Target& target, int depth_bytes, int stages, int reductions) {
  // Bytes of the sums that warps have reduced: at most four warps stand along an axis.
  const int64_t sums = int64_t{reductions} * std::max(plan.tile_m, plan.tile_n) * 4 * 4;
  const auto fits = [&](int bytes, int count) {
    plan.depth = bytes / SizeOf(plan.type);
    plan.stages = count;
    return count * plan.StageBytes() + kPlacesBytes + sums <= target.shared_bytes_per_block;
  };
  for (; stages > 2 && !fits(depth_bytes, stages); --stages) {
  }
  if (!fits(depth_bytes, stages)) fits(64, 2);
}

// Bytes of places[dim] of a row of one side (contract_mma/panel.h, WritePlaces).
int64_t PlaceBytes(const Graph& g, const Node& node, bool is_m, OperandPath path) {
  if (path == OperandPath::kRows || node.op == GraphOp::kMatmul) return 0;
  // The side that is made of several dims: the pixels of the result, or wgrad's taps.
  const bool wgrad = node.op == GraphOp::kConvWgrad;
  if (is_m == wgrad) return 0;
  Dims dims = g[node.outputs[0]].dims;
  dims.erase(dims.begin() + (wgrad ? 0 : 1));
  if (std::ranges::count_if(dims, [](int64_t extent) { return extent != 1; }) < 2) return 0;
  return static_cast<int64_t>(dims.size()) * SizeOf(IndexType(g));
}

}  // namespace

DType MmaType(DType operand, const Target&) {
  switch (operand) {
    case DType::kE4M3:
    case DType::kE5M2:
      // Exact, and summed in f32 proper, which the fp8 products of these GPUs are not.
      return DType::kF16;
    default:
      return operand;
  }
}

MmaProblem MmaProblemOf(const Group& group, const Target& target) {
  const Graph& g = group.graph;
  const Node& node = ContractionOf(group);
  MmaProblem problem{.plan = {.swapped = WalksM(g, node)},
                     .size = SizesOf(g, node),
                     .reductions = CountReductions(group)};
  MmaPlan& plan = problem.plan;
  plan.type = MmaType(g[node.inputs[0]].dtype, target);
  plan.accumulator = IsFloat(plan.type) ? DType::kF32 : DType::kI32;
  plan.a = PathOf(g, node, true, plan.type);
  plan.b = PathOf(g, node, false, plan.type);
  if (plan.swapped) std::swap(plan.a, plan.b);
  plan.place_bytes_a = PlaceBytes(g, node, !plan.swapped, plan.a);
  plan.place_bytes_b = PlaceBytes(g, node, plan.swapped, plan.b);
  return problem;
}

MmaPlan PlanMma(const MmaProblem& problem, const Target& target, std::span<const int> knobs) {
  MmaPlan plan = problem.plan;
  plan.tile_m = knobs[kMmaTileM];
  plan.tile_n = knobs[kMmaTileN];
  const int reductions = problem.reductions;
  const ContractionSizes& size = problem.size;
  const auto fit = [&] {
    FitWarps(plan, knobs[kMmaWarps]);
    FitShared(plan, target, knobs[kMmaDepth], knobs[kMmaStages], reductions);
    // No slice is empty but where k is, and offsets into the slices stay within 31 bits.
    const int64_t steps = std::max<int64_t>(CeilDiv(size.k, plan.depth), 1);
    const int64_t elements = std::max<int64_t>(size.batch * (size.m + 8) * (size.n + 8), 1);
    const int64_t most = std::max<int64_t>(std::min(steps, (int64_t{1} << 30) / elements), 1);
    // A reduction of the result needs whole sums.
    const int64_t wanted = reductions > 0 ? 1 : std::min<int64_t>(knobs[kMmaSplits], most);
    plan.splits = static_cast<int>(CeilDiv(steps, CeilDiv(steps, wanted)));
    return CeilDiv(steps, int64_t{plan.splits}) * plan.depth;
  };
  if (Totals::Needs(plan.accumulator, fit(), MostProducts(plan.type))) {
    plan.folds = true;
    fit();
  }
  return plan;
}

}  // namespace kiln::compiler
