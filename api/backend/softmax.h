// Parts of attention as one operation: CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR and
// CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR, which cudnn-frontend sends from 9.21 on.
// What they compute is in ir/graph/attention_parts.h, which they are imported by.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct SoftmaxDesc : OperationOf<CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR> {
  Ref<TensorDesc> x, y, stats, max, sum_exp, sink;
  bool stats_log2 = false;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

struct DiagonalBandMaskDesc : OperationOf<CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR> {
  Ref<TensorDesc> x, fill, y;
  Ref<TensorDesc> seq_len_q, seq_len_kv, cu_seq_len_q, cu_seq_len_kv;
  Ref<TensorDesc> left_bound, shift_right_bound;
  cudnnPointwiseMode_t comparison = CUDNN_POINTWISE_CMP_GT;  // cudnn-frontend's default

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
