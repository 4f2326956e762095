// Descriptors that are a few modes and numbers: activation, LRN, op tensor, reduce tensor, spatial
// transformer. Reference 3.2.37, 3.2.48, 3.2.49, 3.2.55, 3.2.76, 3.2.83, 3.2.84, 3.2.87 and 3.2.88.
#pragma once

#include "api/legacy/descriptors/tensor.h"

namespace kiln::api::legacy {

struct ActivationDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'61637476;  // "kilnactv"
  static constexpr std::string_view kName = "cudnnActivationDescriptor_t";

  int32_t mode = CUDNN_ACTIVATION_SIGMOID;
  int32_t nan = CUDNN_NOT_PROPAGATE_NAN;
  double coefficient = 0;  // where CLIPPED_RELU clips, ELU's alpha
  double swish_beta = 1;
};

struct LrnDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'6c726e64;  // "kilnlrnd"
  static constexpr std::string_view kName = "cudnnLRNDescriptor_t";

  int64_t window = 5;
  double alpha = 1e-4, beta = 0.75, k = 2;
};

struct OpTensorDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'6f707473;  // "kilnopts"
  static constexpr std::string_view kName = "cudnnOpTensorDescriptor_t";

  int32_t op = CUDNN_OP_TENSOR_ADD;
  int32_t compute = CUDNN_DATA_FLOAT;
  int32_t nan = CUDNN_NOT_PROPAGATE_NAN;
};

struct ReduceTensorDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'72656475;  // "kilnredu"
  static constexpr std::string_view kName = "cudnnReduceTensorDescriptor_t";

  int32_t op = CUDNN_REDUCE_TENSOR_ADD;
  int32_t compute = CUDNN_DATA_FLOAT;
  int32_t nan = CUDNN_NOT_PROPAGATE_NAN;
  int32_t indices = CUDNN_REDUCE_TENSOR_NO_INDICES;
  int32_t index_type = CUDNN_32BIT_INDICES;
};

struct SpatialTransformerDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'73706174;  // "kilnspat"
  static constexpr std::string_view kName = "cudnnSpatialTransformerDescriptor_t";

  int32_t type = CUDNN_DATA_FLOAT;
  int32_t rank = 0;  // 0: not set
  Lengths dims = {};
};

}  // namespace kiln::api::legacy
