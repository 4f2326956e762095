// CUDNN_BACKEND_REDUCTION_DESCRIPTOR and its operation; attributes of 9.19.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct ReductionDesc : DescriptorOf<CUDNN_BACKEND_REDUCTION_DESCRIPTOR> {
  cudnnReduceTensorOp_t op = CUDNN_REDUCE_TENSOR_ADD;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  bool deterministic = false;

  static std::span<const AttrRow> Rows();
};

// Each dimension of y is that of x, 1, or a divisor of it; the last reduces runs of neighbours, as
// the heads of grouped-query attention are.
struct OperationReductionDesc : OperationOf<CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR> {
  Ref<ReductionDesc> reduction;
  Ref<TensorDesc> x, y;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
