#include "compiler/passes/pick_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>

#include "compiler/engines/candidates.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/registry.h"
#include "compiler/passes/group_key.h"
#include "compiler/passes/leading_group.h"
#include "ir/base/check.h"
#include "ir/base/env.h"
#include "ir/base/hash.h"
#include "ir/base/printable.h"

namespace kiln::compiler {
namespace {

// Partition has asked before: the engine takes it.
void PickForAttention(Group& group, int index, const Target& target) {
  const Engine& engine = Engines()[static_cast<size_t>(index)];
  const PlanResult plan = engine.plan(group, target);
  group.engine = index;
  group.knobs = DefaultKnobs(engine);
  group.cost = plan.ok() ? (*plan)->EstimateOf(group.knobs).seconds : kNoSeconds;
  group.least_cost = group.cost;
}

int64_t ScratchBytes(const Lowered& lowered) {
  return std::accumulate(lowered.scratch_bytes.begin(), lowered.scratch_bytes.end(), int64_t{0});
}

// The way in which a candidate divides sums: not at all, as the engine likes, or in slices that it
// names.
enum class Division : uint8_t { kNone, kEngines, kNamed };

Division DivisionOf(const Candidate& candidate) {
  const Engine& engine = Engines()[static_cast<size_t>(candidate.engine)];
  Division division = Division::kNone;
  for (size_t k = 0; k < engine.knobs.size(); ++k) {
    const KnobRow& row = engine.knobs[k];
    const int value = candidate.knobs[k];
    const bool divides = (row.cudnn_type == kKnobSplitKSlices && value != 1) ||
                         (row.cudnn_type == kKnobStreamK && value != 0);
    if (!divides) continue;
    const bool named = value != row.domain.front();
    division = std::max(division, named ? Division::kNamed : Division::kEngines);
  }
  return division;
}

// In the order in which they probably need little workspace: those first that do not divide sums,
// and of each engine one before the second of any, since an engine's mostly need the same.
std::vector<const Candidate*> ByWorkspace(const std::vector<Candidate>& ranked) {
  struct Place {
    Division division;
    int nth;  // of its engine
    const Candidate* candidate;
  };
  std::map<std::pair<int, Division>, int> seen;
  std::vector<Place> places;
  for (const Candidate& c : ranked) {
    const Division division = DivisionOf(c);
    places.push_back({division, seen[{c.engine, division}]++, &c});
  }
  std::ranges::stable_sort(places, {}, [](const Place& p) { return std::pair(p.division, p.nth); });
  std::vector<const Candidate*> order;
  for (const Place& place : places) order.push_back(place.candidate);
  return order;
}

// The fastest that needs at most `limit` bytes of its own, or else the first of those that need
// the least, with the group lowered for it. Only lowering tells, so not all are asked.
const Candidate& WithinScratch(Group& group, const std::vector<Candidate>& ranked,
                               const Target& target, int64_t limit) {
  constexpr size_t kMostAsked = 16;
  std::vector<const Candidate*> order = ByWorkspace(ranked);
  order.resize(std::min(order.size(), kMostAsked));
  for (size_t i = std::min(limit > 0 ? ranked.size() : 0, kMostAsked); i-- > 0;)
    order.insert(order.begin(), &ranked[i]);
  const Candidate* best = order.front();
  int64_t least = std::numeric_limits<int64_t>::max();
  std::map<int, PlanResult> plans;  // of engines
  for (const Candidate* candidate : order) {
    if (least <= limit) break;
    auto plan = plans.find(candidate->engine);
    if (plan == plans.end()) {
      const Engine& engine = Engines()[static_cast<size_t>(candidate->engine)];
      plan = plans.emplace(candidate->engine, engine.plan(group, target)).first;
    }
    if (!plan->second.ok()) continue;
    Result<Lowered> lowered = (*plan->second)->Lower(candidate->knobs);
    if (!lowered.ok() || ScratchBytes(*lowered) >= least) continue;
    least = ScratchBytes(*lowered);
    best = candidate;
    group.lowered = *std::move(lowered);
  }
  return *best;
}

Declined DeclinedBy(Group& group) {
  return [&group](const Engine& engine, std::string_view reason) {
    group.declined.push_back(fmt::format("{}: {}", engine.name, reason));
  };
}

// Candidates of a group. In a plan whose engine rounds what it multiplies, other contractions may,
// too: the plan says so.
std::vector<Candidate> RankedIn(Group& group, const PassContext& context) {
  std::vector<Candidate> ranked =
      RankCandidates(group, context.target, Inputs::kExact, DeclinedBy(group));
  if (context.inputs != Inputs::kRounded) return ranked;
  const std::vector<Candidate> rounded = RankCandidates(group, context.target, Inputs::kRounded);
  std::vector<Candidate> both;
  std::ranges::merge(ranked, rounded, std::back_inserter(both), {}, &Candidate::seconds,
                     &Candidate::seconds);
  return both;
}

// The sentence of the engine that would take the group on another device.
Status WhyNobodyTakes(const Group& group, const Target& target) {
  for (const Engine& engine : Engines()) {
    Status status = Supports(engine, group, target);
    if (status.code() != Code::kUnsupportedGraphPattern)
      return std::move(status).Within(engine.name);
  }
  return Status::Text(Code::kNotSupported, "no engine knows what the group computes");
}

Status Pick(Group& group, int index, const PassContext& context) {
  const Target& target = context.target;
  const std::vector<Candidate> ranked = RankedIn(group, context);
  if (ranked.empty()) {
    // The generic engines take every group of one device: this is the promise of the partitioner.
    CHECK(group.kind == GroupKind::kPeers, "no engine takes group {}", index);
    return WhyNobodyTakes(group, target);
  }
  const int64_t limit = context.choice.least_workspace ? 0 : context.scratch_limit;
  const Candidate& taken = limit >= 0 && !LaunchesNothing(group)
                               ? WithinScratch(group, ranked, target, limit)
                               : ranked.front();
  group.engine = taken.engine;
  group.knobs = taken.knobs;
  group.cost = taken.seconds;
  group.least_cost = LeastSeconds(ranked);
  return {};
}

void PickAs(const Group& equal, Group& group) {
  group.engine = equal.engine;
  group.knobs = equal.knobs;
  group.cost = equal.cost;
  group.least_cost = equal.least_cost;
  group.declined.insert(group.declined.end(), equal.declined.begin(), equal.declined.end());
  group.lowered = equal.lowered;
}

// A graph by its name; those of the C interface have none, and get the start of their text's hash.
std::string NameOf(const graph::Graph& graph) {
  if (!graph.name.empty() && graph.name != graph::Graph{}.name) return Printable(graph.name);
  constexpr size_t kDigits = 8;
  return fmt::format("graph {}", HashBytes(graph::CanonicalText(graph)).Hex().substr(0, kDigits));
}

// KILN_WHY=1: what `kiln explain` says, of every plan that a program makes. Programs make many, so
// each line names its graph.
void Tell(const Module& module) {
  const std::string graph = NameOf(module.graph);
  for (const std::string& reason : module.why) fmt::print(stderr, "kiln: {}: {}\n", graph, reason);
  for (size_t i = 0; i < module.groups.size(); ++i) {
    const Group& group = module.groups[i];
    for (const std::string& reason : group.why)
      fmt::print(stderr, "kiln: {}: group {}: {}\n", graph, i, reason);
    const Engine& engine = Engines()[static_cast<size_t>(group.engine)];
    fmt::print(stderr, "kiln: {}: group {}: takes {} {}, modelled {:.1f} us\n", graph, i,
               engine.name, KnobText(engine, group.knobs), group.cost * 1e6);
    for (const std::string& reason : group.declined)
      fmt::print(stderr, "kiln: {}: group {}: {}\n", graph, i, reason);
  }
}

Result<bool> PickAll(Module& module, const PassContext& context) {
  // A group alone leads, whatever it costs: where the client has chosen, nothing is to be compared.
  const bool is_chosen =
      module.groups.size() == 1 && LeadingGroup(module) == 0 && context.choice.engine >= 0;
  std::unordered_map<std::string, const Group*> first;  // of equal groups
  for (size_t i = 0; i < module.groups.size(); ++i) {
    Group& group = module.groups[i];
    const auto [known, is_new] = first.try_emplace(GroupKey(group), &group);
    if (!is_new)
      PickAs(*known->second, group);
    else if (group.kind == GroupKind::kAttention && context.groups_for >= 0)
      PickForAttention(group, context.groups_for, context.target);
    else if (is_chosen)
      TakersOf(group, context.target, Inputs::kExact, DeclinedBy(group));
    else
      RETURN_IF_ERROR(Pick(group, static_cast<int>(i), context));
  }
  const int leading = LeadingGroup(module);
  const bool is_limited = context.choice.least_workspace || context.scratch_limit >= 0;
  for (Group& group : module.groups) {
    if (is_chosen || !context.advisor || is_limited) continue;
    const std::optional<Candidate> advice = context.advisor(group);
    if (!advice) continue;
    // A record may be older than the rule that its knobs break.
    const Engine& engine = Engines()[static_cast<size_t>(advice->engine)];
    const PlanResult plan = engine.plan(group, context.target);
    if (!plan.ok()) continue;
    const Estimate of = (*plan)->EstimateOf(advice->knobs);
    if (!std::isfinite(of.seconds) ||
        !FitsShared(engine, group, context.target, advice->knobs, of.shared_bytes).ok())
      continue;
    group.engine = advice->engine;
    group.knobs = advice->knobs;
    group.cost = advice->seconds;
  }
  const EngineChoice& choice = context.choice;
  if (leading < 0 || (choice.engine < 0 && choice.knobs.empty())) return !module.groups.empty();

  Group& group = module.groups[leading];
  group.lowered = {};
  const auto engines = Engines();
  if (choice.engine >= static_cast<int>(engines.size()))
    return Status::Error(Code::kBadParam, "engine {} does not exist; there are {}", choice.engine,
                         engines.size());
  if (choice.engine >= 0) group.engine = choice.engine;
  const Engine& engine = engines[group.engine];
  PlanResult plan = engine.plan(group, context.target);
  if (!plan.ok())
    return std::move(plan).status().Within(
        fmt::format("engine {} declines the graph", engine.name));
  ASSIGN_OR_RETURN(group.knobs, KnobsWith(engine, choice.knobs));
  const Estimate of = (*plan)->EstimateOf(group.knobs);
  Status fits = FitsShared(engine, group, context.target, group.knobs, of.shared_bytes);
  if (!fits.ok()) return std::move(fits).Within(fmt::format("engine {}", engine.name));
  group.cost = of.seconds;
  return true;
}

}  // namespace

Result<bool> PickEngine(Module& module, const PassContext& context) {
  Result<bool> picked = PickAll(module, context);
  if (picked.ok() && EnvFlag(Env::kWhy)) Tell(module);
  return picked;
}

}  // namespace kiln::compiler
