// Tests of what random graphs are made of: every operation of the table, and what their memory can
// look like.
#include "tests/support/random_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/graph/builder.h"
#include "ir/graph/norm.h"
#include "ir/graph/ops.h"
#include "ir/shape.h"

namespace kiln::graph {
namespace {

struct Seen {
  std::set<GraphOp> ops;
  int shared = 0, overlapping = 0, from_vectors = 0, to_vectors = 0, normal = 0, peers = 0;
};

void Look(const Graph& graph, Seen& seen) {
  for (const TensorId id : Inputs(graph)) {
    const Tensor& t = graph[id];
    const bool steps_nowhere = std::ranges::find(t.strides, 0) != t.strides.end();
    seen.shared += steps_nowhere;
    seen.overlapping += !steps_nowhere && SpanElements(t.dims, t.strides) < NumElements(t.dims);
    seen.from_vectors += t.name.starts_with("vectors");
  }
  for (const Node& node : graph.nodes) {
    seen.ops.insert(node.op);
    if (node.op == GraphOp::kTranspose) {
      const Dims& order = node.As<TransposeAttrs>().permutation;
      seen.to_vectors += !graph[node.outputs[0]].is_virtual && order.back() == 2;
    }
    if (node.op == GraphOp::kRng)
      seen.normal += node.As<RngAttrs>().distribution == RngDistribution::kNormal;
    if (node.op == GraphOp::kNormForward)
      seen.peers += node.inputs.size() > static_cast<size_t>(NormForwardIn::kPeers);
    if (node.op == GraphOp::kNormBackward)
      seen.peers += node.inputs.size() > static_cast<size_t>(NormBackwardIn::kPeers);
  }
}

TEST(RandomGraphs, HaveAllThatAGraphCanHave) {
  Seen seen;
  for (uint64_t seed = 1; seed <= 4000; ++seed) Look(RandomGraph(seed, MixedOptions(seed)), seen);
#define GRAPH_OP(Name, ...) EXPECT_TRUE(seen.ops.contains(GraphOp::k##Name)) << #Name;
#include "ir/graph/graph_ops.def"
#undef GRAPH_OP
  for (const int count :
       {seen.shared, seen.overlapping, seen.from_vectors, seen.to_vectors, seen.normal, seen.peers})
    EXPECT_GE(count, 10);
  std::printf(
      "%d operands see places several times, %d overlap, %d are in vectors, %d results; %d "
      "normal, %d peers\n",
      seen.shared, seen.overlapping, seen.from_vectors, seen.to_vectors, seen.normal, seen.peers);
}

TEST(RandomGraphs, OfTheInterfaceHaveNoLayoutsOfTheirOwn) {
  Seen seen;
  for (uint64_t seed = 1; seed <= 500; ++seed) Look(RandomGraph(seed, ApiOptions(seed)), seen);
  EXPECT_EQ(seen.shared + seen.overlapping + seen.from_vectors + seen.peers, 0);
}

// Elements at one place have one value.
TEST(RandomGraphs, InputsAgreeWithTheirMemory) {
  GraphBuilder b("shared");
  const TensorId x = b.Input("x", DType::kF32, {3, 4}, {1, 1});
  b.Output(b.Pointwise(PointwiseMode::kNeg, {x}), "y", DType::kF32);
  const Graph graph = *b.Finish();
  const std::vector<double> values = RandomInputs(graph, 5).begin()->second;
  std::set<double> distinct(values.begin(), values.end());
  for (int row = 1; row < 3; ++row)
    for (int column = 0; column < 3; ++column)
      EXPECT_EQ(values[static_cast<size_t>(row * 4 + column)],
                values[static_cast<size_t>((row - 1) * 4 + column + 1)]);
  EXPECT_GT(distinct.size(), 2u);
}

}  // namespace
}  // namespace kiln::graph
