// cudnnNormalization…: batch normalization under other names, with descriptors of their own for
// the statistics. Reference 3.2.66, 4.1.11 to 4.1.13, 4.1.15 and 4.1.16.
#include "api/legacy/calls/batch_norm.h"
#include "api/legacy/descriptors/tensor.h"
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

static_assert(int{CUDNN_NORM_PER_ACTIVATION} == int{CUDNN_BATCHNORM_PER_ACTIVATION} &&
              int{CUDNN_NORM_PER_CHANNEL} == int{CUDNN_BATCHNORM_SPATIAL});
static_assert(int{CUDNN_NORM_OPS_NORM} == int{CUDNN_BATCHNORM_OPS_BN} &&
              int{CUDNN_NORM_OPS_NORM_ADD_ACTIVATION} ==
                  int{CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION});

Status CheckModes(int mode, int ops, int algorithm, int groups) {
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_NORM_PER_CHANNEL, "cudnnNormMode_t"));
  RETURN_IF_ERROR(CheckEnum(ops, CUDNN_NORM_OPS_NORM_ADD_ACTIVATION, "cudnnNormOps_t"));
  RETURN_IF_ERROR(CheckEnum(algorithm, CUDNN_NORM_ALGO_PERSIST, "cudnnNormAlgo_t"));
  if (groups == 1) return {};
  return Status::Error(Code::kNotSupported, "groupCnt is {}; cuDNN knows 1 alone", groups);
}

// Scale and bias are as the statistics are.
Status CheckStatistics(void* scale_bias, void* mean_variance) {
  ASSIGN_OR_RETURN(const TensorDesc* scale, Get<TensorDesc>(scale_bias));
  ASSIGN_OR_RETURN(const TensorDesc* mean, Get<TensorDesc>(mean_variance));
  const bool same = scale->rank == mean->rank && scale->dims == mean->dims &&
                    scale->strides == mean->strides && scale->type == mean->type;
  if (same) return {};
  return Status::Error(Code::kBadParam, "scale and bias are {}, mean and variance {}", Text(*scale),
                       Text(*mean));
}

}  // namespace

Status NormalizationForwardInference(void* handle, int mode, int ops, int algorithm,
                                     const void* alpha, const void* beta, void* x_desc,
                                     const void* x, void* scale_bias_desc, const void* scale,
                                     const void* bias, void* mean_variance_desc, const void* mean,
                                     const void* variance, void* z_desc, const void* z,
                                     void* activation_desc, void* y_desc, void* y, double epsilon,
                                     int groups) {
  RETURN_IF_ERROR(CheckModes(mode, ops, algorithm, groups));
  RETURN_IF_ERROR(CheckStatistics(scale_bias_desc, mean_variance_desc));
  return RunInference(handle, {.function = "cudnnNormalizationForwardInference",
                               .mode = mode,
                               .ops = ops,
                               .alpha = alpha,
                               .beta = beta,
                               .x_desc = x_desc,
                               .x = x,
                               .z_desc = z_desc,
                               .z = z,
                               .y_desc = y_desc,
                               .y = y,
                               .parameter_desc = scale_bias_desc,
                               .scale = scale,
                               .bias = bias,
                               .mean = mean,
                               .variance = variance,
                               .activation_desc = activation_desc,
                               .epsilon = epsilon});
}

Status GetNormalizationForwardTrainingWorkspaceSize(void* handle, int mode, int ops, int algorithm,
                                                    void* x_desc, void* z_desc, void* y_desc,
                                                    void* scale_bias_desc, void* activation_desc,
                                                    void* mean_variance_desc, size_t* bytes,
                                                    int groups) {
  RETURN_IF_ERROR(CheckModes(mode, ops, algorithm, groups));
  RETURN_IF_ERROR(CheckStatistics(scale_bias_desc, mean_variance_desc));
  return GetBatchNormalizationForwardTrainingExWorkspaceSize(
      handle, mode, ops, x_desc, z_desc, y_desc, scale_bias_desc, activation_desc, bytes);
}

Status NormalizationForwardTraining(void* handle, int mode, int ops, int algorithm,
                                    const void* alpha, const void* beta, void* x_desc,
                                    const void* x, void* scale_bias_desc, const void* scale,
                                    const void* bias, double factor, void* mean_variance_desc,
                                    void* running_mean, void* running_variance, double epsilon,
                                    void* mean, void* inv_variance, void* activation_desc,
                                    void* z_desc, const void* z, void* y_desc, void* y,
                                    void* workspace, size_t workspace_bytes, void* reserve,
                                    size_t reserve_bytes, int groups) {
  RETURN_IF_ERROR(CheckModes(mode, ops, algorithm, groups));
  RETURN_IF_ERROR(CheckStatistics(scale_bias_desc, mean_variance_desc));
  return BatchNormalizationForwardTrainingEx(
      handle, mode, ops, alpha, beta, x_desc, x, z_desc, z, y_desc, y, scale_bias_desc, scale, bias,
      factor, running_mean, running_variance, epsilon, mean, inv_variance, activation_desc,
      workspace, workspace_bytes, reserve, reserve_bytes);
}

Status GetNormalizationBackwardWorkspaceSize(void* handle, int mode, int ops, int algorithm,
                                             void* x_desc, void* y_desc, void* dy_desc,
                                             void* dz_desc, void* dx_desc, void* scale_bias_desc,
                                             void* activation_desc, void* mean_variance_desc,
                                             size_t* bytes, int groups) {
  RETURN_IF_ERROR(CheckModes(mode, ops, algorithm, groups));
  RETURN_IF_ERROR(CheckStatistics(scale_bias_desc, mean_variance_desc));
  return GetBatchNormalizationBackwardExWorkspaceSize(handle, mode, ops, x_desc, y_desc, dy_desc,
                                                      dz_desc, dx_desc, scale_bias_desc,
                                                      activation_desc, bytes);
}

Status NormalizationBackward(void* handle, int mode, int ops, int algorithm, const void* alpha_data,
                             const void* beta_data, const void* alpha_parameters,
                             const void* beta_parameters, void* x_desc, const void* x, void* y_desc,
                             const void* y, void* dy_desc, const void* dy, void* dz_desc, void* dz,
                             void* dx_desc, void* dx, void* scale_bias_desc, const void* scale,
                             const void* bias, void* dscale, void* dbias, double epsilon,
                             void* mean_variance_desc, const void* mean, const void* inv_variance,
                             void* activation_desc, void* workspace, size_t workspace_bytes,
                             void* reserve, size_t reserve_bytes, int groups) {
  RETURN_IF_ERROR(CheckModes(mode, ops, algorithm, groups));
  RETURN_IF_ERROR(CheckStatistics(scale_bias_desc, mean_variance_desc));
  return BatchNormalizationBackwardEx(handle, mode, ops, alpha_data, beta_data, alpha_parameters,
                                      beta_parameters, x_desc, x, y_desc, y, dy_desc, dy, dz_desc,
                                      dz, dx_desc, dx, scale_bias_desc, scale, bias, dscale, dbias,
                                      epsilon, mean, inv_variance, activation_desc, workspace,
                                      workspace_bytes, reserve, reserve_bytes);
}

Status GetNormalizationTrainingReserveSpaceSize(void* handle, int mode, int ops, int algorithm,
                                                void* activation_desc, void* x_desc, size_t* bytes,
                                                int groups) {
  RETURN_IF_ERROR(CheckModes(mode, ops, algorithm, groups));
  return GetBatchNormalizationTrainingExReserveSpaceSize(handle, mode, ops, activation_desc, x_desc,
                                                         bytes);
}

}  // namespace kiln::api::legacy
