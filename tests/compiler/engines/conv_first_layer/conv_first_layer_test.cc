// conv_first_layer by interpretation: 1 to 4 channels (8 of a dgrad), tight and padded pixels, odd
// geometry, every knob value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "tests/compiler/conv_problem.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

void ExpectRight(const ConvProblem& p, std::vector<KnobSetting> knobs = {}) {
  const graph::Graph g = Build(p);
  const EngineChoice choice{.engine = EngineIndex("conv_first_layer"), .knobs = std::move(knobs)};
  const Result<TileRun> run =
      CheckTiles(g, *TargetFromArch("sm_90a"), graph::RandomInputs(g, 5, false), choice);
  EXPECT_TRUE(run.ok()) << p.name << ": " << run.status().message() << "\n" << graph::Print(g);
}

std::vector<ConvProblem> Problems() {
  return {
      {.name = "resnet",
       .groups = 1,
       .channels = 3,
       .filters = 64,
       .image = {15, 17},
       .taps = {7, 7},
       .pad = {3, 3},
       .stride = {2, 2}},
      // Rows of whole 16-byte chunks come by asynchronous copies; runs begin at odd places here.
      {.name = "resnet_wide",
       .groups = 1,
       .channels = 3,
       .filters = 64,
       .image = {15, 16},
       .taps = {7, 7},
       .pad = {3, 3},
       .stride = {2, 2}},
      {.name = "wide_blocks",
       .groups = 1,
       .channels = 3,
       .filters = 40,
       .image = {304},
       .taps = {5},
       .pad = {2},
       .stride = {2},
       .dilation = {1}},
      {.name = "c4_wide",
       .groups = 1,
       .channels = 4,
       .filters = 24,
       .image = {9, 10},
       .flip = true},
      {.name = "c2_wide_odd_pad",
       .type = DType::kBF16,
       .groups = 1,
       .channels = 2,
       .filters = 16,
       .image = {7, 12},
       .taps = {3, 5},
       .pad = {0, 3},
       .stride = {1, 3}},
      {.name = "c1_wide_full_chunk",
       .groups = 1,
       .filters = 72,
       .image = {6, 24},
       .taps = {2, 8},
       .pad = {1, 3},
       .stride = {1, 2}},
      {.name = "stride1_c3_fused",
       .type = DType::kBF16,
       .groups = 1,
       .channels = 3,
       .filters = 40,
       .fused = true},
      {.name = "c1", .groups = 1, .channels = 1, .filters = 8, .taps = {5, 4}, .pad = {2, 1}},
      {.name = "c1_s2_tight", .groups = 1, .filters = 16, .pad = {0, 2}, .stride = {1, 2}},
      {.name = "c2_dilated", .groups = 1, .channels = 2, .filters = 24, .dilation = {2, 3}},
      {.name = "c4_flip", .groups = 1, .channels = 4, .filters = 72, .flip = true},
      {.name = "c3_dilated",
       .groups = 1,
       .channels = 3,
       .filters = 32,
       .image = {9, 13},
       .pad = {2, 2},
       .stride = {1, 2},
       .dilation = {1, 2},
       .fused = true},
      {.name = "nchw", .groups = 1, .channels = 3, .filters = 16, .stride = {2, 2}, .last = false},
      {.name = "one_dim",
       .groups = 1,
       .channels = 3,
       .filters = 32,
       .image = {300},
       .taps = {5},
       .pad = {2},
       .stride = {2},
       .dilation = {1}},
      {.name = "one_pixel", .groups = 1, .channels = 3, .filters = 8, .images = 3, .image = {1, 1}},
      {.name = "wide_pad",
       .groups = 1,
       .channels = 2,
       .filters = 8,
       .image = {3, 2},
       .pad = {4, 3}},
      {.name = "stride_beyond",
       .groups = 1,
       .channels = 3,
       .filters = 8,
       .image = {11, 13},
       .taps = {2, 1},
       .pad = {0, 0},
       .stride = {3, 4}},
  };
}

TEST(ConvFirstLayerTest, RunsRight) {
  for (const ConvProblem& p : Problems()) ExpectRight(p);
}

TEST(ConvFirstLayerTest, WgradRunsRight) {
  for (ConvProblem p : Problems()) {
    p.op = graph::GraphOp::kConvWgrad;
    p.name += "_wgrad";
    ExpectRight(p);
    ExpectRight(p, {{"rows", 2}, {"splits", 1}});
    ExpectRight(p, {{"splits", 4}});
  }
}

