// Attention by interpretation: each case of tests/cases/sdpa.txt, and random graphs around
// attention, as the GPU's and the CPU's kernels compute them, against the f64 evaluation of the
// graph. A text of each case, evaluated, agrees with the oracle in tests/numerics.
#include <gtest/gtest.h>

#include "ir/graph/ops.h"
#include "tests/support/case_graph.h"
#include "tests/support/cases.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;

// Numbers of at most 1, but for lengths and pages: exp(score - stats) stays within f16.
graph::TensorValues SmallInputs(const graph::Graph& g, uint64_t seed) {
  graph::TensorValues inputs = graph::RandomInputs(g, seed);
  for (auto& [id, values] : inputs)
    if (IsFloat(g[id].dtype))
      for (double& v : values) v /= 8;
  return inputs;
}

TEST(SdpaTest, CasesRunRight) {
  const testing::CaseFile file = testing::LoadCases("tests/cases/sdpa.txt");
  ASSERT_TRUE(file.errors.empty()) << file.errors[0];
  int run = 0;
  for (const testing::Case& c : file.cases) {
    if (c.expects_bad_param) continue;
    SCOPED_TRACE(c.Label());
    const Result<graph::Graph> g = testing::ToGraph(c);
    ASSERT_TRUE(g.ok()) << g.status().message();
    EXPECT_EQ(CheckOnBoth(*g, SmallInputs(*g, 11), 1e-2).message(), "");
    ++run;
  }
  EXPECT_GE(run, 60);
}

TEST(SdpaTest, RandomGraphsRunRight) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    const graph::Graph g =
        graph::RandomGraph(seed, {.nodes = 1,
                                  .ops = {GraphOp::kSdpaFwd, GraphOp::kSdpaBwd,
                                          GraphOp::kPagedCacheLoad, GraphOp::kGather}});
    EXPECT_EQ(CheckOnBoth(g, SmallInputs(g, seed), 1e-2).message(), "");
  }
}

}  // namespace
}  // namespace kiln::compiler
