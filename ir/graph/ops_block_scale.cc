// Tensors whose blocks share scales: `block_scale_dequantize` multiplies each element by the scale
// of its block, `block_scale_quantize` finds the scales and divides by them (attrs.h has the
// formulas).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// The row-major index of the scale of each element of x, in row-major order.
std::vector<size_t> ScaleIndices(const Dims& x, const Dims& scale, const Dims& blocks) {
  std::vector<size_t> indices(1, 0);
  for (size_t d = 0; d < x.size(); ++d) {
    std::vector<size_t> next;
    next.reserve(indices.size() * static_cast<size_t>(x[d]));
    for (const size_t base : indices) {
      for (int64_t i = 0; i < x[d]; ++i)
        next.push_back(base * static_cast<size_t>(scale[d]) + static_cast<size_t>(i / blocks[d]));
    }
    indices = std::move(next);
  }
  return indices;
}

Dims BlockCounts(const Dims& x, const Dims& blocks) {
  Dims counts;
  for (size_t d = 0; d < x.size(); ++d) counts.push_back(CeilDiv(x[d], blocks[d]));
  return counts;
}

// The smallest value of `type` that is no smaller than `value`, a quotient of non-negative numbers.
// Wide types hold the quotient as it is.
double RoundUp(DType type, double value) {
  const double near = RoundTo(type, value);
  if (type == DType::kF32 || type == DType::kF64) return near;
  if (!(near < value) || near >= RoundTo(type, std::numeric_limits<double>::infinity()))
    return near;
  // Three quarters of a unit in the last place lead past the middle, and not past the next number.
  const double smallest = RoundTo(type, std::ldexp(1.0, -9));
  return RoundTo(type, near + std::max(near * 0.09375, 0.75 * smallest));
}

Status VerifyBlocks(const Graph& graph, const Node& node, const Tensor& x, const Tensor& scale,
                    bool may_pad) {
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  if (!IsFloat(node.compute))
    return Status::Error(Code::kUnsupportedDataType, "scales are no {}", Info(node.compute).text);
  ASSIGN_OR_RETURN(const Dims blocks, BlockSizes(node.As<BlockScaleAttrs>().block_size, x, scale));
  const Dims counts = BlockCounts(x.dims, blocks);
  for (size_t d = 0; d < counts.size(); ++d) {
    if (scale.dims[d] == counts[d] || (may_pad && scale.dims[d] > counts[d])) continue;
    return Status::Error(Code::kShapeMismatch,
                         "dim {}: {} in blocks of {} has {} scales, not {} of {}", d, Shape(x),
                         blocks[d], counts[d], scale.dims[d], Shape(scale));
  }
  return {};
}

}  // namespace

Result<Dims> BlockSizes(const Dims& block_size, const Tensor& x, const Tensor& scale) {
  constexpr size_t kMostDims = 6;  // a blocked dim becomes two, and tensors have 8 at most
  const size_t rank = x.dims.size();
  if (rank > kMostDims || scale.dims.size() != rank) {
    return Status::Error(Code::kBadParam,
                         "{} and its scales {} have {} and {} dims, not one rank of {} at most",
                         Shape(x), Shape(scale), rank, scale.rank(), kMostDims);
  }
  const bool positive = std::ranges::all_of(block_size, [](int64_t b) { return b >= 1; });
  if (block_size.empty() || block_size.size() > std::min<size_t>(rank, 2) || !positive) {
    return Status::Error(Code::kBadParam, "block size [{}] is none of one or two dims of {}",
                         fmt::join(block_size, ","), Shape(x));
  }
  Dims blocks(rank, 1);
  if (block_size.size() == 2) {
    std::ranges::copy(block_size, blocks.end() - 2);
    return blocks;
  }
  size_t axis = rank - 1;
  if (rank >= 2 && scale.dims[axis] >= x.dims[axis] && scale.dims[axis - 1] < x.dims[axis - 1])
    --axis;
  blocks[axis] = block_size[0];
  return blocks;
}

