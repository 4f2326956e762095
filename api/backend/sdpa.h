// Attention as one operation: CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, its backward, and
// CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR. What finalize refuses is what NVIDIA's 9.19
// refuses (tests/api/backend/nvidia_parity_test.cc).
#pragma once

#include "api/backend/operation_graph.h"
#include "api/backend/softmax.h"

namespace kiln::api {

// The operations of a client between scores and softmax; in them the score has the uid of the
// input.
struct ScoreOperations {
  const Ref<OperationGraphDesc>& graph;
  int64_t input, output;

  Status Check() const;
  // Adds them with `score` for the input, and returns their output.
  Result<graph::TensorId> Import(GraphImport& graph, graph::TensorId score) const;
};

struct SdpaForwardDesc : OperationOf<CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR> {
  Ref<TensorDesc> q, k, v, o, stats, scale, block_mask, page_table_k, page_table_v, seq_len_q,
      seq_len_kv;
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
  // True if it asks for something that the graph's one operation has not, so that it is spelled out
  // (sdpa_spelled.cc).
  bool IsSpelled() const;
  Status CheckSpelled() const;
  Result<int64_t> Keys() const;
  Status ImportSpelled(GraphImport& graph) const;
};

struct SdpaBackwardDesc : OperationOf<CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR> {
  Ref<TensorDesc> q, k, v, o, stats, scale, seq_len_q, seq_len_kv, dq, dk, dv, grad;
  Ref<TensorDesc> sink, dsink;
  // The longest of all sequences of a packed batch: a bound for work space, which the extents bound
  // already.
  int64_t max_total_seq_len_q = 0, max_total_seq_len_kv = 0;
  Ref<OperationGraphDesc> subgraph;  // as the forward operation has it
  int64_t subgraph_input = -1, subgraph_output = -1;
  Ref<TensorDesc> cu_seq_len_q, cu_seq_len_kv, dropout_seed, dropout_offset;
  FloatOrDouble dropout_probability;
  Ref<TensorDesc> dbias;  // of the tensor of its extents that the sub-graph adds

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;

 private:
  // True if it asks for something that the graph's one operation has not, so that it is spelled out
  // (sdpa_backward_spelled.cc).
  bool IsSpelled() const;
  Status CheckSpelled() const;
  Status CheckExtents() const;
  Status ImportSpelled(GraphImport& graph) const;
};

struct PagedCacheLoadDesc : OperationOf<CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR> {
  Ref<TensorDesc> container, y, lengths, page_table;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

// The forward operation and its gradient refuse wrong lengths in the same words.
Status CheckLengths(const char* name, const Ref<TensorDesc>& t, int64_t batches);
Status CheckCumulated(const char* name, const Ref<TensorDesc>& cumulated,
                      const Ref<TensorDesc>& lengths, int64_t batches);
Status CheckDropout(double probability, const Ref<TensorDesc>& seed, const Ref<TensorDesc>& offset);
// The tensor with its last two dims exchanged: keys as the second operand of a product.
TensorDesc Transposed(const TensorDesc& k);

// Tensors that may be absent, as operands and as results.
struct OptionalTensor {
  const Ref<TensorDesc>& tensor;
  graph::TensorId& id;
};
Status ReadAll(GraphImport& import, std::initializer_list<OptionalTensor> tensors);
Status WriteAll(GraphImport& import, std::initializer_list<OptionalTensor> tensors);

}  // namespace kiln::api
