// The attention_sm80 engine: softmax(q k) v as one kernel on mma.sync, with scores in registers,
// for every GPU and layout. See attention.h for what an attention group is,
// codegen/cuda/device/attention_sm80.cuh for how it runs.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kAttentionSm80Engine;

}  // namespace kiln::compiler
