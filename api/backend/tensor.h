// CUDNN_BACKEND_TENSOR_DESCRIPTOR. Reference 9.2.16.
#pragma once

#include "api/backend/attr.h"
#include "ir/shape.h"

namespace kiln::api {

struct TensorDesc : DescriptorOf<CUDNN_BACKEND_TENSOR_DESCRIPTOR> {
  int64_t uid = -1;
  cudnnDataType_t data_type = CUDNN_DATA_FLOAT;
  int64_t alignment = 0;
  InlineVector<int64_t, CUDNN_DIM_MAX> dims, strides;
  int64_t vector_count = 1, vector_dim = -1;
  bool is_virtual = false, by_value = false;
  cudnnBackendTensorReordering_t reordering = CUDNN_TENSOR_REORDERING_NONE;
  Ref<TensorDesc> ragged_offset;
  int64_t ragged_multiplier = 1;  // elements that an offset counts
  // The value of one that is known when the plan is made: the client's pointer, and what is there.
  const void* constant_at = nullptr;
  std::vector<std::byte> constant;

  void ReadConstant();
  Status Finalize() override;
  static std::span<const AttrRow> Rows();
  // True if both are the same memory under the same uid: two descriptors of one tensor may both
  // appear in a graph.
  bool SameAs(const TensorDesc& other) const;
  // Extents in elements: `dims` and `strides` of a vectorised layout count vectors along the
  // vectorized dimension.
  Dims PlainDims() const;
  std::string Text() const;  // "tensor 7 (8x64x56x56)"
};

}  // namespace kiln::api
