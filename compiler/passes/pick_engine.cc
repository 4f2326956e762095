#include "compiler/passes/pick_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compiler/engines/engine.h"
#include "compiler/tune/candidates.h"
#include "ir/base/check.h"
#include "ir/base/env.h"

namespace kiln::compiler {
namespace {

// Partition has asked before: the engine takes it.
void PickForAttention(Group& group, int engine, const Target& target) {
  group.engine = engine;
  group.knobs = DefaultKnobs(Engines()[static_cast<size_t>(engine)]);
  group.cost = Engines()[static_cast<size_t>(engine)].cost(group, target, group.knobs);
  group.least_cost = group.cost;
}

void Pick(Group& group, int index, const Target& target) {
  const std::vector<Candidate> ranked = RankCandidates(
      group, target, Inputs::kExact, [&](const Engine& engine, std::string_view reason) {
        group.declined.push_back(fmt::format("{}: {}", engine.name, reason));
      });
  // The generic engines take every group: this is the promise of the partitioner.
  CHECK(!ranked.empty(), "no engine takes group {}", index);
  group.engine = ranked.front().engine;
  group.knobs = ranked.front().knobs;
  group.cost = ranked.front().seconds;
  group.least_cost = LeastSeconds(ranked);
  if (!EnvFlag(Env::kWhy)) return;
  for (const std::string& reason : group.declined)
    fmt::print(stderr, "kiln: group {}: {}\n", index, reason);
}

}  // namespace

Result<bool> PickEngine(Module& module, const PassContext& context) {
  for (size_t i = 0; i < module.groups.size(); ++i) {
    Group& group = module.groups[i];
    if (group.kind == GroupKind::kAttention && context.groups_for >= 0)
      PickForAttention(group, context.groups_for, context.target);
    else
      Pick(group, static_cast<int>(i), context.target);
  }
  const int leading = LeadingGroup(module);
  for (Group& group : module.groups) {
    const std::optional<Candidate> advice = context.advisor ? context.advisor(group) : std::nullopt;
    if (!advice) continue;
    // A record may be older than the rule that its knobs break.
    const Engine& engine = Engines()[static_cast<size_t>(advice->engine)];
    if (!std::isfinite(engine.cost(group, context.target, advice->knobs)) ||
        !FitsShared(engine, group, context.target, advice->knobs).ok())
      continue;
    group.engine = advice->engine;
    group.knobs = advice->knobs;
    group.cost = advice->seconds;
  }
  const EngineChoice& choice = context.choice;
  if (leading < 0 || (choice.engine < 0 && choice.knobs.empty())) return !module.groups.empty();

  Group& group = module.groups[leading];
  const auto engines = Engines();
  if (choice.engine >= static_cast<int>(engines.size()))
    return Status::Error(Code::kBadParam, "engine {} does not exist; there are {}", choice.engine,
                         engines.size());
  if (choice.engine >= 0) group.engine = choice.engine;
  const Engine& engine = engines[group.engine];
  if (Status status = engine.supports(group, context.target); !status.ok())
    return std::move(status).Within(fmt::format("engine {} declines the graph", engine.name));
  ASSIGN_OR_RETURN(group.knobs, KnobsWith(engine, choice.knobs));
  if (Status fits = FitsShared(engine, group, context.target, group.knobs); !fits.ok())
    return std::move(fits).Within(fmt::format("engine {}", engine.name));
  group.cost = engine.cost(group, context.target, group.knobs);
  return true;
}

}  // namespace kiln::compiler
