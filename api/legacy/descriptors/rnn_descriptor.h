// cudnnRNNDescriptor_t and cudnnRNNDataDescriptor_t. Reference 7.2.2 to 7.2.6, 7.2.9 to 7.2.11,
// 7.2.18 to 7.2.21, 7.2.26 to 7.2.29 and 7.2.39 to 7.2.52.
//
// A network is described by cudnnSetRNNDescriptor_v8 whole, or by _v6 without the width of its
// input and the type of its data, which come with each call's tensors. Both fill one struct; what
// calls need of it is Network, which says all of it.
#pragma once

#include <cstdint>
#include <vector>

#include "api/legacy/descriptors/object.h"
#include "api/legacy/descriptors/tensor.h"
#include "include/v9/cudnn_adv.h"
#include "ir/graph/rnn.h"

namespace kiln::api::legacy {

struct RnnDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'726e6e64;  // "kilnrnnd"
  static constexpr std::string_view kName = "cudnnRNNDescriptor_t";
  enum SetBy : int32_t { kNever = 0, kV6 = 6, kV8 = 8 };

  int32_t set_by = kNever;
  int32_t algo = CUDNN_RNN_ALGO_STANDARD, cell = CUDNN_RNN_RELU, bias = CUDNN_RNN_DOUBLE_BIAS,
          direction = CUDNN_UNIDIRECTIONAL, input_mode = CUDNN_LINEAR_INPUT;
  int32_t type = CUDNN_DATA_FLOAT, math_precision = CUDNN_DATA_FLOAT, math = CUDNN_DEFAULT_MATH;
  int32_t input = 0, hidden = 0, projected = 0, layers = 0;  // projected: hidden where it is off
  int32_t output_projection = 0;                             // kept and given back, without effect
  uint32_t flags = 0;
  int32_t clip_mode = CUDNN_RNN_CLIP_NONE, clip_nan = CUDNN_NOT_PROPAGATE_NAN;
  double clip_lower = 0, clip_upper = 0;
  void* dropout = nullptr;  // the client's descriptor, looked at when a call needs it
};

// The shape of a batch of sequences. Their lengths, one for each, stand beside the numbers.
struct RnnDataDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'726e6461;  // "kilnrnda"
  static constexpr std::string_view kName = "cudnnRNNDataDescriptor_t";

  int32_t type = CUDNN_DATA_FLOAT, layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int32_t steps = 0, batch = 0, width = 0;  // steps 0: not set
  int64_t fill = 0;                         // the bits of one element of `type`, low bytes first
  std::vector<int32_t> lengths;

  bool IsFull() const;   // all sequences have `steps` steps
  int64_t Rows() const;  // the sum of the lengths
  bool IsPacked() const { return layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED; }
  double FillValue() const;
};

// Finds the object behind a data descriptor, which is no flat struct because of its lengths.
Result<const RnnDataDesc*> RnnDataFrom(const void* object, std::string_view name);

// Checks the arguments and fills the descriptor; a failure leaves the descriptor as it was.
Status SetRnnData(RnnDataDesc& desc, int type, int layout, int steps, int batch, int width,
                  const int* lengths, const void* fill);

// Fails with NOT_INITIALIZED for a descriptor that cudnnSetRNNDescriptor_v8 did not set.
Status CheckSetByV8(const RnnDesc& desc);
// Fails with BAD_PARAM for a descriptor that nothing set.
Status CheckSet(const RnnDesc& desc);

// Gives the attributes of the network in the tensor graph, without dropout and padding, which calls
// add.
graph::RnnAttrs AttrsOf(const RnnDesc& desc);
// Counts the parameters of the network; fails with NOT_SUPPORTED if they are more than memory has
// addresses for.
Result<int64_t> WeightElements(const graph::RnnAttrs& attrs, int64_t input);
// Counts the pseudo-layers, which are layers times directions.
int64_t PseudoLayers(const RnnDesc& desc);

}  // namespace kiln::api::legacy
