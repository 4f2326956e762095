// The attention_grad_sm80 engines: attention's gradients as one kernel on mma.sync, with zeroes
// before and dq behind it, for every GPU and layout. attention_grad_sm80 adds to dq in the order of
// keys, attention_grad_sm80_atomic in any order. See attention_grad.h for what such a group is,
// codegen/cuda/device/attention_grad_sm80.cuh for how it runs.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kAttentionGradSm80Engine;
extern const Engine kAttentionGradSm80AtomicEngine;

}  // namespace kiln::compiler
