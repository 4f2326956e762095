// The causal 1-D convolutions of cudnn_subquadratic_ops.h have these parts in common: checks, a
// depthwise convolution as a node, and memory that gradients are added to. Used by causal_conv.cc,
// causal_conv_b2b.cc and causal_conv_fft.cc.
#pragma once

#include "api/legacy/plans/call.h"
#include "include/v9/cudnn_subquadratic_ops.h"

namespace kiln::api::legacy::causal {

using graph::GraphOp;
using graph::TensorId;

Status CheckExtent(int64_t extent, int64_t least, std::string_view name);
// Checks that the type is float, double, half or bfloat16.
Status CheckType(int type, std::string_view name);
// Checks that results are not written over operands: a place is read for later ones, too, when its
// own result is there.
Status CheckApart(const void* from, const void* to, std::string_view names);

Dims DimsOf(const TensorDesc& t);
Dims StridesOf(const TensorDesc& t);

// The filter of a convolution: its last tap stands on the place itself, or its first.
struct Taps {
  int32_t taps = 1;
  bool first_is_own = false;
};

// One of the three convolutions in the compute type of `result`, with that memory as its layout.
TensorId Convolve(CallGraph& g, GraphOp op, const Taps& taps, std::vector<TensorId> operands,
                  const TensorDesc& result);

// True if products keep all bits: nobody has allowed TF32, since these functions have no math type.
bool KeepsBits(int type);

// Memory that a gradient is added to.
struct Sum {
  Operand before, after;
};
Sum SumIn(Call& call, const TensorDesc& desc, const void* memory);
Status AddTo(CallGraph& g, const Sum& sum, TensorId value);

// The workspace of functions that have no parameter for one: what a plan needs is lent in the order
// of the stream.
inline constexpr Workspace kFromSession = {.is_from_session = true};

}  // namespace kiln::api::legacy::causal
