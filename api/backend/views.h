// Operations that move data or only rename it: CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR and
// CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR; attributes of 9.19.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct ReshapeDesc : OperationOf<CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR> {
  Ref<TensorDesc> x, y;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

// `inplace_index` names the input whose memory is part of the output's; -1 for none.
struct ConcatDesc : OperationOf<CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR> {
  int64_t axis = 0, inplace_index = -1;
  std::vector<Ref<TensorDesc>> inputs;
  Ref<TensorDesc> output;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
