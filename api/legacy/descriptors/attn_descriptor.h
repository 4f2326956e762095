// cudnnAttnDescriptor_t: a multi-head attention layer, and where each of its weights lies.
// Reference 7.2.3, 7.2.8, 7.2.14, 7.2.16 and 7.2.43.
#pragma once

#include "api/legacy/descriptors/tensor.h"

namespace kiln::api::legacy {

// The four projections, by the numbers of cudnnMultiHeadAttnWeightKind_t.
enum class Projected { kQ, kK, kV, kO };

struct AttnDesc {
  static constexpr uint64_t kTag = 0x6b696c6e'6174746e;  // "kilnattn"
  static constexpr std::string_view kName = "cudnnAttnDescriptor_t";

  uint32_t mode = 0;
  int32_t heads = 0;  // 0: not set
  double scale = 0;   // of scores
  int32_t type = 0, compute = 0, math = 0;
  int32_t most_queries = 0, most_keys = 0, most_batch = 0, most_beam = 0;
  // Vectors of q, k and v before they are projected; those behind it, 0 without a projection.
  std::array<int32_t, 3> size = {};
  std::array<int32_t, 4> projected = {};
  void* attn_dropout = nullptr;
  void* post_dropout = nullptr;

  bool is_set() const { return heads > 0; }
  bool has_biases() const;
  bool has(Projected what) const { return projected[static_cast<size_t>(what)] > 0; }
  int64_t Projection(Projected what) const { return projected[static_cast<size_t>(what)]; }
  int64_t Size(Projected what) const { return size[static_cast<size_t>(what)]; }
  // The elements of a head's vector of q, k or v.
  int64_t Width(Projected what) const { return has(what) ? Projection(what) : Size(what); }
  // The elements of a vector of the layer's output.
  int64_t OutputSize() const {
    return has(Projected::kO) ? Projection(Projected::kO) : heads * Width(Projected::kV);
  }
};

// A matrix or bias in the buffer of weights. Matrices are [heads][rows][columns]; all heads of q, k
// or v are one matrix whose columns lie one behind the other, heads * rows high, while those of the
// output are `rows` high and side by side.
struct AttnWeight {
  int64_t offset = 0;                              // elements from the start of the buffer
  std::array<int64_t, 3> dims = {}, strides = {};  // no heads: it is not there
  bool is_there() const { return dims[0] > 0; }
};
AttnWeight WeightOf(const AttnDesc& desc, Projected what);
AttnWeight BiasOf(const AttnDesc& desc, Projected what);
// The elements of all weights; more than 64 bits count is NOT_SUPPORTED.
Result<int64_t> WeightElements(const AttnDesc& desc);

}  // namespace kiln::api::legacy
