// The attention_sm90 engine: softmax(q k) v as one kernel on Hopper, with scores in registers. See
// attention.h for what an attention group is, codegen/cuda/device/attention_sm90.cuh for how it
// runs.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kAttentionSm90Engine;

// {depth, places, inner, outer} of a tensor whose dim `places` has rows of `depth`, in boxes of 64
// by `rows`; what tensor maps cannot read or write is declined.
Result<TensorMapSpec> AttentionMapOf(const graph::Tensor& tensor, int64_t places, int64_t depth,
                                     int rows);

}  // namespace kiln::compiler
