// recurrence_sm90, recurrence_sm90_tf32: loops over time of recurrent layers and their gradients on
// wgmma, for layers of many sequences, or whose matrices the chip does not hold: states and what is
// streamed of the matrix come as bulk copies into a ring
// (codegen/cuda/device/recurrence/recurrence_sm90.cuh). The second rounds f32 operands to TF32.
// Projected states are recurrence_sm80's.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kRecurrenceSm90Engine, kRecurrenceSm90Tf32Engine;

}  // namespace kiln::compiler
