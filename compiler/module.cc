#include "compiler/module.h"

#include <utility>

#include "compiler/engines/engine.h"

namespace kiln::compiler {

namespace {

// Where engines of the plan round what they multiply, index and knobs speak of one of these: a sum
// that takes longer has no engine that does, and there would be no such plan.
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

std::string Print(const Module& module) {
  if (module.form <= Form::kPrimitive) return graph::Print(module.graph);
  std::string text;
  for (size_t g = 0; g < module.groups.size(); ++g) {
    const Group& group = module.groups[g];
    text += fmt::format("// group {}", g);
    if (group.engine >= 0) {
      const Engine& engine = Engines()[group.engine];
      text += fmt::format(": engine {} {}", engine.name, KnobText(engine, group.knobs));
    }
    text += "\n" + graph::Print(group.graph);
    for (const tile::Kernel& kernel : group.lowered.kernels) text += "\n" + tile::Print(kernel);
    text += "\n";
  }
  return text;
}

}  // namespace kiln::compiler
