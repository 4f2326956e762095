// cudnnTensorDescriptor_t and cudnnFilterDescriptor_t. Reference 3.2.18, 3.2.19, 3.2.45 to 3.2.47,
// 3.2.59 to 3.2.61, 3.2.81, 3.2.82 and 3.2.91 to 3.2.94.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "api/legacy/descriptors/object.h"
#include "include/v9/cudnn_ops.h"

namespace kiln::api::legacy {

using Lengths = std::array<int32_t, CUDNN_DIM_MAX>;

// Extents and strides in elements; of NCHW_VECT_C, whose elements are `vector` channels each, the
// extent of dim 1 counts channels. `reordered` is never a client's: filters and biases are
// described so whose memory cudnnReorderFilterAndBias wrote.
struct TensorDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'74656e73;  // "kilntens"
  static constexpr std::string_view kName = "cudnnTensorDescriptor_t";

  int32_t type = CUDNN_DATA_FLOAT;
  int32_t rank = 0;  // 0: not set
  int32_t vector = 1;
  int32_t reordered = 0;  // 1: in the order of INT8x32 fragments, not in that of the strides
  Lengths dims = {}, strides = {};
};

// A filter, which is packed in the order of its format.
struct FilterDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'66696c74;  // "kilnfilt"
  static constexpr std::string_view kName = "cudnnFilterDescriptor_t";

  int32_t type = CUDNN_DATA_FLOAT;
  int32_t format = CUDNN_TENSOR_NCHW;
  int32_t rank = 0;  // 0: not set
  Lengths dims = {};
};

// Bytes of one element, of all the channels that an element of INT8x4 and its like holds.
int ElementBytes(int type);
// Channels in an element of the type; 1 for types of single numbers.
int VectorOf(int type);

// The strides of a packed tensor: innermost last, or with NHWC the channels. `vector` as above.
Lengths StridesOfFormat(int format, int rank, const Lengths& dims, int vector);

// "4-D float [2,3,4,5] strides [60,20,5,1]", for messages.
std::string Text(const TensorDesc& tensor);
std::string Text(const FilterDesc& filter);

// The elements from the first to the last, both included.
int64_t Span(const TensorDesc& tensor);

// Checks and fills the descriptor, which a failure leaves as it was.
Status SetTensor(TensorDesc& tensor, int type, std::span<const int> dims,
                 std::span<const int> strides);
Status SetPackedTensor(TensorDesc& tensor, int format, int type, std::span<const int> dims);

// The filter as a tensor; unset where it was not set.
Result<TensorDesc> Described(const FilterDesc& filter);

}  // namespace kiln::api::legacy
