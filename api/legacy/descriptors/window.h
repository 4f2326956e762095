// cudnnPoolingDescriptor_t and cudnnConvolutionDescriptor_t: windows over the spatial dims of a
// tensor. Reference 3.2.50 to 3.2.53, 3.2.85, 3.2.86, 5.2.17, 5.2.18, 5.2.25 to 5.2.29 and 5.2.33
// to 5.2.37.
#pragma once

#include "api/legacy/descriptors/tensor.h"
#include "include/v9/cudnn_cnn.h"

namespace kiln::api::legacy {

inline constexpr int kMostSpatialDims = CUDNN_DIM_MAX - 2;
using SpatialLengths = std::array<int32_t, kMostSpatialDims>;

struct PoolingDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'706f6f6c;  // "kilnpool"
  static constexpr std::string_view kName = "cudnnPoolingDescriptor_t";

  int32_t mode = CUDNN_POOLING_MAX;
  int32_t nan = CUDNN_NOT_PROPAGATE_NAN;
  int32_t spatial = 0;  // dims; 0: not set
  SpatialLengths window = {}, padding = {}, stride = {};
};

struct ConvolutionDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'6c656763;  // "kilnlegc"
  static constexpr std::string_view kName = "cudnnConvolutionDescriptor_t";

  int32_t mode = CUDNN_CONVOLUTION;
  int32_t compute = CUDNN_DATA_FLOAT;
  int32_t math = CUDNN_DEFAULT_MATH;
  int32_t reorder = CUDNN_DEFAULT_REORDER;
  int32_t groups = 1;
  int32_t spatial = 0;  // dims; 0: not set
  SpatialLengths padding = {}, stride = {}, dilation = {};
};

// Extents of what the window leaves of x, of as many dims; an error says what does not fit.
Result<Lengths> OutputDims(const PoolingDesc& pooling, const TensorDesc& x);
Result<Lengths> OutputDims(const ConvolutionDesc& convolution, const TensorDesc& x,
                           const FilterDesc& w);

}  // namespace kiln::api::legacy
