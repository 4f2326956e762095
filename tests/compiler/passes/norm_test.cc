// Norms by interpretation: each case of tests/cases/norm.txt, and random graphs around norms, as
// the GPU's and the CPU's kernels compute them, against the f64 evaluation of the graph.
#include <gtest/gtest.h>

#include "ir/graph/ops.h"
#include "tests/support/case_graph.h"
#include "tests/support/cases.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;

TEST(NormTest, CasesRunRight) {
  const testing::CaseFile file = testing::LoadCases("tests/cases/norm.txt");
  ASSERT_TRUE(file.errors.empty()) << file.errors[0];
  int run = 0;
  for (const testing::Case& c : file.cases) {
    if (c.expects_bad_param) continue;
    SCOPED_TRACE(c.Label());
    const Result<graph::Graph> g = testing::ToGraph(c);
    ASSERT_TRUE(g.ok()) << g.status().message();
    EXPECT_EQ(CheckOnBoth(*g, graph::RandomInputs(*g, 11, true), 2e-4).message(), "");
    ++run;
  }
  EXPECT_GE(run, 70);
}

TEST(NormTest, IllegalCasesAreRefused) {
  const testing::CaseFile file = testing::LoadCases("tests/cases/norm.txt");
  int refused = 0;
  for (const testing::Case& c : file.cases) {
    if (!c.expects_bad_param) continue;
    EXPECT_FALSE(testing::ToGraph(c).ok()) << c.Label();
    ++refused;
  }
  EXPECT_GE(refused, 4);
}

TEST(NormTest, RandomGraphsRunRight) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    // One node: the mean of what a norm before it made is nothing but rounding.
    graph::RandomGraphOptions options{
        .nodes = 1,
        .ops = {GraphOp::kNormForward, GraphOp::kNormBackward, GraphOp::kBnBwdWeights},
        .empty_tensors = seed % 5 == 0};
    options.dtypes = {DType::kF32, DType::kF16, DType::kBF16};
    const graph::Graph g = graph::RandomGraph(seed, options);
    EXPECT_EQ(CheckOnBoth(g, graph::RandomInputs(g, seed), 2e-3).message(), "");
  }
}

}  // namespace
}  // namespace kiln::compiler
