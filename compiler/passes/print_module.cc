#include "compiler/passes/print_module.h"

#include "compiler/engines/registry.h"

namespace kiln::compiler {

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
