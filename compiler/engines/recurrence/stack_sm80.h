// recurrence_stack_sm80, recurrence_stack_sm80_tf32: recurrent layers one above the other
// (recurrence_stack.h) and their gradients in one persistent launch, on mma.sync, as a wavefront.
// A layer has its share of the multiprocessors and is as recurrence_sm80 would run it there; what
// the layer below has made of a step is multiplied in the loop, between two steps of its own states
// (codegen/cuda/device/recurrence/recurrence_stack_sm80.cuh), so that neither the products of all
// steps nor a launch for each layer are left. They decline what the models say is faster layer by
// layer.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kRecurrenceStackSm80Engine, kRecurrenceStackSm80Tf32Engine;

}  // namespace kiln::compiler
