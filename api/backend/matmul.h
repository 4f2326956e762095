// CUDNN_BACKEND_MATMUL_DESCRIPTOR and its operation; attributes of 9.19.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct MatmulDesc : DescriptorOf<CUDNN_BACKEND_MATMUL_DESCRIPTOR> {
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  FloatOrDouble padding_value{0};

  static std::span<const AttrRow> Rows();
};

// c[…, M, N] = a[…, M, K] * b[…, K, N]. The overrides are i32 tensors of one number a batch.
struct OperationMatmulDesc : OperationOf<CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR> {
  Ref<MatmulDesc> matmul;
  Ref<TensorDesc> a, b, c;
  Ref<TensorDesc> m_override, n_override, k_override;
  int64_t irregular_batch_count = 1;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
