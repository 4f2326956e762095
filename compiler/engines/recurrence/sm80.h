// recurrence_sm80, recurrence_sm80_tf32, recurrence_sm80_f32: loops over time of recurrent layers
// and their gradients on mma.sync. A launch is a layer, its blocks stay for all steps and keep the
// recurrent matrix in registers and shared memory; states go from block to block through the L2
// cache, with a counter for each group of sequences
// (codegen/cuda/device/recurrence/recurrence_sm80.cuh). The second rounds f32 operands to TF32, the
// third multiplies them as they are, on FMA units. What an LSTM's units are projected to is a
// second product in each step.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kRecurrenceSm80Engine, kRecurrenceSm80Tf32Engine, kRecurrenceSm80F32Engine;

}  // namespace kiln::compiler
