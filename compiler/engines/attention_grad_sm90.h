// attention_grad_sm90: attention's gradients as one kernel on Hopper, for dq, dk and dv of f16 or
// bf16 with rows of up to 128 that tensor maps can read and write. Scores are made again, and stay
// in registers. dq is added up in f32: in memory if it is asked for so, else in the workspace, from
// where a kernel of its own converts it.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

// Blocks add to dq in a fixed order; and in any, for clients that ask.
extern const Engine kAttentionGradSm90Engine, kAttentionGradSm90AtomicEngine;

}  // namespace kiln::compiler
