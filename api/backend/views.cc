#include "api/backend/views.h"

#include "ir/shape.h"

namespace kiln::api {
namespace {

constexpr int64_t kMostInputs = 64;  // of the graph's concat

constexpr AttrRow kReshapeRows[] = {
    Attr<&ReshapeDesc::x>(CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
    Attr<&ReshapeDesc::y>(CUDNN_ATTR_OPERATION_RESHAPE_YDESC),
};

constexpr AttrRow kConcatRows[] = {
    Attr<&ConcatDesc::axis>(CUDNN_ATTR_OPERATION_CONCAT_AXIS),
    Attr<&ConcatDesc::inputs>(CUDNN_ATTR_OPERATION_CONCAT_INPUT_DESCS, Use::kRequired, kMostInputs),
    Attr<&ConcatDesc::inplace_index>(CUDNN_ATTR_OPERATION_CONCAT_INPLACE_INDEX, Use::kOptional),
    Attr<&ConcatDesc::output>(CUDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC),
};

}  // namespace

std::span<const AttrRow> ReshapeDesc::Rows() { return kReshapeRows; }
std::span<const AttrRow> ConcatDesc::Rows() { return kConcatRows; }

Status ReshapeDesc::Finalize() {
  if (NumElements(x->dims) == NumElements(y->dims)) return {};
  return Status::Error(Code::kBadParam, "x {} has {} elements, y {} has {}", x->Text(),
                       NumElements(x->dims), y->Text(), NumElements(y->dims));
}

Status ReshapeDesc::Import(GraphImport& import) const {
  return import.Add(graph::GraphOp::kReshape, {x.get()}, {y.get()}, MovingType(y->data_type),
                    graph::ReshapeAttrs{});
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
