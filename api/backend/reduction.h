// CUDNN_BACKEND_REDUCTION_DESCRIPTOR and its operation; attributes of 9.19, and groups of rows.
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
  // Where groups of rows begin, ascending: x[1,rows,…], y[groups,1,…], offsets[groups,1,…]. A group
  // ends where the next begins, the last with the rows, or where one offset more says.
  Ref<TensorDesc> offsets;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;

 private:
  Status CheckGroups() const;
};

}  // namespace kiln::api
