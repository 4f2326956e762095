// Graphs become cases, and cases the same graphs.
#include "tests/support/graph_case.h"

#include <gtest/gtest.h>

#include "ir/graph/ops.h"
#include "tests/support/case_graph.h"
#include "tests/support/random_graph.h"

namespace kiln::testing {
namespace {

TEST(GraphCase, ThereAndBackAgain) {
  int compared = 0, without_graph = 0;
  for (const graph::GraphOp op : graph::ApiOps()) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      const graph::Graph given = graph::RandomGraph(seed, {.nodes = 1, .ops = {op}, .api = true});
      if (given.nodes.empty()) continue;
      const Result<Case> c = ToCase(given);
      ASSERT_TRUE(c.ok()) << c.status().message() << "\n" << graph::Print(given);
      const Result<graph::Graph> back = ToGraph(*c);
      if (!back.ok()) {  // reshape, concat and bn_finalize are cases of the C interface alone
        EXPECT_EQ(back.status().code(), Code::kNotSupported) << back.status().message();
        ++without_graph;
        continue;
      }
      // A case's scalars are given at execute time, and its tensors are aligned to 16 bytes.
      graph::Graph plain = given;
      for (graph::Tensor& tensor : plain.tensors) {
        tensor.value.reset();
        tensor.alignment = 16;
      }
      for (graph::Node& node : plain.nodes) {
        if (node.op == graph::GraphOp::kReduction)
          std::get<graph::ReductionAttrs>(node.attrs).deterministic = false;
        for (std::vector<graph::TensorId>* list : {&node.inputs, &node.outputs})
          while (list->size() > 1 && list->back() == graph::kAbsent) list->pop_back();
      }
      EXPECT_EQ(graph::CanonicalText(*back), graph::CanonicalText(plain));
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
  EXPECT_LT(without_graph, 200);
}

TEST(GraphCase, RefusesWhatACaseCannotSay) {
  const graph::Graph g = graph::RandomGraph(1, {.nodes = 1, .ops = {graph::GraphOp::kGather}});
  EXPECT_NE(ToCase(g).status().message().find("gather"), std::string::npos);
}

}  // namespace
}  // namespace kiln::testing
