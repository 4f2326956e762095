// cudnnTensorTransformDescriptor_t: padding, folding and another order of the dims. Reference
// 3.2.62, 3.2.64 and 3.2.95.
//
//   fold:    pad each dim; then take blocks of fold[i] places along each spatial dim i as channels
//   unfold:  make blocks of places from channels; then pad each dim
//
// Channels count the places of a block slowest, the first spatial dim of it slowest of all. Their
// padding stands before the first block's and behind the last one's (transform_tensor.cc), as
// 9.19's does: the reference says neither. Negative paddings cut off.
#pragma once

#include "api/legacy/descriptors/tensor.h"

namespace kiln::api::legacy {

struct TensorTransformDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'7472616e;  // "kilntran"
  static constexpr std::string_view kName = "cudnnTensorTransformDescriptor_t";

  int32_t rank = 0;  // 0: not set
  int32_t format = CUDNN_TENSOR_NCHW;
  int32_t direction = CUDNN_TRANSFORM_FOLD;
  Lengths before = {}, after = {};
  std::array<uint32_t, CUDNN_DIM_MAX - 2> fold = {};  // 0 and 1: no folding
};

// The extents that the transform makes of x's.
Result<Lengths> TransformedDims(const TensorTransformDesc& transform, const TensorDesc& x);

}  // namespace kiln::api::legacy
