#include "ir/graph/batch.h"

#include <vector>

#include "ir/graph/ops.h"

namespace kiln::graph {
namespace {

// The filter operand of a convolution, which has no images; absent for other operations.
TensorId FilterOf(const Node& node) {
  switch (node.op) {
    case GraphOp::kConvFprop:
    case GraphOp::kConvDgrad:
      return node.inputs[1];
    case GraphOp::kConvWgrad:
      return node.outputs[0];
    default:
      return kAbsent;
  }
}

}  // namespace

int64_t BatchOf(const Graph& graph) {
  if (graph.nodes.empty() || graph.nodes[0].inputs.empty()) return 0;
  const TensorId first = graph.nodes[0].inputs[0];
  return first == kAbsent || graph[first].dims.empty() ? 0 : graph[first].dims[0];
}

Graph WithBatch(Graph graph, int64_t images) {
  const int64_t batch = BatchOf(graph);
  std::vector<char> is_filter(graph.tensors.size(), 0);
  for (const Node& node : graph.nodes)
    if (const TensorId id = FilterOf(node); id != kAbsent) is_filter[static_cast<size_t>(id)] = 1;
  for (TensorId id = 0; id < static_cast<TensorId>(graph.tensors.size()); ++id) {
    Dims& dims = graph[id].dims;
    if (dims.empty() || dims[0] != batch || is_filter[static_cast<size_t>(id)] != 0) continue;
    dims[0] = images;
  }
  return graph;
}

}  // namespace kiln::graph
