// LeadingGroup: the group of a module that engine index and knobs of a request speak of.
#pragma once

#include "compiler/module.h"

namespace kiln::compiler {

// The index of the group that engine index and knobs speak of: the most expensive one by the model,
// whatever was chosen for the others. Of a contraction and the groups that only move data for it,
// the contraction.
int LeadingGroup(const Module& module);

}  // namespace kiln::compiler
