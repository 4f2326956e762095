// CUDNN_BACKEND_POINTWISE_DESCRIPTOR and its operation. Reference 9.2.14; attributes of 9.19.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct PointwiseDesc : DescriptorOf<CUDNN_BACKEND_POINTWISE_DESCRIPTOR> {
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  cudnnDataType_t math_type = CUDNN_DATA_FLOAT;
  cudnnNanPropagation_t nan_propagation = CUDNN_NOT_PROPAGATE_NAN;
  FloatOrDouble relu_lower{0}, relu_upper{std::numeric_limits<double>::max()}, relu_slope{0};
  FloatOrDouble elu_alpha{1}, softplus_beta{1}, swish_beta{1};
  int64_t axis = -1;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
};

// Forward modes compute y from x, b and t; backward modes compute dx from dy and x.
struct OperationPointwiseDesc : OperationOf<CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR> {
  Ref<PointwiseDesc> pointwise;
  Ref<TensorDesc> x, b, t, y, dx, dy;
  FloatOrDouble alpha1{1}, alpha2{1};

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
