#include "compiler/passes/dead_code.h"

#include <algorithm>

namespace kiln::compiler {

using graph::TensorId;

bool RemoveDeadNodes(graph::Graph& graph) {
  std::vector<char> needed(graph.tensors.size(), 0);
  std::vector<graph::Node> kept;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    graph::Node& node = graph.nodes[i];
    const bool alive = std::ranges::any_of(node.outputs, [&](TensorId id) {
      return id != graph::kAbsent && (needed[id] || !graph[id].is_virtual);
    });
    if (!alive) continue;
    for (TensorId id : node.inputs)
      if (id != graph::kAbsent) needed[id] = 1;
    kept.push_back(std::move(node));
  }
  const bool changed = kept.size() != graph.nodes.size();
  std::ranges::reverse(kept);
  graph.nodes = std::move(kept);
  return changed;
}

}  // namespace kiln::compiler
