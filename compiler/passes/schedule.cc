#include "compiler/passes/schedule.h"

#include <algorithm>

#include "compiler/engines/engine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

Result<bool> Schedule(Module& module, const PassContext& context) {
  for (Group& group : module.groups) {
    const auto empty = [&](graph::TensorId id) { return NumElements(group.graph[id].dims) == 0; };
    if (std::ranges::all_of(graph::Outputs(group.graph), empty)) continue;
    const Engine& engine = Engines()[group.engine];
    ASSIGN_OR_RETURN(group.lowered, engine.lower(group, context.target, group.knobs));
  }
  module.form = Form::kTiled;
  return true;
}

}  // namespace kiln::compiler
