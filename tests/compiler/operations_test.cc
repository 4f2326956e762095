// Operations by interpretation: each case of their files, and random graphs of them, as the GPU's
// and the CPU's kernels compute them, against the f64 evaluation of the graph.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

// Runs the cases of a file, and returns how many ran.
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
        Operations{"moe.txt", {GraphOp::kMoeGroupedMatmul}, 33}));

// Rope is spelled out: it has no operation of its own for a random graph.
TEST(Rope, CasesRunRight) { EXPECT_GE(RunCases("rope.txt"), 28); }

TEST(ScatterAdd, RandomGraphsRunRight) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    const graph::Graph g = graph::RandomGraph(seed, {.nodes = 1, .ops = {GraphOp::kScatterAdd}});
    EXPECT_EQ(CheckOnBoth(g, graph::RandomInputs(g, seed), 1e-4).message(), "");
  }
}

TEST(Segments, RandomGraphsRunRight) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const graph::Graph g = graph::RandomGraph(
        seed, {.nodes = 1, .ops = {GraphOp::kSegmentReduce, GraphOp::kSegmentIds}});
    EXPECT_EQ(CheckOnBoth(g, graph::RandomInputs(g, seed), 1e-4).message(), "");
  }
}

// Neighbours by wide copies, behind a gather and maps, of segments of 0, 1 and 6 places and with a
// row that is not there; ties and NaN among maxima.
TEST(Segments, RowsAreReadThroughWhatComputesThem) {
  const Result<graph::Graph> g = graph::Parse(R"(graph g {
  tensor %x uid=1 f16 [3,2,8] strides=[16,8,1]
  tensor %source uid=2 i32 [7,1,1]
  tensor %weight uid=3 f32 [7,2,1] strides=[1,7,1]
  tensor %offsets uid=4 i64 [4]
  tensor %rows uid=5 i64 [7]
  tensor %y uid=6 f16 [3,2,8] strides=[16,8,1]
  tensor %at f16 [7,2,8] virtual
  tensor %term f32 [7,2,8] virtual
  %at = gather(%x, %source) compute=f16 axis=0
  %term = map(%weight, %at) compute=f32 op=mul
  %y = segment_reduce(%term, %offsets, %rows) compute=f32 mode=add
})");
  ASSERT_TRUE(g.ok()) << g.status().message();
  graph::TensorValues inputs = graph::RandomInputs(*g, 5);
  inputs[1] = {2, 0, 1, 1, 5, -1, 2};
  inputs[3] = {0, 0, 1, 7};
  inputs[4] = {3, 6, 0, 2, 1, 7, 4};
  EXPECT_EQ(CheckOnBoth(*g, inputs, 1e-3).message(), "");
  const Result<TileRun> run = CheckTiles(*g, *TargetFromArch("sm_90a"), inputs);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_NE(run->module.groups[0].lowered.kernels[0].comment.front().find("8 neighbours"),
            std::string::npos);
}

TEST(Segments, MaximaHaveTheirFirstPlace) {
  const Result<graph::Graph> g = graph::Parse(R"(graph g {
  tensor %x uid=1 f32 [4,2] strides=[2,1]
  tensor %offsets uid=2 i32 [4]
  tensor %rows uid=3 i32 [6]
  tensor %y uid=4 f32 [3,2] strides=[2,1]
  tensor %p uid=5 i32 [3,2] strides=[2,1]
  %y, %p = segment_reduce(%x, %offsets, %rows) compute=f32 mode=max
})");
  ASSERT_TRUE(g.ok()) << g.status().message();
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               inf = std::numeric_limits<double>::infinity();
  const graph::TensorValues inputs = {
      {0, {1, 5, 7, nan, 7, 2, -inf, -inf}}, {1, {0, 3, 3, 6}}, {2, {0, 2, 1, 3, 3, 3}}};
  const Result<TileRun> run = CheckTiles(*g, *TargetFromArch("sm_90a"), inputs);
  ASSERT_TRUE(run.ok()) << run.status().message();
  const std::vector<double>& y = run->outputs.at(3);
  EXPECT_EQ(y[0], 7);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(std::vector<double>(y.begin() + 2, y.end()), (std::vector<double>{0, 0, -inf, -inf}));
  EXPECT_EQ(run->outputs.at(4), (std::vector<double>{2, 1, -1, -1, 3, 3}));
}

TEST(Segments, PlacesKnowTheirSegment) {
  const Result<graph::Graph> g = graph::Parse(R"(graph g {
  tensor %offsets uid=1 i64 [5]
  tensor %rows uid=2 i32 [6]
  tensor %x uid=3 i64 [6]
  tensor %ids uid=4 i32 [6]
  tensor %moved uid=5 i64 [6]
  tensor %plain uid=6 i64 [6]
  %ids, %moved = segment_ids(%offsets, %rows, %x) compute=i32
  %plain = segment_ids(%offsets) compute=i32
})");
  ASSERT_TRUE(g.ok()) << g.status().message();
  const graph::TensorValues inputs = {
      {0, {1, 1, 3, 3, 5}}, {1, {5, 4, 3, 9, 1, 0}}, {2, {10, 11, 12, 13, 14, 15}}};
  EXPECT_EQ(CheckOnBoth(*g, inputs, 0).message(), "");
  const Result<TileRun> run = CheckTiles(*g, *TargetFromArch("sm_90a"), inputs);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->outputs.at(5), (std::vector<double>{-1, 1, 1, 3, 3, 4}));
  EXPECT_EQ(run->outputs.at(3), (std::vector<double>{4, 3, -1, 1, 1, -1}));
  EXPECT_EQ(run->outputs.at(4), (std::vector<double>{15, 14, -1, 12, 11, 10}));
}

