// Ops that move data without computing: reshape, transpose, slice, concat, gather. The first three
// are index maps that the compiler folds into their neighbours; the values keep their exact value
// and take the output's dtype.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "ir/graph/loops.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

// The memory that a tensor addresses, as extents and strides from the outermost, with extents of 1
// left out and contiguous neighbours merged: equal for tensors that address the same elements in
// any order of dims.
std::vector<std::array<int64_t, 2>> AddressedMemory(const Tensor& tensor) {
  std::vector<std::array<int64_t, 2>> runs;  // stride, extent
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    if (tensor.dims[d] != 1) runs.push_back({tensor.strides[d], tensor.dims[d]});
  }
  std::ranges::sort(runs, std::greater<>{});
  std::vector<std::array<int64_t, 2>> merged;
  for (const auto& run : runs) {
    if (!merged.empty() && merged.back()[0] == run[0] * run[1]) {
      merged.back() = {run[0], merged.back()[1] * run[1]};
    } else {
      merged.push_back(run);
    }
  }
  return merged;
}

// Calls visit(row-major index, memory offset) for each element of a strided tensor.
template <class F>
void ForEachElement(const Tensor& tensor, F&& visit) {
  int64_t index = 0;
  ForEachRow<1>(
      tensor.dims, {tensor.strides},
      [&](const std::array<int64_t, 1>& at, int64_t count, const std::array<int64_t, 1>& step) {
        for (int64_t i = 0; i < count; ++i)
          visit(static_cast<size_t>(index++), at[0] + i * step[0]);
      });
}

Status VerifyMove(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (InputOf(graph, node, i) == nullptr)
      return Status::Error(Code::kBadParam, "operand {} is absent", i);
  }
  return CheckCompute(node, true);
}

// y[i] = x[base + sum of i_d * x_step[d]] over y's dims.
void Gather(const EvalArgs& args, int64_t base, const Dims& x_step) {
  if (args.outputs[0]->empty()) return;
  const double* x = args.inputs[0]->data() + base;
  double* y = args.outputs[0]->data();
  ForEachRow<1>(
      OutputOf(args.graph, args.node, 0)->dims, {x_step},
      [&](const std::array<int64_t, 1>& at, int64_t count, const std::array<int64_t, 1>& step) {
        for (int64_t i = 0; i < count; ++i) *y++ = x[at[0] + i * step[0]];
      });
}

bool IsPermutation(const Dims& permutation, size_t rank) {
  Dims sorted = permutation;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) return false;
  }
  return sorted.size() == rank;
}

}  // namespace

bool ReshapeKeepsMemory(const Tensor& x, const Tensor& y) {
  return NumElements(x.dims) == NumElements(y.dims) && AddressedMemory(x) == AddressedMemory(y);
}

Status VerifyReshape(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(VerifyMove(graph, node));
  const Tensor& x = *InputOf(graph, node, 0);
  const Tensor& y = *OutputOf(graph, node, 0);
  if (NumElements(x.dims) == NumElements(y.dims)) return {};
  return Status::Error(Code::kShapeMismatch, "{} has {} elements, its reshape {} has {}", Shape(x),
                       NumElements(x.dims), Shape(y), NumElements(y.dims));
}

Status InferReshape(Graph& graph, const Node& node) {
  Tensor& y = graph[node.outputs[0]];
  if (y.dims.empty())
    return Status::Error(Code::kBadParam, "%{} has no extents: a reshape's output says them",
                         y.name);
  SetDims(y, {}, nullptr);
  return {};
}

void EvalReshape(const EvalArgs& args) {
  const Tensor& x = *InputOf(args.graph, args.node, 0);
  const Tensor& y = *OutputOf(args.graph, args.node, 0);
  if (args.inputs[0]->empty() || !ReshapeKeepsMemory(x, y)) {
    *args.outputs[0] = *args.inputs[0];
    return;
  }
  std::vector<double> memory(static_cast<size_t>(SpanElements(x.dims, x.strides)));
  ForEachElement(
      x, [&](size_t i, int64_t at) { memory[static_cast<size_t>(at)] = (*args.inputs[0])[i]; });
  ForEachElement(
      y, [&](size_t i, int64_t at) { (*args.outputs[0])[i] = memory[static_cast<size_t>(at)]; });
}