// Rows of x by asynchronous copies, but no room for a second piece.
TEST(ConvFirstLayerTest, WgradOfLargePieces) {
  ConvProblem p = Problems()[1];
  p.op = graph::GraphOp::kConvWgrad;
  p.images = 1;
  p.image = {7, 256};
  p.taps = {3, 7};
  p.pad = {1, 3};
  ExpectRight(p, {{"rows", 4}});
}

TEST(ConvFirstLayerTest, WgradOfManyPiecesABlock) {
  ConvProblem p = Problems()[0];
  p.op = graph::GraphOp::kConvWgrad;
  p.images = 40;  // more pieces than the 132 splits
  ExpectRight(p, {{"rows", 2}, {"splits", 1}});
}

std::vector<ConvProblem> DgradProblems() {
  std::vector<ConvProblem> problems = {
      {.name = "resnet",
       .channels = 3,
       .filters = 64,
       .image = {15, 17},
       .taps = {7, 7},
       .pad = {3, 3},
       .stride = {2, 2}},
      {.name = "packed_rows",
       .channels = 3,
       .filters = 72,
       .image = {15, 72},
       .taps = {7, 7},
       .pad = {3, 3},
       .stride = {2, 2}},
      {.name = "c3", .type = DType::kBF16, .channels = 3, .filters = 40},
      {.name = "c1_followed", .channels = 1, .filters = 8, .image = {9, 16}, .followed = true},
      {.name = "c4_s2_followed",
       .type = DType::kBF16,
       .channels = 4,
       .filters = 24,
       .image = {9, 10},
       .stride = {2, 2},
       .followed = true},
      {.name = "c8_s2", .channels = 8, .filters = 16, .image = {10, 9}, .stride = {2, 2}},
      {.name = "c5_flip", .channels = 5, .filters = 16, .stride = {1, 2}, .flip = true},
      // Phases of rows share sets of slots: three elements each.
      {.name = "c1_s3",
       .channels = 1,
       .filters = 32,
       .image = {11, 14},
       .taps = {5, 4},
       .pad = {2, 1},
       .stride = {3, 3}},
      {.name = "c2_s4_s1",
       .channels = 2,
       .filters = 8,
       .image = {17, 12},
       .taps = {11, 3},
       .pad = {2, 1},
       .stride = {4, 1}},
      {.name = "dilated",
       .channels = 2,
       .filters = 24,
       .image = {11, 13},
       .stride = {2, 1},
       .dilation = {3, 2}},
      {.name = "stride_beyond",
       .channels = 3,
       .filters = 8,
       .image = {11, 13},
       .taps = {2, 1},
       .pad = {0, 0},
       .stride = {3, 4}},
      {.name = "wide_pad", .channels = 2, .filters = 8, .image = {3, 2}, .pad = {4, 3}},
      {.name = "one_pixel", .channels = 3, .filters = 8, .images = 3, .image = {1, 1}},
      {.name = "one_dim",
       .channels = 3,
       .filters = 32,
       .image = {301},
       .taps = {5},
       .pad = {2},
       .stride = {2},
       .dilation = {1}},
      {.name = "wide_window",
       .channels = 1,
       .filters = 16,
       .image = {4, 20},
       .taps = {2, 13},
       .pad = {1, 6}},
  };
  for (ConvProblem& p : problems) {
    p.op = graph::GraphOp::kConvDgrad;
    p.groups = 1;
  }
  return problems;
}

TEST(ConvFirstLayerTest, DgradRunsRight) {
  for (const ConvProblem& p : DgradProblems()) {
    ExpectRight(p);
    ExpectRight(p, {{"rows", 7}, {"pixels", 16}});
    ExpectRight(p, {{"rows", 2}, {"pixels", 32}, {"splits", 4}});
    ExpectRight(p, {{"rows", 8}, {"pixels", 16}, {"splits", 1}});
  }
}

TEST(ConvFirstLayerTest, DgradOfManyPiecesABlock) {
  ConvProblem p = DgradProblems()[0];
  p.images = 300;
  p.image = {6, 5};
  p.filters = 24;  // two stages a piece
  ExpectRight(p, {{"rows", 2}, {"pixels", 16}, {"splits", 1}});
}

