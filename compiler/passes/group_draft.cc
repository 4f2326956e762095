#include "compiler/passes/group_draft.h"

#include <algorithm>
#include <unordered_set>

namespace kiln::compiler {

using graph::Graph;
using graph::kAbsent;
using graph::NodeId;
using graph::TensorId;

bool IsMemory(const LinkedGraph& linked, const Placement& placement, TensorId x, int group) {
  const int home = placement.home[x];
  return linked.producers[x] < 0 || (home != kNoGroup && home != group);
}

std::vector<NodeId> NodesOf(const LinkedGraph& linked, const Placement& placement, int group,
                            const std::function<bool(TensorId)>& is_seen) {
  std::unordered_set<NodeId> inside;
  std::vector<NodeId> pending = placement.groups[group].members;
  while (!pending.empty()) {
    const NodeId n = pending.back();
    pending.pop_back();
    if (!inside.insert(n).second) continue;
    for (const TensorId x : linked.g.nodes[n].inputs)
      if (x != kAbsent && !IsMemory(linked, placement, x, group) && !is_seen(x))
        pending.push_back(linked.producers[x]);
  }
  std::vector<NodeId> nodes(inside.begin(), inside.end());
  std::ranges::sort(nodes);
  return nodes;
}

std::vector<NodeId> ReadersOfOverwritten(const LinkedGraph& linked, const Placement& placement) {
  const Graph& g = linked.g;
  std::map<int64_t, int> writer;  // uid → group
  for (size_t t = 0; t < g.tensors.size(); ++t)
    if (placement.home[t] != kNoGroup && !g.tensors[t].is_virtual && g.tensors[t].uid >= 0)
      writer[g.tensors[t].uid] = placement.home[t];
  std::vector<NodeId> readers;
  if (writer.empty()) return readers;
  const int groups = static_cast<int>(placement.groups.size());
  for (int group = 0; group < groups; ++group) {
    const auto is_overwritten = [&](TensorId x) {
      if (x == kAbsent || linked.producers[x] >= 0 || g[x].by_value) return false;
      const auto over = writer.find(g[x].uid);
      return over != writer.end() && over->second < group;
    };
    for (const NodeId n : NodesOf(linked, placement, group)) {
      if (placement.home[g.nodes[n].outputs[0]] != kNoGroup) continue;
      if (std::ranges::any_of(g.nodes[n].inputs, is_overwritten)) readers.push_back(n);
    }
  }
  return readers;
}

}  // namespace kiln::compiler
