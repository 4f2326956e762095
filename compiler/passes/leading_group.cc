#include "compiler/passes/leading_group.h"

#include <utility>

#include "compiler/engines/registry.h"

namespace kiln::compiler {

namespace {

// True if an engine rounds what the group multiplies. Index and knobs of a plan that rounds speak
// of one of these groups: a sum that takes longer has no engine that does, and there would be no
// such plan.
bool Rounds(const Group& group) {
  return group.engine >= 0 &&
         InputsOf(Engines()[static_cast<size_t>(group.engine)]) == Inputs::kRounded;
}

}  // namespace

int LeadingGroup(const Module& module) {
  int leading = -1;
  const auto rank = [](const Group& group) { return std::pair(Rounds(group), group.least_cost); };
  for (size_t g = 0; g < module.groups.size(); ++g) {
    const Group& group = module.groups[g];
    if (group.moves_data) continue;
    if (leading < 0 || rank(group) > rank(module.groups[static_cast<size_t>(leading)]))
      leading = static_cast<int>(g);
  }
  return leading;
}

}  // namespace kiln::compiler
