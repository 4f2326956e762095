// LeadingGroup: the group of a module that engine index and knobs of a request speak of.
#pragma once

#include "compiler/module.h"

namespace kiln::compiler {

// Index of the group that engine index and knobs speak of: the most expensive one by the model,
// whatever was chosen for the others. Of a contraction and what only moves data for it, the
// contraction.
int LeadingGroup(const Module& module);

}  // namespace kiln::compiler
