// Operations by interpretation: each case of their files, and random graphs of them, as the GPU's
// and the CPU's kernels compute them, against the f64 evaluation of the graph.
#include <gtest/gtest.h>

#include "ir/graph/ops.h"
#include "tests/support/case_graph.h"
#include "tests/support/cases.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;

struct Operations {
  const char* file;
  std::vector<GraphOp> ops;
  int least_cases;
};

class OperationsTest : public ::testing::TestWithParam<Operations> {};

// How many cases of a file ran.
int RunCases(const std::string& name) {
  const testing::CaseFile file = testing::LoadCases("tests/cases/" + name);
  EXPECT_TRUE(file.errors.empty()) << file.errors[0];
  int run = 0;
  for (const testing::Case& c : file.cases) {
    SCOPED_TRACE(c.Label());
    const Result<graph::Graph> g = testing::ToGraph(c);
    if (c.expects_bad_param) continue;
    EXPECT_TRUE(g.ok()) << g.status().message();
    if (!g.ok()) continue;
    EXPECT_EQ(CheckOnBoth(*g, graph::RandomInputs(*g, 11, true), 2e-4).message(), "");
    ++run;
  }
  return run;
}

TEST_P(OperationsTest, CasesRunRight) {
  EXPECT_GE(RunCases(GetParam().file), GetParam().least_cases);
}

TEST_P(OperationsTest, RandomGraphsRunRight) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    const graph::Graph g = graph::RandomGraph(
        seed, {.nodes = 1, .ops = GetParam().ops, .empty_tensors = seed % 5 == 0});
    EXPECT_EQ(CheckOnBoth(g, graph::RandomInputs(g, seed), 2e-3).message(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rng, OperationsTest,
    ::testing::Values(
        Operations{"rng.txt", {GraphOp::kRng}, 15},
        Operations{"band.txt", {GraphOp::kExpandBandMatrix, GraphOp::kContractBandMatrix}, 20},
        Operations{"moe.txt", {GraphOp::kMoeGroupedMatmul}, 15}));

TEST(ComplexTypes, CasesRunRight) { EXPECT_GE(RunCases("complex.txt"), 55); }
TEST(NarrowTypes, CasesRunRight) { EXPECT_GE(RunCases("narrow.txt"), 90); }

}  // namespace
}  // namespace kiln::compiler