Status VerifyTranspose(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(VerifyMove(graph, node));
  const Tensor& x = *InputOf(graph, node, 0);
  const Dims& permutation = node.As<TransposeAttrs>().permutation;
  if (!IsPermutation(permutation, x.dims.size())) {
    return Status::Error(Code::kBadParam, "[{}] is no permutation of the {} dims of {}",
                         fmt::join(permutation, ","), x.rank(), Shape(x));
  }
  Dims dims;
  for (const int64_t axis : permutation) dims.push_back(x.dims[static_cast<size_t>(axis)]);
  return ExpectDims(*OutputOf(graph, node, 0), dims, fmt::format("the transpose of {}", Shape(x)));
}

Status InferTranspose(Graph& graph, const Node& node) {
  const Tensor& x = graph[node.inputs[0]];
  const Dims& permutation = node.As<TransposeAttrs>().permutation;
  if (!IsPermutation(permutation, x.dims.size())) return {};  // Verify has the sentence
  Dims dims;
  for (const int64_t axis : permutation) dims.push_back(x.dims[static_cast<size_t>(axis)]);
  SetDims(graph[node.outputs[0]], dims, nullptr);
  return {};
}

void EvalTranspose(const EvalArgs& args) {
  const Dims packed = PackedStrides(InputOf(args.graph, args.node, 0)->dims);
  Dims step;
  for (const int64_t axis : args.node.As<TransposeAttrs>().permutation)
    step.push_back(packed[static_cast<size_t>(axis)]);
  Gather(args, 0, step);
}

Status VerifySlice(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(VerifyMove(graph, node));
  const Tensor& x = *InputOf(graph, node, 0);
  const Tensor& y = *OutputOf(graph, node, 0);
  const auto& [start, step] = node.As<SliceAttrs>();
  if (start.size() != x.dims.size() || step.size() != x.dims.size() || y.rank() != x.rank()) {
    return Status::Error(Code::kBadParam,
                         "start has {} values, step {} and the result {} has {} dims; {} has {}",
                         start.size(), step.size(), Shape(y), y.rank(), Shape(x), x.rank());
  }
  for (size_t d = 0; d < start.size(); ++d) {
    const bool inside = step[d] >= 1 && start[d] >= 0 && start[d] <= x.dims[d] &&
                        (y.dims[d] == 0 || (step[d] <= INT64_MAX / y.dims[d] &&
                                            start[d] + (y.dims[d] - 1) * step[d] < x.dims[d]));
    if (inside) continue;
    return Status::Error(Code::kOutOfBound,
                         "dim {}: {} elements from {} in steps of {} do not lie within {}", d,
                         y.dims[d], start[d], step[d], Shape(x));
  }
  return {};
}

Status InferSlice(Graph& graph, const Node& node) {
  const Tensor& x = graph[node.inputs[0]];
  const auto& [start, step] = node.As<SliceAttrs>();
  Dims dims;
  for (size_t d = 0; d < x.dims.size() && d < start.size() && d < step.size() && step[d] > 0; ++d) {
    dims.push_back(start[d] >= x.dims[d] ? 0 : (x.dims[d] - start[d] - 1) / step[d] + 1);
  }
  if (dims.size() == x.dims.size()) SetDims(graph[node.outputs[0]], dims, &x);
  return {};
}

void EvalSlice(const EvalArgs& args) {
  const auto& [start, step] = args.node.As<SliceAttrs>();
  Dims x_step = PackedStrides(InputOf(args.graph, args.node, 0)->dims);
  int64_t base = 0;
  for (size_t d = 0; d < start.size(); ++d) {
    base += start[d] * x_step[d];
    x_step[d] *= step[d];
  }
  Gather(args, base, x_step);
}

Status VerifyConcat(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(VerifyMove(graph, node));
  const Tensor& first = *InputOf(graph, node, 0);
  const int64_t axis = node.As<ConcatAttrs>().axis;
  if (axis < 0 || axis >= first.rank()) {
    return Status::Error(Code::kBadParam, "axis {} is none of the {} dims of {}", axis,
                         first.rank(), Shape(first));
  }
  Dims dims = first.dims;
  const auto at = static_cast<size_t>(axis);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Tensor& t = *InputOf(graph, node, i);
    Dims other = t.dims;
    if (other.size() == dims.size()) other[at] = first.dims[at];
    if (other != first.dims) {
      return Status::Error(Code::kShapeMismatch, "{} and {} must agree in all dims but {}",
                           Shape(first), Shape(t), axis);
    }
    dims[at] += t.dims[at];
  }
  return ExpectDims(*OutputOf(graph, node, 0), dims, "the concatenation");
}

