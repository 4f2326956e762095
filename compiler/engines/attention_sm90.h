// The attention_sm90 engine: softmax(q k) v as one kernel on Hopper, with scores in registers. See
// attention.h for what an attention group is, codegen/cuda/device/attention_sm90.cuh for how it
// runs.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kAttentionSm90Engine;

}  // namespace kiln::compiler