Status VerifyBlockScaleDequantize(const Graph& graph, const Node& node) {
  if (InputOf(graph, node, 1) == nullptr)
    return Status::Text(Code::kBadParam, "its scales are absent");
  const Tensor& x = *InputOf(graph, node, 0);
  RETURN_IF_ERROR(VerifyBlocks(graph, node, x, *InputOf(graph, node, 1), true));
  return ExpectDims(*OutputOf(graph, node, 0), x.dims, fmt::format("the operand {}", Shape(x)));
}

Status InferBlockScaleDequantize(Graph& graph, const Node& node) {
  const Tensor& x = graph[node.inputs[0]];
  SetDims(graph[node.outputs[0]], x.dims, &x);
  return {};
}

void EvalBlockScaleDequantize(const EvalArgs& args) {
  const Tensor& x = *InputOf(args.graph, args.node, 0);
  const Tensor& scale = *InputOf(args.graph, args.node, 1);
  const auto blocks = BlockSizes(args.node.As<BlockScaleAttrs>().block_size, x, scale);
  const auto at = ScaleIndices(x.dims, scale.dims, *blocks);
  for (size_t i = 0; i < at.size(); ++i)
    (*args.outputs[0])[i] = (*args.inputs[0])[i] * (*args.inputs[1])[at[i]];
}

Status VerifyBlockScaleQuantize(const Graph& graph, const Node& node) {
  if (OutputOf(graph, node, 1) == nullptr)
    return Status::Text(Code::kBadParam, "its scales are absent");
  const Tensor& x = *InputOf(graph, node, 0);
  const Tensor& y = *OutputOf(graph, node, 0);
  const Tensor& scale = *OutputOf(graph, node, 1);
  RETURN_IF_ERROR(VerifyBlocks(graph, node, x, scale, false));
  constexpr DType kNarrow[] = {DType::kE4M3, DType::kE5M2, DType::kE2M1};
  if (std::ranges::find(kNarrow, y.dtype) == std::end(kNarrow)) {
    return Status::Error(Code::kUnsupportedDataType,
                         "blocks become e4m3, e5m2 or e2m1, and %{} is {}", y.name,
                         Info(y.dtype).text);
  }
  constexpr DType kScales[] = {DType::kE8M0, DType::kE4M3, DType::kF32, DType::kF64};
  if (std::ranges::find(kScales, scale.dtype) == std::end(kScales)) {
    return Status::Error(Code::kUnsupportedDataType,
                         "scales are e8m0, e4m3, f32 or f64, and %{} is {}", scale.name,
                         Info(scale.dtype).text);
  }
  return ExpectDims(y, x.dims, fmt::format("the operand {}", Shape(x)));
}

Status InferBlockScaleQuantize(Graph& graph, const Node& node) {
  const Tensor& x = graph[node.inputs[0]];
  SetDims(graph[node.outputs[0]], x.dims, &x);
  if (node.outputs[1] != kAbsent && graph[node.outputs[1]].dims.empty()) {
    return Status::Error(Code::kBadParam, "%{} has no extents: the scales say which dim has blocks",
                         graph[node.outputs[1]].name);
  }
  return {};
}

void EvalBlockScaleQuantize(const EvalArgs& args) {
  const Tensor& x = *InputOf(args.graph, args.node, 0);
  const Tensor& y = *OutputOf(args.graph, args.node, 0);
  const Tensor& scale = *OutputOf(args.graph, args.node, 1);
  const auto blocks = BlockSizes(args.node.As<BlockScaleAttrs>().block_size, x, scale);
  const auto at = ScaleIndices(x.dims, scale.dims, *blocks);
  const auto& values = *args.inputs[0];
  auto& scales = *args.outputs[1];
  std::ranges::fill(scales, 0);
  for (size_t i = 0; i < at.size(); ++i)
    if (!std::isnan(values[i])) scales[at[i]] = std::max(scales[at[i]], std::fabs(values[i]));
  const double largest = RoundTo(y.dtype, std::numeric_limits<double>::max());
  for (double& s : scales) s = RoundUp(scale.dtype, RoundTo(args.node.compute, s / largest));
  for (size_t i = 0; i < at.size(); ++i)
    (*args.outputs[0])[i] = scales[at[i]] == 0 ? 0 : values[i] / scales[at[i]];
}

}  // namespace kiln::graph
