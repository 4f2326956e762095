// CUDNN_BACKEND_RESAMPLE_DESCRIPTOR and the two operations with it; attributes of 9.19. Lengths are
// fractions, or whole numbers where a client sets them as CUDNN_TYPE_INT64.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct Lengths {
  InlineVector<cudnnFraction_t, 4> values;
};
template <>
struct Member<Lengths> {
  static constexpr uint64_t kTypes = uint64_t{1} << CUDNN_TYPE_FRACTION | uint64_t{1}
                                                                              << CUDNN_TYPE_INT64;
  static Status Set(Lengths& member, const AttrIn& in, int64_t limit);
  static Status Get(const Lengths& member, const AttrOut& out);
};

struct ResampleDesc : DescriptorOf<CUDNN_BACKEND_RESAMPLE_DESCRIPTOR> {
  cudnnResampleMode_t mode = CUDNN_RESAMPLE_NEAREST;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnNanPropagation_t nan_propagation = CUDNN_NOT_PROPAGATE_NAN;
  cudnnPaddingMode_t padding_mode = CUDNN_ZERO_PAD;
  int64_t spatial_dims = 0;
  Lengths window, strides, pre_paddings, post_paddings;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  // The attributes over common denominators; finalised descriptors have them.
  graph::ResampleAttrs Attrs(double alpha, double beta) const;
};

struct ResampleFwdDesc : OperationOf<CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR> {
  Ref<ResampleDesc> resample;
  Ref<TensorDesc> x, y, index;
  FloatOrDouble alpha{1}, beta{0};

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

// The gradient of a maximum goes by the index, or by x and y.
struct ResampleBwdDesc : OperationOf<CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR> {
  Ref<ResampleDesc> resample;
  Ref<TensorDesc> dx, dy, index, x, y;
  FloatOrDouble alpha{1}, beta{0};

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
