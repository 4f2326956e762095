#include "api/backend/pointwise.h"

#include <cfloat>

namespace kiln::api {
namespace {

constexpr AttrRow kPointwiseRows[] = {
    Attr<&PointwiseDesc::mode>(CUDNN_ATTR_POINTWISE_MODE),
    Attr<&PointwiseDesc::math_type>(CUDNN_ATTR_POINTWISE_MATH_PREC),
    Attr<&PointwiseDesc::nan_propagation>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, Use::kOptional),
    Attr<&PointwiseDesc::relu_lower>(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, Use::kOptional),
    Attr<&PointwiseDesc::relu_upper>(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, Use::kOptional),
    Attr<&PointwiseDesc::relu_slope>(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, Use::kOptional),
    Attr<&PointwiseDesc::elu_alpha>(CUDNN_ATTR_POINTWISE_ELU_ALPHA, Use::kOptional),
    Attr<&PointwiseDesc::softplus_beta>(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, Use::kOptional),
    Attr<&PointwiseDesc::swish_beta>(CUDNN_ATTR_POINTWISE_SWISH_BETA, Use::kOptional),
    Attr<&PointwiseDesc::axis>(CUDNN_ATTR_POINTWISE_AXIS, Use::kOptional),
};

constexpr AttrRow kOperationRows[] = {
    Attr<&OperationPointwiseDesc::pointwise>(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
    Attr<&OperationPointwiseDesc::x>(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
    Attr<&OperationPointwiseDesc::b>(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, Use::kOptional),
    Attr<&OperationPointwiseDesc::t>(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, Use::kOptional),
    Attr<&OperationPointwiseDesc::y>(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, Use::kOptional),
    Attr<&OperationPointwiseDesc::dx>(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, Use::kOptional),
    Attr<&OperationPointwiseDesc::dy>(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, Use::kOptional),
    Attr<&OperationPointwiseDesc::alpha1>(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, Use::kOptional),
    Attr<&OperationPointwiseDesc::alpha2>(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, Use::kOptional),
};

graph::PointwiseModeInfo InfoOf(cudnnPointwiseMode_t mode) {
  return graph::Info(*graph::PointwiseModeFromCudnn(mode));
}

struct NamedOperand {
  const char* name;
  const Ref<TensorDesc>& tensor;
};

Status WantOperand(cudnnPointwiseMode_t mode, NamedOperand operand) {
  if (operand.tensor != nullptr) return {};
  return Status::Error(Code::kBadParam, "{} needs {}", NameOf(mode), operand.name);
}

// Operands broadcast to the output: one rank, and each extent is the output's or 1. A virtual
// operand may have more where the output has 1: the graph knows whether a reduction's result is
// meant to have 1, too (graph::NarrowReductions).
Status CheckBroadcast(cudnnPointwiseMode_t mode, NamedOperand operand, const TensorDesc& out) {
  if (operand.tensor == nullptr) return {};
  const TensorDesc& in = *operand.tensor;
  if (in.dims.size() != out.dims.size()) {
    return Status::Error(Code::kBadParam, "{}: {} is {}, of {} dimensions; the output {} has {}",
                         NameOf(mode), operand.name, in.Text(), in.dims.size(), out.Text(),
                         out.dims.size());
  }
  const Dims in_dims = in.PlainDims(), out_dims = out.PlainDims();
  for (size_t i = 0; i < out_dims.size(); ++i) {
    if (in_dims[i] == out_dims[i] || in_dims[i] == 1) continue;
    if (out_dims[i] == 1 && in.is_virtual) continue;
    return Status::Error(Code::kBadParam,
                         "{}: {} is {}, whose dimension {} does not broadcast to the output {}",
                         NameOf(mode), operand.name, in.Text(), i, out.Text());
  }
  return {};
}

}  // namespace

std::span<const AttrRow> PointwiseDesc::Rows() { return kPointwiseRows; }
std::span<const AttrRow> OperationPointwiseDesc::Rows() { return kOperationRows; }

Status PointwiseDesc::Finalize() {
  if (relu_lower.value > relu_upper.value) {
    return Status::Error(Code::kBadParam, "{}: the lower clip {} is above the upper clip {}",
                         NameOf(mode), relu_lower.value, relu_upper.value);
  }
  if (mode == CUDNN_POINTWISE_GEN_INDEX && (axis < 0 || axis >= CUDNN_DIM_MAX)) {
    return Status::Error(Code::kBadParam, "{}: axis {} is no dimension", NameOf(mode), axis);
  }
  return {};
}

Status OperationPointwiseDesc::Finalize() {
  cudnnPointwiseMode_t mode = pointwise->mode;
  graph::PointwiseModeInfo info = InfoOf(mode);
  if (info.is_backward) {
    RETURN_IF_ERROR(WantOperand(mode, {"dx", dx}));
    RETURN_IF_ERROR(WantOperand(mode, {"dy", dy}));
    RETURN_IF_ERROR(CheckBroadcast(mode, {"dy", dy}, *dx));
    return CheckBroadcast(mode, {"x", x}, *dx);
  }
  RETURN_IF_ERROR(WantOperand(mode, {"y", y}));
  if (info.inputs >= 2) RETURN_IF_ERROR(WantOperand(mode, {"b", b}));
  if (info.inputs >= 3) RETURN_IF_ERROR(WantOperand(mode, {"t", t}));
  RETURN_IF_ERROR(CheckBroadcast(mode, {"x", x}, *y));
  if (info.inputs >= 2) RETURN_IF_ERROR(CheckBroadcast(mode, {"b", b}, *y));
  if (info.inputs >= 3) RETURN_IF_ERROR(CheckBroadcast(mode, {"t", t}, *y));
  if (mode == CUDNN_POINTWISE_GEN_INDEX &&
      pointwise->axis >= static_cast<int64_t>(y->dims.size())) {
    return Status::Error(Code::kBadParam, "{}: axis {} is no dimension of {}", NameOf(mode),
                         pointwise->axis, y->Text());
  }
  return {};
}

Status OperationPointwiseDesc::Import(GraphImport& import) const {
  const PointwiseDesc& p = *pointwise;
  graph::PointwiseAttrs attrs{.mode = *graph::PointwiseModeFromCudnn(p.mode),
                              .alpha1 = alpha1.value,
                              .alpha2 = alpha2.value,
                              .relu_lower = p.relu_lower.value,
                              // Frontends write "no clip" as the largest float.
                              .relu_upper = p.relu_upper.value >= FLT_MAX
                                                ? std::numeric_limits<double>::infinity()
                                                : p.relu_upper.value,
                              .relu_slope = p.relu_slope.value,
                              .elu_alpha = p.elu_alpha.value,
                              .softplus_beta = p.softplus_beta.value,
                              .swish_beta = p.swish_beta.value,
                              .propagate_nan = p.nan_propagation == CUDNN_PROPAGATE_NAN,
                              .axis = p.axis};
  graph::PointwiseModeInfo info = InfoOf(p.mode);
  std::vector<GraphImport::Operand> inputs = {x.get(), b.get(), t.get()};
  if (info.is_backward)
    inputs = {dy.get(), x.get()};
  else
    inputs.resize(static_cast<size_t>(info.inputs));  // a client's surplus operand is not read
  const TensorDesc* output = info.is_backward ? dx.get() : y.get();
  return import.Add(graph::GraphOp::kPointwise, std::move(inputs), {output}, p.math_type, attrs);
}

}  // namespace kiln::api
