// Ragged tensors: the batches of a rectangular tensor stand one behind the other in memory, each as
// long as it is. Loads and stores of them, and the scattering store that they come down to.
#include "ir/graph/loops.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

bool IsIndex(DType type) { return type == DType::kI32 || type == DType::kI64; }

// [n,1,…]
bool IsFlat(const Tensor& t, int64_t rank) {
  if (t.rank() != rank || rank < 1) return false;
  for (size_t d = 1; d < t.dims.size(); ++d)
    if (t.dims[d] != 1) return false;
  return true;
}

Status ExpectFlat(const Tensor& t, int64_t rank, const char* what) {
  if (IsFlat(t, rank)) return {};
  return Status::Error(Code::kShapeMismatch, "{} {} must have {} dims, all but the first of 1",
                       what, Shape(t), rank);
}

Status ExpectOperands(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (InputOf(graph, node, i) == nullptr)
      return Status::Error(Code::kBadParam, "operand {} is absent", i);
  return CheckCompute(node, true);
}

// Checks that the result writes the memory of operand `i` in place, so that places that are not
// written keep what it held.
Status ExpectInPlace(const Graph& graph, const Node& node, size_t i) {
  const Tensor &before = *InputOf(graph, node, i), &y = *OutputOf(graph, node, 0);
  if (IsPacked(y.dtype)) {
    return Status::Error(Code::kUnsupportedDataType,
                         "{} writes %{} in part, which is {}: of elements that are {} in a byte "
                         "none can be written without the others",
                         Info(node.op).mnemonic, y.name, Info(y.dtype).text, PerByte(y.dtype));
  }
  const bool same = !y.is_virtual && before.uid == y.uid && before.dtype == y.dtype &&
                    before.dims == y.dims && before.strides == y.strides;
  if (same) return {};
  return Status::Error(Code::kBadParam, "{} writes %{} in part: %{} must be the same memory",
                       Info(node.op).mnemonic, y.name, before.name);
}

// `flat`: what is in memory; `t`: its batches side by side.
Status VerifyRagged(const Graph& graph, const Node& node, const Tensor& flat, const Tensor& t) {
  const Tensor& offsets = *InputOf(graph, node, 1);
  const Dims& strides = node.As<RaggedAttrs>().strides;
  if (!IsIndex(offsets.dtype))
    return Status::Error(Code::kUnsupportedDataType, "offsets %{} are {}, not i32 or i64",
                         offsets.name, Info(offsets.dtype).text);
  if (strides.size() != t.dims.size() || t.dims.empty())
    return Status::Error(Code::kShapeMismatch, "{} strides for {}", strides.size(), Shape(t));
  RETURN_IF_ERROR(ExpectFlat(flat, t.rank(), "ragged memory"));
  RETURN_IF_ERROR(ExpectFlat(offsets, t.rank(), "offsets"));
  if (offsets.dims[0] == t.dims[0] + 1) return {};
  return Status::Error(Code::kShapeMismatch, "{} offsets for {} batches, not one more",
                       offsets.dims[0], t.dims[0]);
}

// Calls visit(row-major index of the batches side by side, place in memory) where there is a place.
template <class F>
void ForEachPlace(const EvalArgs& args, const Dims& dims, int64_t extent, F&& visit) {
  Dims strides = args.node.As<RaggedAttrs>().strides;
  strides[0] = 0;
  const std::vector<double>& offsets = *args.inputs[1];
  const int64_t each = dims[0] == 0 ? 0 : NumElements(dims) / dims[0];
  Dims batch = dims;
  batch[0] = 1;
  for (int64_t b = 0; b < dims[0]; ++b) {
    const auto first = static_cast<int64_t>(offsets[static_cast<size_t>(b)]),
               end = static_cast<int64_t>(offsets[static_cast<size_t>(b) + 1]);
    int64_t i = b * each;
    ForEachRow<1>(
        batch, {strides},
        [&](const std::array<int64_t, 1>& at, int64_t count, const std::array<int64_t, 1>& step) {
          for (int64_t k = 0; k < count; ++k, ++i) {
            const int64_t place = first + at[0] + k * step[0];
            if (place >= 0 && place < end && place < extent) visit(i, place);
          }
        });
  }
}

}  // namespace

Status VerifyRaggedLoad(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(ExpectOperands(graph, node));
  return VerifyRagged(graph, node, *InputOf(graph, node, 0), *OutputOf(graph, node, 0));
}

Status InferRaggedLoad(Graph&, const Node&) { return {}; }  // the longest batch is not known

void EvalRaggedLoad(const EvalArgs& args) {
  const Tensor &flat = *InputOf(args.graph, args.node, 0), &y = *OutputOf(args.graph, args.node, 0);
  for (double& v : *args.outputs[0]) v = 0;
  ForEachPlace(args, y.dims, flat.dims[0], [&](int64_t i, int64_t place) {
    (*args.outputs[0])[static_cast<size_t>(i)] = (*args.inputs[0])[static_cast<size_t>(place)];
  });
}

Status VerifyRaggedStore(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(ExpectOperands(graph, node));
  RETURN_IF_ERROR(VerifyRagged(graph, node, *OutputOf(graph, node, 0), *InputOf(graph, node, 0)));
  return ExpectInPlace(graph, node, 2);
}

Status InferRaggedStore(Graph& graph, const Node& node) {
  const Tensor* before = InputOf(graph, node, 2);
  if (before != nullptr) SetDims(graph[node.outputs[0]], Dims(before->dims), nullptr);
  return {};
}

void EvalRaggedStore(const EvalArgs& args) {
  const Tensor &x = *InputOf(args.graph, args.node, 0), &y = *OutputOf(args.graph, args.node, 0);
  *args.outputs[0] = *args.inputs[2];
  ForEachPlace(args, x.dims, y.dims[0], [&](int64_t i, int64_t place) {
    (*args.outputs[0])[static_cast<size_t>(place)] = (*args.inputs[0])[static_cast<size_t>(i)];
  });
}

Status VerifyScatter(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(ExpectOperands(graph, node));
  const Tensor &x = *InputOf(graph, node, 0), &index = *InputOf(graph, node, 1),
               &y = *OutputOf(graph, node, 0);
  if (!IsIndex(index.dtype))
    return Status::Error(Code::kUnsupportedDataType, "the index %{} is {}, not i32 or i64",
                         index.name, Info(index.dtype).text);
  RETURN_IF_ERROR(ExpectFlat(y, x.rank(), "scattered memory"));
  if (index.dims != x.dims)
    return Status::Error(Code::kShapeMismatch, "the index {} has not the dims of {}", Shape(index),
                         Shape(x));
  return ExpectInPlace(graph, node, 2);
}

Status InferScatter(Graph& graph, const Node& node) { return InferRaggedStore(graph, node); }

void EvalScatter(const EvalArgs& args) {
  const auto extent = static_cast<double>(OutputOf(args.graph, args.node, 0)->dims[0]);
  *args.outputs[0] = *args.inputs[2];
  for (size_t i = 0; i < args.inputs[0]->size(); ++i) {
    const double place = (*args.inputs[1])[i];
    if (place >= 0 && place < extent)
      (*args.outputs[0])[static_cast<size_t>(place)] = (*args.inputs[0])[i];
  }
}

}  // namespace kiln::graph
