// Parts of kernels that the engines of persistent recurrences share beside the tensors' functions
// (recurrence/functions.h): numbers of the layer, and the kernel that sets counters to 0.
#pragma once

#include <string>

#include "compiler/engines/recurrence/loop.h"
#include "compiler/engines/recurrence/plan.h"
#include "compiler/kernel/kernel_builder.h"
#include "compiler/kernel/recurrence_members.h"

namespace kiln::compiler {

Status HasRecurrence(const Group& group);
// Ok under RunsOnMma's condition, and if blocks can wait for one another.
Status RunsBlocksTogether(const Target& target);

// Adds a small kernel: `words` of the scratch memory `scratch` are 0 before the first step.
void AddRecurrenceZeroes(const Group& group, const Target& target, const std::string& what,
                         int scratch, int64_t words, Lowered& lowered);

// The members of recurrence_shape.cuh's recurrence_shape.
struct RecurrenceNumbers {
  int64_t depth, pitch, parts, groups, first_groups;
};
void AddRecurrenceNumbers(KernelBuilder& b, const RecurrenceShape& shape,
                          const RecurrenceNumbers& numbers, tile::Call& call);
// Constants of recurrence_sm80.cuh: how blocks make a product, `which` names it; and all of a loop,
// with those of its first product.
using recurrence::ProductMember;
void AddRecurrenceProduct(const RecurrenceProduct& p, ConfigMember ProductMember::* which,
                          tile::Call& call);
void AddRecurrenceConfig(const KernelBuilder& b, const RecurrencePlan& p, tile::Call& call);
// The value of recurrence_cell's kClips.
int64_t RecurrenceClips(const RecurrenceShape& shape);

}  // namespace kiln::compiler
