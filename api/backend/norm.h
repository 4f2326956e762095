// Normalisation: CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR and _BACKWARD_DESCRIPTOR, and
// CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR. NVIDIA's 9.19 requires no attribute as such:
// finalising checks how those that are set go together (tests/api/backend/nvidia_parity_test.cc),
// and what else a norm needs is told when the operation graph is finalised.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct NormForwardDesc : OperationOf<CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR> {
  cudnnBackendNormMode_t mode = CUDNN_LAYER_NORM;
  cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_INFERENCE;
  Ref<TensorDesc> x, mean, inv_variance, scale, bias, epsilon, exp_average_factor;
  Ref<TensorDesc> running_mean, running_var, next_mean, next_var, y;
  std::vector<Ref<TensorDesc>> peers;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

struct NormBackwardDesc : OperationOf<CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR> {
  cudnnBackendNormMode_t mode = CUDNN_LAYER_NORM;
  Ref<TensorDesc> x, mean, inv_variance, dy, scale, epsilon, dscale, dbias, dx;
  std::vector<Ref<TensorDesc>> peers;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

struct BnBwdWeightsDesc : OperationOf<CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR> {
  cudnnDataType_t math_type = CUDNN_DATA_FLOAT;
  Ref<TensorDesc> mean, inv_std, scale, x, dy, dscale, dbias, eq_dy_scale, eq_x_scale, eq_bias;

  static std::span<const AttrRow> Rows();
  Status Finalize() override { return {}; }
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
