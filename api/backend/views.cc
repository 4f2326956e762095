#include "api/backend/views.h"

#include "ir/graph/attention_parts.h"
#include "ir/shape.h"

namespace kiln::api {
namespace {

constexpr int64_t kMostInputs = 64;  // of the graph's concat

constexpr AttrRow kReshapeRows[] = {
    Attr<&ReshapeDesc::x>(CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
    Attr<&ReshapeDesc::y>(CUDNN_ATTR_OPERATION_RESHAPE_YDESC),
    Attr<&ReshapeDesc::mode>(CUDNN_ATTR_OPERATION_RESHAPE_MODE, Use::kOptional),
};

constexpr AttrRow kTransposeRows[] = {
    Attr<&TransposeDesc::x>(CUDNN_ATTR_OPERATION_TRANSPOSE_XDESC),
    Attr<&TransposeDesc::y>(CUDNN_ATTR_OPERATION_TRANSPOSE_YDESC),
    Attr<&TransposeDesc::permutation>(CUDNN_ATTR_OPERATION_TRANSPOSE_PERMUTATION, Use::kRequired,
                                      CUDNN_DIM_MAX),
};

constexpr AttrRow kSliceRows[] = {
    Attr<&SliceDesc::x>(CUDNN_ATTR_OPERATION_SLICE_XDESC),
    Attr<&SliceDesc::y>(CUDNN_ATTR_OPERATION_SLICE_YDESC),
    Attr<&SliceDesc::starts>(CUDNN_ATTR_OPERATION_SLICE_START_INDICES, Use::kRequired,
                             CUDNN_DIM_MAX),
    Attr<&SliceDesc::limits>(CUDNN_ATTR_OPERATION_SLICE_LIMIT_INDICES, Use::kRequired,
                             CUDNN_DIM_MAX),
    Attr<&SliceDesc::strides>(CUDNN_ATTR_OPERATION_SLICE_STRIDES, Use::kRequired, CUDNN_DIM_MAX),
};

constexpr AttrRow kConcatRows[] = {
    Attr<&ConcatDesc::axis>(CUDNN_ATTR_OPERATION_CONCAT_AXIS),
    Attr<&ConcatDesc::inputs>(CUDNN_ATTR_OPERATION_CONCAT_INPUT_DESCS, Use::kRequired, kMostInputs),
    Attr<&ConcatDesc::inplace_index>(CUDNN_ATTR_OPERATION_CONCAT_INPLACE_INDEX, Use::kOptional),
    Attr<&ConcatDesc::output>(CUDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC),
};

Status WantSameType(const TensorDesc& x, const TensorDesc& y) {
  if (x.data_type == y.data_type) return {};
  return Status::Error(Code::kBadParam, "x, {}, is {}, and y, {}, is {}", x.Text(),
                       NameOf(x.data_type), y.Text(), NameOf(y.data_type));
}

Status WantCount(const char* name, size_t count, const TensorDesc& x) {
  if (count == x.dims.size()) return {};
  return Status::Error(Code::kBadParam, "{} {} for the {} dimensions of {}", count, name,
                       x.dims.size(), x.Text());
}

}  // namespace

std::span<const AttrRow> ReshapeDesc::Rows() { return kReshapeRows; }
std::span<const AttrRow> TransposeDesc::Rows() { return kTransposeRows; }
std::span<const AttrRow> SliceDesc::Rows() { return kSliceRows; }
std::span<const AttrRow> ConcatDesc::Rows() { return kConcatRows; }

Status ReshapeDesc::Finalize() {
  if (mode == CUDNN_RESHAPE_LOGICAL) RETURN_IF_ERROR(WantSameType(*x, *y));
  if (NumElements(x->dims) == NumElements(y->dims)) return {};
  return Status::Error(Code::kBadParam, "x {} has {} elements, y {} has {}", x->Text(),
                       NumElements(x->dims), y->Text(), NumElements(y->dims));
}

Status ReshapeDesc::Import(GraphImport& import) const {
  if (mode == CUDNN_RESHAPE_LOGICAL) {
    ASSIGN_OR_RETURN(const graph::TensorId from, import.Read(*x, {y.get()}));
    ASSIGN_OR_RETURN(const graph::TensorId to, import.Write(*y));
    graph::SpellLogicalReshape(import.graph(), from, to);
    return {};
  }
  return import.Add(graph::GraphOp::kReshape, {x.get()}, {y.get()}, MovingType(y->data_type),
                    graph::ReshapeAttrs{});
}

Status TransposeDesc::Finalize() {
  RETURN_IF_ERROR(WantSameType(*x, *y));
  RETURN_IF_ERROR(WantCount("places of a permutation", permutation.size(), *x));
  if (y->dims.size() != x->dims.size())
    return Status::Error(Code::kBadParam, "x {} and y {} differ in rank", x->Text(), y->Text());
  uint64_t seen = 0;
  for (size_t d = 0; d < permutation.size(); ++d) {
    const int64_t from = permutation[d];
    if (from < 0 || from >= static_cast<int64_t>(x->dims.size()) || (seen >> from & 1) != 0)
      return Status::Error(Code::kBadParam, "place {} of the permutation is {}", d, from);
    seen |= uint64_t{1} << from;
    if (y->dims[d] == x->dims[static_cast<size_t>(from)]) continue;
    return Status::Error(Code::kBadParam, "dimension {} of y {} is not dimension {} of x {}", d,
                         y->Text(), from, x->Text());
  }
  return {};
}

Status TransposeDesc::Import(GraphImport& import) const {
  return import.Add(
      graph::GraphOp::kTranspose, {x.get()}, {y.get()}, MovingType(y->data_type),
      graph::TransposeAttrs{.permutation = Dims(permutation.begin(), permutation.end())});
}

Status SliceDesc::Finalize() {
  RETURN_IF_ERROR(WantSameType(*x, *y));
  RETURN_IF_ERROR(WantCount("start indices", starts.size(), *x));
  RETURN_IF_ERROR(WantCount("limits", limits.size(), *x));
  RETURN_IF_ERROR(WantCount("strides", strides.size(), *x));
  if (y->dims.size() != x->dims.size())
    return Status::Error(Code::kBadParam, "x {} and y {} differ in rank", x->Text(), y->Text());
  for (size_t d = 0; d < x->dims.size(); ++d) {
    const int64_t start = starts[d], limit = limits[d], step = strides[d];
    if (start < 0 || limit <= start || limit > x->dims[d] || step < 1) {
      return Status::Error(Code::kBadParam,
                           "dimension {}: places {} to {} in steps of {} are none of {}", d, start,
                           limit, step, x->Text());
    }
    const int64_t count = (limit - start - 1) / step + 1;
    if (y->dims[d] == count) continue;
    return Status::Error(Code::kBadParam, "dimension {}: the slice of {} has {} places, y {} {}", d,
                         x->Text(), count, y->Text(), y->dims[d]);
  }
  return {};
}

Status SliceDesc::Import(GraphImport& import) const {
  graph::SliceAttrs attrs{.start = Dims(starts.begin(), starts.end()),
                          .step = Dims(strides.begin(), strides.end())};
  return import.Add(graph::GraphOp::kSlice, {x.get()}, {y.get()}, MovingType(y->data_type),
                    std::move(attrs));
}

Status ConcatDesc::Finalize() {
  auto rank = static_cast<int64_t>(output->dims.size());
  if (inputs.empty()) return Status::Text(Code::kBadParam, "nothing to concatenate");
  if (axis < 0 || axis >= rank) {
    return Status::Error(Code::kBadParam, "axis {} is no dimension of the output {}", axis,
                         output->Text());
  }
  if (inplace_index < -1 || inplace_index >= static_cast<int64_t>(inputs.size())) {
    return Status::Error(Code::kBadParam, "in-place index {} names none of {} inputs",
                         inplace_index, inputs.size());
  }
  int64_t sum = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorDesc& in = *inputs[i];
    bool fits = in.dims.size() == output->dims.size();
    for (int64_t d = 0; fits && d < rank; ++d) {
      auto at = static_cast<size_t>(d);
      fits = d == axis || in.dims[at] == output->dims[at];
    }
    if (!fits) {
      return Status::Error(Code::kBadParam,
                           "input {}, {}, differs from the output {} elsewhere than on axis {}", i,
                           in.Text(), output->Text(), axis);
    }
    sum += in.dims[static_cast<size_t>(axis)];
  }
  if (sum == output->dims[static_cast<size_t>(axis)]) return {};
  return Status::Error(Code::kBadParam, "the inputs have {} along axis {}, the output {} has {}",
                       sum, axis, output->Text(), output->dims[static_cast<size_t>(axis)]);
}

Status ConcatDesc::Import(GraphImport& import) const {
  std::vector<GraphImport::Operand> operands;
  for (const Ref<TensorDesc>& in : inputs) operands.push_back(in.get());
  return import.Add(graph::GraphOp::kConcat, std::move(operands), {output.get()},
                    MovingType(output->data_type), graph::ConcatAttrs{.axis = axis});
}

}  // namespace kiln::api