Status InferConcat(Graph& graph, const Node& node) {
  const auto at = static_cast<size_t>(node.As<ConcatAttrs>().axis);
  const Tensor& first = graph[node.inputs[0]];
  Dims dims = first.dims;
  if (at >= dims.size()) return {};  // Verify has the sentence
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Tensor* t = InputOf(graph, node, i);
    if (t == nullptr || t->rank() != first.rank()) return {};
    dims[at] += t->dims[at];
  }
  SetDims(graph[node.outputs[0]], dims, &first);
  return {};
}

void EvalConcat(const EvalArgs& args) {
  const auto axis = static_cast<size_t>(args.node.As<ConcatAttrs>().axis);
  const Dims& y_dims = OutputOf(args.graph, args.node, 0)->dims;
  int64_t inner = 1, outer = 1;
  for (size_t d = 0; d < y_dims.size(); ++d)
    (d < axis ? outer : inner) *= d == axis ? 1 : y_dims[d];
  const int64_t y_row = y_dims[axis] * inner;
  int64_t at = 0;
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    const int64_t row = InputOf(args.graph, args.node, i)->dims[axis] * inner;
    for (int64_t o = 0; o < outer; ++o) {
      std::copy_n(args.inputs[i]->data() + o * row, row, args.outputs[0]->data() + o * y_row + at);
    }
    at += row;
  }
}

Status VerifyGather(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(VerifyMove(graph, node));
  const Tensor &x = *InputOf(graph, node, 0), &index = *InputOf(graph, node, 1),
               &y = *OutputOf(graph, node, 0);
  const int64_t axis = node.As<GatherAttrs>().axis;
  if (index.dtype != DType::kI32 && index.dtype != DType::kI64)
    return Status::Error(Code::kUnsupportedDataType, "the index %{} is {}, not i32 or i64",
                         index.name, Info(index.dtype).text);
  if (axis < 0 || axis >= y.rank() || x.rank() != y.rank() || index.rank() != y.rank())
    return Status::Error(Code::kShapeMismatch,
                         "{}, {} and {} must have the same dims, axis {} among them", Shape(x),
                         Shape(index), Shape(y), axis);
  for (size_t d = 0; d < y.dims.size(); ++d) {
    const auto fits = [&](const Tensor& t) { return t.dims[d] == 1 || t.dims[d] == y.dims[d]; };
    if (fits(index) && (fits(x) || static_cast<int64_t>(d) == axis)) continue;
    return Status::Error(Code::kShapeMismatch, "dim {}: {} and {} do not broadcast to {}", d,
                         Shape(x), Shape(index), Shape(y));
  }
  return {};
}

Status InferGather(Graph& graph, const Node& node) {
  const Tensor* index = InputOf(graph, node, 1);
  if (index == nullptr) return {};  // Verify has the sentence
  const Tensor& x = graph[node.inputs[0]];
  const auto axis = static_cast<size_t>(node.As<GatherAttrs>().axis);
  if (axis >= x.dims.size() || index->rank() != x.rank()) return {};
  Dims dims = index->dims;
  for (size_t d = 0; d < dims.size(); ++d)
    if (d != axis && dims[d] == 1) dims[d] = x.dims[d];
  SetDims(graph[node.outputs[0]], dims, nullptr);
  return {};
}

void EvalGather(const EvalArgs& args) {
  const Dims& x = InputOf(args.graph, args.node, 0)->dims;
  const Dims& y = OutputOf(args.graph, args.node, 0)->dims;
  const auto axis = static_cast<size_t>(args.node.As<GatherAttrs>().axis);
  Dims x_step = BroadcastSteps(x, y);
  const int64_t stride = PackedStrides(x)[axis];
  x_step[axis] = 0;
  const Dims index_step = BroadcastSteps(InputOf(args.graph, args.node, 1)->dims, y);
  double* out = args.outputs[0]->data();
  ForEachRow<2>(
      y, {x_step, index_step},
      [&](const std::array<int64_t, 2>& at, int64_t count, const std::array<int64_t, 2>& step) {
        for (int64_t i = 0; i < count; ++i) {
          const double place = (*args.inputs[1])[static_cast<size_t>(at[1] + i * step[1])];
          const bool is_inside = place >= 0 && place < static_cast<double>(x[axis]);
          *out++ = is_inside ? (*args.inputs[0])[static_cast<size_t>(
                                   at[0] + i * step[0] + static_cast<int64_t>(place) * stride)]
                             : 0;
        }
      });
}

}  // namespace kiln::graph
