// ExtractGroups: the second half of partition. Each group becomes a graph of its own, whose tensors
// have names that say what they are in that kernel: groups of the same structure have equal text.
#pragma once

#include <vector>

#include "compiler/passes/group_draft.h"

namespace kiln::compiler {

std::vector<Group> ExtractGroups(const LinkedGraph& linked, const Placement& placement);

// The name of a node's operand where it is a leaf of a group: dy, w, a, b ..., else x.
const char* OperandRole(const graph::Node& node, size_t operand);

}  // namespace kiln::compiler
