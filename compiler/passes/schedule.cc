#include "compiler/passes/schedule.h"

#include <unordered_map>

#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "compiler/passes/group_key.h"

namespace kiln::compiler {

Result<bool> Schedule(Module& module, const PassContext& context) {
  std::unordered_map<std::string, const Group*> first;  // of equal groups
  for (Group& group : module.groups) {
    // An engine that was picked by what the group becomes has lowered it already.
    if (LaunchesNothing(group) || !group.lowered.launches.empty()) continue;
    const auto [known, is_new] = first.try_emplace(GroupKey(group), &group);
    if (!is_new) {
      group.lowered = known->second->lowered;
      continue;
    }
    const Engine& engine = Engines()[group.engine];
    ASSIGN_OR_RETURN(const auto plan, engine.plan(group, context.target));
    ASSIGN_OR_RETURN(group.lowered, plan->Lower(group.knobs));
  }
  module.form = Form::kTiled;
  return true;
}

}  // namespace kiln::compiler