// dx may lie as it likes, dy not.
TEST(ConvFirstLayerTest, DgradToChannelsOutermost) {
  graph::Graph g = Build(DgradProblems()[0]);
  const Dims& dims = g[graph::Outputs(g)[0]].dims;
  g[graph::Outputs(g)[0]].strides = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
  const Result<TileRun> run =
      CheckTiles(g, *TargetFromArch("sm_90a"), graph::RandomInputs(g, 5, false),
                 {.engine = EngineIndex("conv_first_layer"), .knobs = {}});
  EXPECT_TRUE(run.ok()) << run.status().message();
}

TEST(ConvFirstLayerTest, EveryKnobValueRunsRight) {
  const Engine& engine = Engines()[EngineIndex("conv_first_layer")];
  for (const ConvProblem& p : Problems())
    for (const KnobRow& row : engine.knobs)
      for (const int value : row.domain.subspan(1)) ExpectRight(p, {{row.name, value}});
}

// Numbers that a chunk holds past its run belong to pixels that an output does not read.
TEST(ConvFirstLayerTest, NanReachesOnlyOutputsThatReadIt) {
  for (const int problem : {0, 1}) {
    const graph::Graph g = Build(Problems()[problem]);
    graph::TensorValues inputs = graph::RandomInputs(g, 5, false);
    for (auto& [id, values] : inputs)
      if (g[id].name == "x") values[100] = std::numeric_limits<double>::quiet_NaN();
    const Result<TileRun> run =
        CheckTiles(g, *TargetFromArch("sm_90a"), inputs,
                   {.engine = EngineIndex("conv_first_layer"), .knobs = {}});
    ASSERT_TRUE(run.ok()) << run.status().message();
    int64_t nan = 0, all = 0;
    for (const auto& [id, values] : run->outputs) {
      nan += std::ranges::count_if(values, [](double v) { return std::isnan(v); });
      all += static_cast<int64_t>(values.size());
    }
    EXPECT_GT(nan, 0);
    EXPECT_LT(nan, all / 2);
  }
}

// Outputs of a place share a window, of which each has its own taps. CheckTiles compares every
// element, NaN with NaN.
TEST(ConvFirstLayerTest, DgradKeepsNonFiniteApart) {
  for (const int problem : {0, 1, 7}) {
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      const graph::Graph g = Build(DgradProblems()[problem]);
      graph::TensorValues inputs = graph::RandomInputs(g, 5, false);
      for (auto& [id, values] : inputs)
        if (g[id].name == "dy") values[values.size() / 2] = bad;
      const Result<TileRun> run =
          CheckTiles(g, *TargetFromArch("sm_90a"), inputs,
                     {.engine = EngineIndex("conv_first_layer"), .knobs = {}});
      ASSERT_TRUE(run.ok()) << run.status().message();
      int64_t unusual = 0, all = 0;
      for (const auto& [id, values] : run->outputs) {
        unusual += std::ranges::count_if(values, [](double v) { return !std::isfinite(v); });
        all += static_cast<int64_t>(values.size());
      }
      EXPECT_GT(unusual, 0);
      EXPECT_LT(unusual, all / 2);
    }
  }
}

TEST(ConvFirstLayerTest, DeclinesInWords) {
  const auto refusal = [](const ConvProblem& p) {
    const Result<CompiledPlan> plan =
        Compile(Build(p), *TargetFromArch("sm_90a"),
                {.engine = EngineIndex("conv_first_layer"), .knobs = {}});
    return plan.ok() ? std::string() : plan.status().message();
  };
  EXPECT_NE(refusal({.name = "five", .groups = 1, .channels = 5, .filters = 8})
                .find("1 groups of 5 channels"),
            std::string::npos);
  EXPECT_NE(refusal({.name = "odd", .groups = 1, .channels = 3, .filters = 9})
                .find("9 filters are no multiple of 8"),
            std::string::npos);
  const auto dgrad = [&](ConvProblem p) {
    p.op = graph::GraphOp::kConvDgrad;
    p.groups = 1;
    return refusal(p);
  };
  EXPECT_NE(dgrad({.name = "nine", .channels = 9, .filters = 8}).find("it takes one of 1 to 8"),
            std::string::npos);
  EXPECT_NE(dgrad({.name = "far", .channels = 3, .filters = 8, .image = {9, 16}, .stride = {1, 5}})
                .find("the strides are 1,5"),
            std::string::npos);
  EXPECT_NE(dgrad({.name = "prologue", .channels = 3, .filters = 8, .fused = true})
                .find("16 aligned bytes along its channels"),
            std::string::npos);
  EXPECT_NE(dgrad({.name = "many", .channels = 8, .filters = 8, .image = {9, 9}, .stride = {4, 4}})
                .find("take 16 sets of 8"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln::compiler
