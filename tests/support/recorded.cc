#include "tests/support/recorded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include "ir/graph/builder.h"
#include "ir/graph/import_recorded.h"
#include "ir/graph/ops.h"
#include "ir/graph/peers.h"

namespace kiln::testing {
namespace {

using graph::Graph;
using graph::Node;
using graph::Tensor;

// Extents that the geometry of a convolution or a window, or a sum over parts, ties together.
std::set<int64_t> TiedExtents(const Graph& g) {
  std::set<int64_t> extents;
  for (const Node& node : g.nodes) {
    if (node.op == graph::GraphOp::kConcat) {
      const auto axis = static_cast<size_t>(node.As<graph::ConcatAttrs>().axis);
      for (const auto* ids : {&node.inputs, &node.outputs})
        for (const graph::TensorId id : *ids) extents.insert(g[id].dims[axis]);
    }
    const bool is_convolution =
        Has(node, graph::kContraction) && node.op != graph::GraphOp::kMatmul;
    if (!is_convolution && !Has(node, graph::kWindow)) continue;
    for (const auto* ids : {&node.inputs, &node.outputs})
      for (const graph::TensorId id : *ids)
        for (size_t d = 2; id != graph::kAbsent && d < g[id].dims.size(); ++d)
          extents.insert(g[id].dims[d]);
  }
  return extents;
}

// Memory for batches whose extents have changed.
void SmallMemory(Graph& g, const Node& node, graph::RaggedAttrs& ragged) {
  const bool is_load = node.op == graph::GraphOp::kRaggedLoad;
  const Dims dims = g[is_load ? node.outputs[0] : node.inputs[0]].dims;
  ragged.strides = PackedStridesLike(dims, ragged.strides);
  g[node.inputs[1]].dims[0] = dims[0] + 1;
  for (const graph::TensorId id : {is_load ? node.inputs[0] : node.inputs[2], node.outputs[0]})
    if (g[id].uid >= 0) g[id].dims[0] = NumElements(dims);
}

Result<Graph> Small(Graph g, const std::set<int64_t>& kept) {
  const auto small = [&](int64_t extent) {
    if (extent <= 16 || kept.contains(extent)) return extent;
    return extent % 8 == 0 ? 8 + 8 * (extent / 8 % 2) : 5 + extent % 8;
  };
  for (Tensor& t : g.tensors) {
    const Dims before = t.strides;
    for (int64_t& extent : t.dims) extent = small(extent);
    t.strides = PackedStridesLike(t.dims, before);
  }
  for (Node& node : g.nodes) {
    if (auto* slice = std::get_if<graph::SliceAttrs>(&node.attrs))
      std::ranges::fill(slice->start, 0);
    if (auto* ragged = std::get_if<graph::RaggedAttrs>(&node.attrs)) SmallMemory(g, node, *ragged);
  }
  RETURN_IF_ERROR(graph::Legalize(g));
  return g;
}

}  // namespace

std::vector<Recorded> RecordedGraphs() {
  std::ifstream file("tests/data/recorded_graphs.jsonl");
  EXPECT_TRUE(file.good());
  std::vector<Recorded> graphs;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (Result<Graph> g = graph::ImportRecorded(line); g.ok())
      graphs.push_back({number, *std::move(g)});
  }
  return graphs;
}

bool NeedsSeveralGpus(const Graph& g) {
  return std::ranges::any_of(g.nodes,
                             [](const Node& node) { return graph::PeersOf(node).size() > 1; });
}

Result<Graph> WithSmallExtents(Graph g) {
  const std::set<int64_t> tied = TiedExtents(g);
  Result<Graph> small = Small(g, {});
  return small.ok() ? std::move(small) : Small(std::move(g), tied);
}

double Work(const Graph& g) {
  double work = 0;
  for (const Node& node : g.nodes) {
    double own = static_cast<double>(NumElements(g[node.outputs[0]].dims));
    if (Has(node, graph::kContraction)) {
      const Dims& w = g[node.inputs[1]].dims;
      own *= node.op == graph::GraphOp::kMatmul ? static_cast<double>(w[w.size() - 2])
             : node.op == graph::GraphOp::kConvWgrad
                 ? static_cast<double>(NumElements(w)) / static_cast<double>(w[1])
                 : static_cast<double>(NumElements(w)) / static_cast<double>(w[0]);
    }
    work += own;
  }
  return work;
}

}  // namespace kiln::testing
