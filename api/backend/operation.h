// Operation: base of the descriptors that an operation graph is made of.
#pragma once

#include "api/backend/attr.h"
#include "api/backend/graph_import.h"

namespace kiln::api {

struct Operation : Descriptor {
  static constexpr KindSet kKindSet =
      KindBit(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR) |
      KindBit(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR);

  // Adds the operation to the graph that is being imported.
  virtual Status Import(GraphImport& graph) const = 0;
};

template <cudnnBackendDescriptorType_t T>
struct OperationOf : Operation {
  static constexpr cudnnBackendDescriptorType_t kType = T;
  static constexpr KindSet kKindSet = KindBit(T);
  cudnnBackendDescriptorType_t type() const override { return T; }
};

}  // namespace kiln::api
