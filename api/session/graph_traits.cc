#include "api/session/graph_traits.h"

#include <algorithm>

#include "ir/graph/ops.h"

namespace kiln::api {
namespace {

using graph::GraphOp;

// Contractions, and networks, which become some.
bool IsOfProducts(const graph::Node& node) {
  return graph::Has(node, graph::kContraction) || node.op == GraphOp::kRnnForward ||
         node.op == GraphOp::kRnnBackwardData || node.op == GraphOp::kRnnBackwardWeights;
}

// The number of products or loops over time that the node holds, as far as two of them may be
// grouped.
size_t PartsOf(const graph::Node& node) {
  const bool is_network =
      (node.op == GraphOp::kRnnForward || node.op == GraphOp::kRnnBackwardData) &&
      node.As<graph::RnnAttrs>().layers > 1;
  const bool is_whole = is_network || node.op == GraphOp::kRnnBackwardWeights ||
                        node.op == GraphOp::kSdpaFwd || node.op == GraphOp::kSdpaBwd;
  if (is_whole) return 2;
  return graph::Has(node, graph::kContraction) || graph::Has(node, graph::kRecurrence) ? 1 : 0;
}

}  // namespace

bool MayHoldWholes(const graph::Graph& graph) {
  size_t parts = 0;
  for (const graph::Node& node : graph.nodes) parts += PartsOf(node);
  return parts >= 2;
}

bool Multiplies(const graph::Graph& graph, std::initializer_list<DType> types) {
  return std::ranges::any_of(graph.nodes, [&](const graph::Node& node) {
    return IsOfProducts(node) && std::ranges::any_of(node.inputs, [&](graph::TensorId id) {
             return id >= 0 && std::ranges::find(types, graph[id].dtype) != types.end();
           });
  });
}

bool Convolves(const graph::Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const graph::Node& node) {
    return graph::Has(node, graph::kContraction) && node.op != GraphOp::kMatmul;
  });
}

}  // namespace kiln::api
