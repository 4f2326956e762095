// The schedule of contract_mma: one tile of C a block, k in panels through a ring in shared memory.
#pragma once

#include "compiler/engines/contract_mma/plan.h"

namespace kiln::compiler {

Lowered LowerMma(const Group& group, const Target& target, const MmaPlan& plan);

}  // namespace kiln::compiler
