// CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR, attributes of 9.19, and …_BWD_DESCRIPTOR
// of 9.22, the gradient of the weights. What they compute is in ir/graph/ops_moe.cc and
// ir/graph/moe_backward.h.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct MoeGroupedMatmulDesc : OperationOf<CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR> {
  cudnnMoeGroupedMatmulMode_t mode = CUDNN_MOE_GROUPED_MATMUL_MODE_NONE;
  cudnnDataType_t math_type = CUDNN_DATA_FLOAT;
  Ref<TensorDesc> token, weight, first_token_offset, output, token_index, token_ks;
  int32_t top_k = 1;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

struct MoeGroupedMatmulBwdDesc
    : OperationOf<CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR> {
  cudnnDataType_t math_type = CUDNN_DATA_FLOAT;
  Ref<TensorDesc> token, dweight, first_token_offset, doutput;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