// 10 in each place, and what is added: twice to one place, and nothing beyond the axis.
TEST(ScatterAdd, AddsWhatMeets) {
  const Result<graph::Graph> g = graph::Parse(R"(graph g {
  tensor %ten uid=1 f32 [1,1] strides=[1,1]
  tensor %x uid=2 f32 [2,3] strides=[3,1]
  tensor %i uid=3 i32 [1,3] strides=[3,1]
  tensor %z uid=4 f32 [2,3] strides=[3,1]
  tensor %j uid=5 i64 [2,3] strides=[3,1]
  tensor %y uid=6 f32 [1,4] strides=[4,1]
  %y = scatter_add(%ten, %x, %i, %z, %j) compute=f32 axis=1
})");
  ASSERT_TRUE(g.ok()) << g.status().message();
  const graph::TensorValues inputs = {{0, {10}},
                                      {1, {1, 2, 3, 4, 5, 6}},
                                      {2, {0, 3, -1}},
                                      {3, {100, 200, 300, 400, 500, 600}},
                                      {4, {0, 4, 2, -5, 2, 1}}};
  const Result<TileRun> run = CheckTiles(*g, *TargetFromArch("sm_90a"), inputs);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->outputs.at(5), (std::vector<double>{10 + 5 + 100, 10 + 600, 10 + 800, 10 + 7}));
}

// A thread has several elements where a device is full without: here one of one multiprocessor.
void RunOnLittleDevice(const char* text, const char* says) {
  const Result<graph::Graph> g = graph::Parse(text);
  ASSERT_TRUE(g.ok()) << g.status().message();
  Target target = *TargetFromArch("sm_90a");
  target.multiprocessors = 1;
  const Result<TileRun> run = CheckTiles(*g, target, graph::RandomInputs(*g, 3));
  ASSERT_TRUE(run.ok()) << run.status().message();
  const auto& comment = run->module.groups[0].lowered.kernels[0].comment;
  EXPECT_NE(comment.front().find(says), std::string::npos) << comment.front();
}

TEST(SharesOfAThread, ElementsWithOnePlace) {
  RunOnLittleDevice(R"(graph g {
  tensor %x uid=1 f32 [2,6,1,50] strides=[300,50,50,1]
  tensor %i uid=2 i32 [2,1,33,40] strides=[1320,1320,40,1]
  tensor %y uid=3 f32 [2,6,33,40] strides=[7920,1320,40,1]
  %y = gather(%x, %i) compute=f32 axis=3
})",
                    "3 elements a thread, 4 rows a warp");
}

// Places that follow from both dims of an image, whose extents no patch divides.
TEST(SharesOfAThread, PatchesOfAnImage) {
  const Result<graph::Graph> g = graph::Parse(R"(graph g {
  tensor %zero uid=1 f32 [1,1,1,1] strides=[1,1,1,1]
  tensor %x uid=2 f32 [2,3,17,19] strides=[969,323,19,1]
  tensor %i uid=3 i32 [2,1,17,19] strides=[323,323,19,1]
  tensor %y uid=4 f32 [2,3,1,50] strides=[150,50,50,1]
  %y = scatter_add(%zero, %x, %i) compute=f32 axis=3
})");
  ASSERT_TRUE(g.ok()) << g.status().message();
  graph::TensorValues inputs = graph::RandomInputs(*g, 5);
  int place = 0;
  for (double& i : inputs.at(2)) i = place++ * 7 % 53 - 1;  // -1 … 51: some beyond the axis
  EXPECT_EQ(CheckOnBoth(*g, inputs, 1e-4).message(), "");
  const Result<TileRun> run = CheckTiles(*g, *TargetFromArch("sm_90a"), inputs);
  ASSERT_TRUE(run.ok()) << run.status().message();
  const auto& kernels = run->module.groups[0].lowered.kernels;
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_NE(kernels[1].comment.front().find("4 rows a warp"), std::string::npos)
      << kernels[1].comment.front();
}

TEST(SharesOfAThread, RowsOfPlaces) {
  RunOnLittleDevice(R"(graph g {
  tensor %x uid=1 f32 [2,1,1,2] strides=[6,6,6,3]
  tensor %h i32 [1,64,1,1] strides=[64,1,1,1] virtual
  tensor %w i32 [1,1,66,1] strides=[66,66,1,1] virtual
  tensor %a f32 [2,1,66,2] strides=[132,132,2,1] virtual
  tensor %y uid=3 f32 [2,64,66,2] strides=[8448,132,2,1]
  %h = iota() compute=i64 axis=1
  %w = iota() compute=i64 axis=2
  %a = map(%x, %w) compute=f32 op=mul
  %y = map(%a, %h) compute=f32 op=add
})",
                    "4 times 2 lanes of places");
}

TEST(ComplexTypes, CasesRunRight) { EXPECT_GE(RunCases("complex.txt"), 55); }
TEST(NarrowTypes, CasesRunRight) { EXPECT_GE(RunCases("narrow.txt"), 90); }

}  // namespace
}  // namespace kiln::compiler
