// Attention as one operation: CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, its backward, and
// CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR. What finalize refuses is what NVIDIA's 9.19
// refuses (tests/api/nvidia_parity_test.cc).
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct SdpaForwardDesc : OperationOf<CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR> {
  Ref<TensorDesc> q, k, v, o, stats, scale, block_mask, page_table_k, page_table_v, seq_len_q,
      seq_len_kv;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

struct SdpaBackwardDesc : OperationOf<CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR> {
  Ref<TensorDesc> q, k, v, o, stats, scale, seq_len_q, seq_len_kv, dq, dk, dv, grad;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

struct PagedCacheLoadDesc : OperationOf<CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR> {
  Ref<TensorDesc> container, y, lengths, page_table;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
