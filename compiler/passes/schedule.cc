#include "compiler/passes/schedule.h"

#include "compiler/engines/engine.h"

namespace kiln::compiler {

Result<bool> Schedule(Module& module, const PassContext& context) {
  for (Group& group : module.groups) {
    // Where the engine was picked by what it becomes, that is known.
    if (LaunchesNothing(group) || !group.lowered.launches.empty()) continue;
    const Engine& engine = Engines()[group.engine];
    ASSIGN_OR_RETURN(group.lowered, engine.lower(group, context.target, group.knobs));
  }
  module.form = Form::kTiled;
  return true;
}

}  // namespace kiln::compiler
