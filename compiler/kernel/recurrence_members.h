// The members that kernels of recurrences set in device code.
#pragma once

#include "compiler/kernel/member_names.inc"
#include "compiler/kernel/members.h"

namespace kiln::compiler::recurrence {

// A constant that each product of a loop has: of the layer's units, of what they are projected to,
// of what the stage below has sent.
struct ProductMember {
  ConfigMember units, projected, below;
};

#define PRODUCT(name) \
  CONFIG(k##name)     \
  inline constexpr ProductMember name = {{"k" #name}, {"kProjected" #name}, {"kBelow" #name}};
#define NUMBER(name) INT(name, 0)
#define FLOAT(name, value) INT(name, value)
// Members that not all of the skeletons have.
#define PROJECTED_NUMBER NUMBER
#define STACK_NUMBER NUMBER
#define STEP_NUMBER NUMBER
#include "codegen/cuda/device/recurrence/recurrence.def"

}  // namespace kiln::compiler::recurrence
