// Sums at places that the operands name: the gradient of a gather.
#include <array>

#include "ir/graph/loops.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

constexpr size_t kFirstPair = 1;  // behind `before`: x, index, x, index, …

bool BroadcastsTo(const Dims& from, const Dims& to) {
  if (from.size() != to.size()) return false;
  for (size_t d = 0; d < to.size(); ++d)
    if (from[d] != 1 && from[d] != to[d]) return false;
  return true;
}

Status VerifyTypes(const Graph& graph, const Node& node) {
  const Tensor& y = *OutputOf(graph, node, 0);
  if (y.dtype != DType::kF32 && y.dtype != DType::kF64 && y.dtype != DType::kI32)
    return Status::Error(Code::kUnsupportedDataType,
                         "%{} is {}: memory is added to in f32, f64 or i32", y.name,
                         Info(y.dtype).text);
  if (node.compute != y.dtype)
    return Status::Error(Code::kUnsupportedDataType, "adds in {}, and %{} is {}",
                         Info(node.compute).text, y.name, Info(y.dtype).text);
  for (size_t i = kFirstPair + 1; i < node.inputs.size(); i += 2) {
    const Tensor& index = *InputOf(graph, node, i);
    if (index.dtype != DType::kI32 && index.dtype != DType::kI64)
      return Status::Error(Code::kUnsupportedDataType, "the index %{} is {}, not i32 or i64",
                           index.name, Info(index.dtype).text);
  }
  return {};
}

// The dims of y that `x` is added to.
Status VerifyTarget(const Tensor& x, const Tensor& y, int64_t axis) {
  if (axis < 0 || axis >= y.rank() || x.rank() != y.rank())
    return Status::Error(Code::kShapeMismatch,
                         "{} and {} must have the same dims, axis {} among them", Shape(x),
                         Shape(y), axis);
  for (size_t d = 0; d < y.dims.size(); ++d) {
    if (static_cast<int64_t>(d) == axis || y.dims[d] == 1 || y.dims[d] == x.dims[d]) continue;
    return Status::Error(Code::kShapeMismatch, "dim {} of {}: elements of {} are added to it", d,
                         Shape(y), Shape(x));
  }
  return {};
}

}  // namespace

Status VerifyScatterAdd(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (InputOf(graph, node, i) == nullptr)
      return Status::Error(Code::kBadParam, "operand {} is absent", i);
  if (node.inputs.size() % 2 != kFirstPair)
    return Status::Error(Code::kBadParam, "{} operands: there is no index beside the last",
                         node.inputs.size());
  RETURN_IF_ERROR(VerifyTypes(graph, node));
  const Tensor &before = *InputOf(graph, node, 0), &first = *InputOf(graph, node, kFirstPair),
               &y = *OutputOf(graph, node, 0);
  RETURN_IF_ERROR(VerifyTarget(first, y, node.As<ScatterAddAttrs>().axis));
  if (!BroadcastsTo(before.dims, y.dims))
    return Status::Error(Code::kShapeMismatch, "{} does not broadcast to {}", Shape(before),
                         Shape(y));
  for (size_t i = kFirstPair; i < node.inputs.size(); i += 2) {
    const Tensor &x = *InputOf(graph, node, i), &index = *InputOf(graph, node, i + 1);
    if (x.dims != first.dims)
      return Status::Error(Code::kShapeMismatch, "{} and {} must have the same dims", Shape(first),
                           Shape(x));
    if (!BroadcastsTo(index.dims, x.dims))
      return Status::Error(Code::kShapeMismatch, "the index {} does not broadcast to {}",
                           Shape(index), Shape(x));
  }
  return {};
}

Status InferScatterAdd(Graph&, const Node&) { return {}; }  // how long the axis is, nobody says

void EvalScatterAdd(const EvalArgs& args) {
  const Dims& y = OutputOf(args.graph, args.node, 0)->dims;
  const Dims& x = InputOf(args.graph, args.node, kFirstPair)->dims;
  std::vector<double>& sums = *args.outputs[0];
  size_t place = 0;
  ForEachRow<1>(
      y, {BroadcastSteps(InputOf(args.graph, args.node, 0)->dims, y)},
      [&](const std::array<int64_t, 1>& at, int64_t count, const std::array<int64_t, 1>& step) {
        for (int64_t i = 0; i < count; ++i)
          sums[place++] = (*args.inputs[0])[static_cast<size_t>(at[0] + i * step[0])];
      });
  const auto axis = static_cast<size_t>(args.node.As<ScatterAddAttrs>().axis);
  const int64_t stride = PackedStrides(y)[axis];
  Dims y_step = BroadcastSteps(y, x);
  y_step[axis] = 0;
  for (size_t k = kFirstPair; k < args.node.inputs.size(); k += 2) {
    const std::vector<double>&values = *args.inputs[k], &indices = *args.inputs[k + 1];
    size_t from = 0;
    ForEachRow<2>(
        x, {y_step, BroadcastSteps(InputOf(args.graph, args.node, k + 1)->dims, x)},
        [&](const std::array<int64_t, 2>& at, int64_t count, const std::array<int64_t, 2>& step) {
          for (int64_t i = 0; i < count; ++i, ++from) {
            const double index = indices[static_cast<size_t>(at[1] + i * step[1])];
            if (index < 0 || index >= static_cast<double>(y[axis])) continue;
            const int64_t to = at[0] + i * step[0] + static_cast<int64_t>(index) * stride;
            sums[static_cast<size_t>(to)] += values[from];
          }
        });
  }
}

}  // namespace kiln::graph
