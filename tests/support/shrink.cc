#include "tests/support/shrink.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ir/graph/builder.h"
#include "ir/graph/ops.h"

namespace kiln::graph {
namespace {

// Nodes that none of the graph's outputs needs are gone, then tensors that nothing names.
Graph OnlyFor(Graph graph, const std::set<TensorId>& wanted) {
  std::set<TensorId> needed = wanted;
  std::vector<Node> kept;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (std::ranges::none_of(node->outputs, [&](TensorId t) { return needed.contains(t); }))
      continue;
    needed.insert(node->inputs.begin(), node->inputs.end());
    kept.push_back(*node);
  }
  graph.nodes.assign(kept.rbegin(), kept.rend());
  // Outputs that are not wanted need not be memory.
  for (const TensorId t : Outputs(graph)) {
    const int64_t uid = graph[t].uid;
    const bool in_place = std::ranges::count(graph.tensors, uid, &Tensor::uid) > 1;
    if (!wanted.contains(t) && !in_place) graph[t].is_virtual = true, graph[t].uid = -1;
  }
  return graph;
}

// A tensor in the place of what a node made.
Graph WithInput(Graph graph, TensorId id) {
  std::set<TensorId> wanted;
  for (const TensorId t : Outputs(graph))
    if (t != id) wanted.insert(t);
  Tensor given = graph[id];
  int64_t most = 0;
  for (const Tensor& tensor : graph.tensors) most = std::max(most, tensor.uid);
  given.is_virtual = false;
  given.uid = most + 1;
  const TensorId input = graph.AddTensor(given);
  for (Node& node : graph.nodes) std::ranges::replace(node.inputs, id, input);
  return OnlyFor(std::move(graph), wanted);
}

// Every extent of that size, wherever it stands.
Graph WithExtent(Graph graph, int64_t from, int64_t to) {
  for (Tensor& tensor : graph.tensors) {
    const Dims before = PackedStrides(tensor.dims);
    std::ranges::replace(tensor.dims, from, to);
    if (tensor.strides == before) tensor.strides = PackedStrides(tensor.dims);
  }
  return graph;
}

Graph WithPlainStrides(Graph graph, TensorId id) {
  graph[id].strides = PackedStrides(graph[id].dims);
  graph[id].alignment = 16;
  return graph;
}

// All that is one step smaller.
std::vector<std::function<Graph()>> Steps(const Graph& graph) {
  std::vector<std::function<Graph()>> steps;
  const std::vector<TensorId> outputs = Outputs(graph);
  if (outputs.size() > 1) {
    for (const TensorId t : outputs) steps.push_back([&graph, t] { return OnlyFor(graph, {t}); });
    for (const TensorId t : outputs)
      steps.push_back([&graph, t, outputs] {
        std::set<TensorId> wanted(outputs.begin(), outputs.end());
        wanted.erase(t);
        return OnlyFor(graph, wanted);
      });
  }
  std::set<int64_t> extents;
  for (const Node& node : graph.nodes)
    for (const TensorId t : node.outputs)
      if (t != kAbsent && graph.nodes.size() > 1)
        steps.push_back([&graph, t] { return WithInput(graph, t); });
  for (const Tensor& tensor : graph.tensors) extents.insert(tensor.dims.begin(), tensor.dims.end());
  for (const int64_t extent : extents)
    for (const int64_t less : {int64_t{1}, extent / 2, extent - 1})
      if (less >= 1 && less < extent)
        steps.push_back([&graph, extent, less] { return WithExtent(graph, extent, less); });
  for (size_t t = 0; t < graph.tensors.size(); ++t)
    if (graph.tensors[t].strides != PackedStrides(graph.tensors[t].dims))
      steps.push_back([&graph, t] { return WithPlainStrides(graph, static_cast<TensorId>(t)); });
  return steps;
}

}  // namespace

Graph Shrink(const Graph& graph, const std::function<bool(const Graph&)>& fails, int most_tries) {
  Graph best = graph;
  int tries = 0;
  for (bool helped = true; helped && tries < most_tries;) {
    helped = false;
    for (const auto& step : Steps(best)) {
      if (++tries > most_tries) break;
      Graph smaller = step();
      if (!Legalize(smaller).ok() || smaller.nodes.empty() || !fails(smaller)) continue;
      best = std::move(smaller);
      helped = true;
      break;
    }
  }
  return best;
}

}  // namespace kiln::graph
