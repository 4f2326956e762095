// CUDNN_BACKEND_OPERATION_EXPAND_BAND_MATRIX_DESCRIPTOR and
// CUDNN_BACKEND_OPERATION_CONTRACT_BAND_MATRIX_DESCRIPTOR; attributes of 9.19. What the elements
// are is in ir/graph/ops_band.cc.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct ExpandBandMatrixDesc : OperationOf<CUDNN_BACKEND_OPERATION_EXPAND_BAND_MATRIX_DESCRIPTOR> {
  Ref<TensorDesc> x, y;
  int64_t lower = -1, upper = -1, axis = -1;
  float pad_value = 0;
  Ref<TensorDesc> kv_token_offset, speculative_mask;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

struct ContractBandMatrixDesc
    : OperationOf<CUDNN_BACKEND_OPERATION_CONTRACT_BAND_MATRIX_DESCRIPTOR> {
  Ref<TensorDesc> x, y;
  int64_t lower = -1, upper = -1, axis = -1;
  float pad_value = 0;
  int64_t max_token_value = -1;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
