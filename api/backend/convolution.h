// CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR and the three operations. Reference 9.2.1 and 9.2.10
// to 9.2.12.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct ConvolutionDesc : DescriptorOf<CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR> {
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  int64_t spatial_dims = 0;
  InlineVector<int64_t, CUDNN_DIM_MAX> dilations, strides, pre_paddings, post_paddings;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
};

// y = alpha * conv(x, w) + beta * y and its gradients. The three operations have the same
// attributes under different names: the image (x, dx), the filter (w, dw) and the response (y, dy).
struct OperationConvolution : Operation {
  Ref<ConvolutionDesc> convolution;
  Ref<TensorDesc> image, filter, response;
  FloatOrDouble alpha{1}, beta{0};

  Status Finalize() override;

 protected:
  Status ImportAs(GraphImport& graph, graph::GraphOp op, const Ref<TensorDesc>& first,
                  const Ref<TensorDesc>& second, const Ref<TensorDesc>& result) const;
};

template <cudnnBackendDescriptorType_t T>
struct OperationConvolutionOf : OperationConvolution {
  static constexpr cudnnBackendDescriptorType_t kType = T;
  static constexpr KindSet kKindSet = KindBit(T);
  cudnnBackendDescriptorType_t type() const override { return T; }
};

struct ConvolutionForwardDesc
    : OperationConvolutionOf<CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR> {
  static std::span<const AttrRow> Rows();
  Status Import(GraphImport& graph) const override;
};
struct ConvolutionBwdDataDesc
    : OperationConvolutionOf<CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR> {
  static std::span<const AttrRow> Rows();
  Status Import(GraphImport& graph) const override;
};
struct ConvolutionBwdFilterDesc
    : OperationConvolutionOf<CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR> {
  static std::span<const AttrRow> Rows();
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
