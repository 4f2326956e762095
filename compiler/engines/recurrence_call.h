// What the engines of persistent recurrences share of their kernels beside the tensors' functions
// (recurrence_functions.h): numbers of the layer, and the kernel that sets counters to 0.
#pragma once

#include <string>

#include "compiler/engines/kernel_builder.h"
#include "compiler/engines/recurrence_loop.h"

namespace kiln::compiler {

Status HasRecurrence(const Group& group);
// RunsOnMma's condition, and that blocks can wait for one another.
Status RunsBlocksTogether(const Target& target);

// A small kernel: `words` of the scratch memory `scratch`, 0 before the first step.
void AddRecurrenceZeroes(const Group& group, const Target& target, const std::string& what,
                         int scratch, int64_t words, Lowered& lowered);

// Members of recurrence_shape.cuh's recurrence_shape.
struct RecurrenceNumbers {
  int64_t depth, pitch, parts, groups, first_groups;
};
void AddRecurrenceNumbers(KernelBuilder& b, const RecurrenceShape& shape,
                          const RecurrenceNumbers& numbers, tile::Call& call);
// recurrence_cell's kClips.
int64_t RecurrenceClips(const RecurrenceShape& shape);

}  // namespace kiln::compiler
