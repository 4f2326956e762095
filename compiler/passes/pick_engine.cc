#include "compiler/passes/pick_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

#include "compiler/engines/engine.h"
#include "compiler/engines/knob_types.h"
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

int64_t ScratchBytes(const Group& group, const Candidate& candidate, const Target& target) {
  const Engine& engine = Engines()[static_cast<size_t>(candidate.engine)];
  const Result<Lowered> lowered = engine.lower(group, target, candidate.knobs);
  if (!lowered.ok()) return std::numeric_limits<int64_t>::max();
  return std::accumulate(lowered->scratch_bytes.begin(), lowered->scratch_bytes.end(), int64_t{0});
}

// Whether slices of a sum are left at their default, which is to have none or to leave their number
// to the engine.
bool IsWhole(const Candidate& candidate) {
  const Engine& engine = Engines()[static_cast<size_t>(candidate.engine)];
  for (size_t k = 0; k < engine.knobs.size(); ++k) {
    const KnobRow& row = engine.knobs[k];
    if (row.cudnn_type == kKnobSplitKSlices && candidate.knobs[k] != row.domain.front())
      return false;
  }
  return true;
}

// The first of those that need the least workspace. Only lowering tells, so not all are asked:
// those first that do not divide sums.
const Candidate& LeastWorkspace(const Group& group, const std::vector<Candidate>& ranked,
                                const Target& target) {
  constexpr size_t kMostAsked = 64;
  std::vector<const Candidate*> order;
  for (const Candidate& candidate : ranked) order.push_back(&candidate);
  std::ranges::stable_partition(order, [](const Candidate* c) { return IsWhole(*c); });
  const Candidate* best = order.front();
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < std::min(order.size(), kMostAsked) && least > 0; ++i) {
    const int64_t bytes = ScratchBytes(group, *order[i], target);
    if (bytes >= least) continue;
    least = bytes;
    best = order[i];
  }
  return *best;
}

void Pick(Group& group, int index, const PassContext& context) {
  const Target& target = context.target;
  const std::vector<Candidate> ranked = RankCandidates(
      group, target, Inputs::kExact, [&](const Engine& engine, std::string_view reason) {
        group.declined.push_back(fmt::format("{}: {}", engine.name, reason));
      });
  // The generic engines take every group: this is the promise of the partitioner.
  CHECK(!ranked.empty(), "no engine takes group {}", index);
  const bool least = context.choice.least_workspace && !LaunchesNothing(group);
  const Candidate& taken = least ? LeastWorkspace(group, ranked, target) : ranked.front();
  group.engine = taken.engine;
  group.knobs = taken.knobs;
  group.cost = taken.seconds;
  group.least_cost = LeastSeconds(ranked);
}

// KILN_WHY=1: what `kiln explain` says, of every plan that a program makes.
void Tell(const Module& module) {
  for (const std::string& reason : module.why) fmt::print(stderr, "kiln: {}\n", reason);
  for (size_t i = 0; i < module.groups.size(); ++i) {
    const Group& group = module.groups[i];
    for (const std::string& reason : group.why)
      fmt::print(stderr, "kiln: group {}: {}\n", i, reason);
    const Engine& engine = Engines()[static_cast<size_t>(group.engine)];
    fmt::print(stderr, "kiln: group {}: takes {} {}, modelled {:.1f} us\n", i, engine.name,
               KnobText(engine, group.knobs), group.cost * 1e6);
    for (const std::string& reason : group.declined)
      fmt::print(stderr, "kiln: group {}: {}\n", i, reason);
  }
}

Result<bool> PickAll(Module& module, const PassContext& context) {
  for (size_t i = 0; i < module.groups.size(); ++i) {
    Group& group = module.groups[i];
    if (group.kind == GroupKind::kAttention && context.groups_for >= 0)
      PickForAttention(group, context.groups_for, context.target);
    else
      Pick(group, static_cast<int>(i), context);
  }
  const int leading = LeadingGroup(module);
  for (Group& group : module.groups) {
    const std::optional<Candidate> advice = context.advisor ? context.advisor(group) : std::nullopt;
    if (!advice || context.choice.least_workspace) continue;
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

}  // namespace

Result<bool> PickEngine(Module& module, const PassContext& context) {
  Result<bool> picked = PickAll(module, context);
  if (picked.ok() && EnvFlag(Env::kWhy)) Tell(module);
  return picked;
}

}  // namespace kiln::compiler
