// recurrence_steps, recurrence_steps_tf32: a recurrent layer, or its gradient, whose every step is
// a launch of wgmma_sm90 and one of cells
// (codegen/cuda/device/recurrence/recurrence_step_cells.cuh). Persistent engines
// (recurrence/sm80.h, recurrence/sm90.h) read the states of a group of sequences, and what of the
// matrix they do not hold, into every multiprocessor; where products fill the GPU by themselves,
// tiles that share both operands read less than half of that.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kRecurrenceStepsEngine;
extern const Engine kRecurrenceStepsTf32Engine;

}  // namespace kiln::compiler
