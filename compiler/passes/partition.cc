#include "compiler/passes/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/engines/candidates.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "compiler/passes/extract_groups.h"
#include "compiler/passes/place_nodes.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::NodeId;

const char* NameOf(GroupKind pattern) {
  if (pattern == GroupKind::kRows) return "rows";
  if (pattern == GroupKind::kProducts) return "products";
  return pattern == GroupKind::kRecurrence ? "recurrent layers" : "attention";
}

// True if an engine runs this pattern as one group. Attention and recurrent layers need the engine
// that is asked for, or else one that may be chosen. Rows need any that may be chosen, so that all
// engines that a graph is offered for see the same groups.
bool IsTaken(const Group& group, const PassContext& context, std::vector<std::string>& why) {
  const auto engines = Engines();
  const bool rows = group.kind == GroupKind::kRows;
  for (size_t e = 0; e < engines.size(); ++e) {
    const bool asked = context.groups_for == static_cast<int>(e);
    if (!rows && context.groups_for >= 0 && !asked) continue;
    const Status status = Supports(engines[e], group, context.target);
    // Plans whose engines round have groups that none of these takes, too.
    const bool offered = rows ? !OnlyOnRequest(engines[e], group)
                              : asked || Offers(context.inputs, engines[e], group) ||
                                    Offers(Inputs::kExact, engines[e], group);
    if (status.ok() && offered) return true;
    // Sentences of engines on groups that they are not for help nobody.
    const bool says = (asked || rows) && status.code() != Code::kUnsupportedGraphPattern;
    if (says)
      why.push_back(fmt::format("{} as one group: {}: {}", NameOf(group.kind), engines[e].name,
                                status.message()));
  }
  return false;
}

// Assemblies that are part of no pattern, and none of whose parts a pattern would have to give up.
std::vector<Assembly> AssembliesWithout(const Graph& g, const std::vector<FusedPattern>& patterns) {
  std::vector<Assembly> assemblies = FindAssemblies(g);
  if (assemblies.empty()) return assemblies;
  std::set<NodeId> inside;
  for (const FusedPattern& pattern : patterns)
    // Stages store as loops do by themselves, and products as contractions.
    if (pattern.kind != GroupKind::kRecurrence && pattern.kind != GroupKind::kProducts)
      inside.insert(pattern.members.begin(), pattern.members.end());
  const std::vector<NodeId> producers = graph::Producers(g);
  std::erase_if(assemblies, [&](const Assembly& assembly) {
    return inside.contains(assembly.node) ||
           std::ranges::any_of(assembly.parts, [&](const Assembly::Part& part) {
             return inside.contains(producers[part.tensor]);
           });
  });
  return assemblies;
}

}  // namespace

Result<bool> Partition(Module& module, const PassContext& context) {
  const bool stores_little = context.choice.least_workspace;
  const LinkedGraph linked(module.graph);
  const std::vector<FusedPattern> all = FindFusedPatterns(module.graph, context.target);
  std::set<NodeId> unpacked;
  if (!stores_little) unpacked = UnpackedForChains(module.graph, all);
  std::set<NodeId> stored = unpacked;
  std::vector<char> dropped(all.size(), 0);
  const std::vector<Assembly> assemblies = AssembliesWithout(module.graph, all);
  // Each round stores more nodes, or leaves patterns to several groups, so this ends.
  while (true) {
    const std::vector<size_t> chosen = Disjoint(all, dropped, module.graph.nodes.size());
    PlacingRules rules{context.target, stores_little, stored, {}, assemblies};
    for (const size_t i : chosen) rules.patterns.push_back(&all[i]);
    const auto drop = [&](int pattern) { dropped[chosen[static_cast<size_t>(pattern)]] = 1; };
    const Placement placement = PlaceNodes(linked, std::move(rules));
    if (placement.tangled != kNoPattern) {
      drop(placement.tangled);
      continue;
    }
    if (!placement.too_large.empty()) {
      std::ranges::for_each(placement.too_large, drop);
      stored = unpacked;
      continue;
    }
    std::vector<NodeId> to_store = ReadersOfOverwritten(linked, placement);
    std::ranges::copy(placement.to_store, std::back_inserter(to_store));
    if (!to_store.empty()) {
      stored.insert(to_store.begin(), to_store.end());
      continue;
    }
    module.groups = ExtractGroups(linked, placement);
    bool declined = false;
    for (Group& group : module.groups) group.stores_little = stores_little;
    for (size_t i = 0; i < module.groups.size(); ++i) {
      const int pattern = placement.groups[i].pattern;
      if (pattern == kNoPattern || IsTaken(module.groups[i], context, module.why)) continue;
      drop(pattern);
      declined = true;
    }
    if (!declined) break;
    stored = unpacked;
  }
  module.form = Form::kGrouped;
  return true;
}

}  // namespace kiln::compiler
