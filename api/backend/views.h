// Operations that move data or only rename it: CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
// CUDNN_BACKEND_OPERATION_TRANSPOSE_DESCRIPTOR, CUDNN_BACKEND_OPERATION_SLICE_DESCRIPTOR and
// CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR; attributes of 9.28.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct ReshapeDesc : OperationOf<CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR> {
  Ref<TensorDesc> x, y;
  cudnnBackendReshapeMode_t mode = CUDNN_RESHAPE_VIEW_ONLY;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

struct TransposeDesc : OperationOf<CUDNN_BACKEND_OPERATION_TRANSPOSE_DESCRIPTOR> {
  Ref<TensorDesc> x, y;
  InlineVector<int64_t, CUDNN_DIM_MAX> permutation;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

// A slice has of dim d the places starts[d], starts[d] + strides[d], … before limits[d].
struct SliceDesc : OperationOf<CUDNN_BACKEND_OPERATION_SLICE_DESCRIPTOR> {
  Ref<TensorDesc> x, y;
  InlineVector<int64_t, CUDNN_DIM_MAX> starts, limits, strides;

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
