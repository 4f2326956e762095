// Attention as one operation: CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, its backward, and
// CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR. What finalize refuses is what NVIDIA's 9.19
// refuses (tests/api/nvidia_parity_test.cc).
#pragma once

#include "api/backend/operation_graph.h"
#include "api/backend/softmax.h"

namespace kiln::api {

struct SdpaForwardDesc : OperationOf<CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR> {
  Ref<TensorDesc> q, k, v, o, stats, scale, block_mask, page_table_k, page_table_v, seq_len_q,
      seq_len_kv;
  // Between scores and softmax: operations on the score, which has the uid of the input.
  Ref<OperationGraphDesc> subgraph;
  int64_t subgraph_input = -1, subgraph_output = -1;
  Ref<SoftmaxDesc> softmax;  // its sink and results; x and y stand for what is between
  Ref<TensorDesc> dropout_seed, dropout_offset, dropout_dump;
  FloatOrDouble dropout_probability;
  bool unfuse_fma = false;  // of kernels that Kiln has not
  Ref<TensorDesc> cu_seq_len_q, cu_seq_len_kv;
  Ref<TensorDesc> descale_q, descale_k, descale_v, descale_s, scale_s, scale_o, amax_s, amax_o;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;

 private:
  // What the graph's one operation has not: sdpa_spelled.cc.
  bool IsSpelled() const;
  Status CheckSpelled() const;
  Result<int64_t> Keys() const;
  Status ImportSpelled(GraphImport& graph) const;
  Result<graph::TensorId> ImportSubgraph(GraphImport& graph, graph::TensorId score) const;
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
