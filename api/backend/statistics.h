// Statistics of batch normalisation: CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR
// (reference 9.2.13) and CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct GenStatsDesc : OperationOf<CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR> {
  cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
  cudnnDataType_t math_type = CUDNN_DATA_FLOAT;
  Ref<TensorDesc> x, sum, square_sum;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

struct BnFinalizeDesc : OperationOf<CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR> {
  cudnnBnFinalizeStatsMode_t mode = CUDNN_BN_FINALIZE_STATISTICS_TRAINING;
  cudnnDataType_t math_type = CUDNN_DATA_FLOAT;
  Ref<TensorDesc> sum, square_sum, scale, bias, previous_mean, previous_var;
  Ref<TensorDesc> accumulation_count, epsilon, exp_average_factor;
  Ref<TensorDesc> updated_mean, updated_var, saved_mean, saved_inv_std, eq_scale, eq_bias;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
