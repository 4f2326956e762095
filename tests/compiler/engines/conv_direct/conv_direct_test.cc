// conv_direct by interpretation: depthwise and grouped convolutions in both designs, both
// directions, odd geometry, layouts, prologues and epilogues, every knob value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "ir/graph/builder.h"
#include "tests/compiler/conv_problem.h"
#include "tests/compiler/sample_graphs.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::TensorId;
using Problem = ConvProblem;

// The fewer multiprocessors, the more work each block has.
void ExpectRight(const Problem& p, std::vector<KnobSetting> knobs = {}, int multiprocessors = 0) {
  const Graph g = Build(p);
  const EngineChoice choice{.engine = EngineIndex("conv_direct"), .knobs = std::move(knobs)};
  Target target = *TargetFromArch("sm_90a");
  if (multiprocessors > 0) target.multiprocessors = multiprocessors;
  const Result<TileRun> run = CheckTiles(g, target, graph::RandomInputs(g, 5, false), choice);
  EXPECT_TRUE(run.ok()) << p.name << ": " << run.status().message() << "\n" << graph::Print(g);
}

constexpr auto kF = GraphOp::kConvFprop;
constexpr auto kD = GraphOp::kConvDgrad;

std::vector<Problem> Problems() {
  return {
      {.name = "depthwise"},
      {.name = "depthwise_bf16_fused", .type = DType::kBF16, .groups = 40, .fused = true},
      {.name = "depthwise_5x5_s2", .taps = {5, 5}, .pad = {2, 2}, .stride = {2, 2}},
      {.name = "depthwise_even_dilated", .taps = {2, 4}, .pad = {3, 1}, .dilation = {2, 3}},
      {.name = "depthwise_flip", .taps = {3, 2}, .flip = true},
      {.name = "depthwise_wide_pad", .image = {3, 2}, .taps = {2, 2}, .pad = {3, 4}},
      {.name = "depthwise_stride_beyond", .taps = {2, 1}, .pad = {0, 0}, .stride = {3, 4}},
      {.name = "group2", .groups = 12, .channels = 2, .filters = 2},
      {.name = "group4", .groups = 10, .channels = 4, .filters = 4, .fused = true},
      {.name = "group8", .groups = 5, .channels = 8, .filters = 8, .stride = {2, 1}},
      {.name = "group16", .groups = 3, .channels = 16, .filters = 16},
      {.name = "group32", .groups = 2, .channels = 32, .filters = 32, .taps = {1, 3}},
      {.name = "one_dim", .image = {19}, .taps = {4}, .pad = {2}, .stride = {2}, .dilation = {1}},
      {.name = "three_dims",
       .groups = 8,
       .image = {3, 5, 6},
       .taps = {2, 3, 3},
       .pad = {1, 1, 0},
       .stride = {2, 1, 1},
       .dilation = {1, 1, 2}},
      {.name = "one_pixel", .images = 3, .image = {1, 1}},
      {.name = "dgrad", .op = kD},
      {.name = "dgrad_s2", .op = kD, .taps = {3, 3}, .stride = {2, 2}, .fused = true},
      {.name = "dgrad_s3", .op = kD, .image = {8, 11}, .taps = {3, 2}, .stride = {2, 3}},
      {.name = "dgrad_group8", .op = kD, .groups = 4, .channels = 8, .filters = 8, .flip = true},
      {.name = "dgrad_group16",
       .op = kD,
       .groups = 2,
       .channels = 16,
       .filters = 16,
       .stride = {1, 2},
       .dilation = {1, 2}},
      {.name = "dgrad_three_dims",
       .op = kD,
       .groups = 8,
       .image = {4, 5, 3},
       .taps = {3, 2, 2},
       .pad = {1, 0, 1},
       .stride = {2, 2, 1},
       .dilation = {1, 1, 1}},
      // FMA units.
      {.name = "f32", .type = DType::kF32, .groups = 12, .fused = true},
      {.name = "f32_nchw", .type = DType::kF32, .groups = 5, .stride = {1, 2}, .last = false},
      {.name = "f64_group3", .type = DType::kF64, .groups = 3, .channels = 3, .filters = 3},
      {.name = "f16_nchw", .groups = 7, .taps = {5, 3}, .last = false, .fused = true},
      {.name = "multiplier", .groups = 6, .filters = 3, .stride = {2, 2}},
      {.name = "multiplier2_f32", .type = DType::kF32, .groups = 8, .filters = 2, .flip = true},
      {.name = "group_4_to_2", .groups = 4, .channels = 4, .filters = 2},
      {.name = "one_channel", .groups = 1, .filters = 9, .last = false},
      {.name = "dgrad_f32", .op = kD, .type = DType::kF32, .groups = 12, .stride = {2, 2}},
      {.name = "dgrad_multiplier", .op = kD, .groups = 6, .filters = 3, .stride = {1, 3}},
      {.name = "dgrad_nchw_3d",
       .op = kD,
       .type = DType::kF32,
       .groups = 3,
       .channels = 2,
       .filters = 3,
       .image = {3, 4, 5},
       .taps = {2, 3, 2},
       .pad = {0, 1, 1},
       .stride = {2, 1, 2},
       .dilation = {1, 2, 1},
       .last = false},
  };
}

TEST(ConvDirectTest, RunsRight) {
  for (const Problem& p : Problems()) ExpectRight(p);
}

TEST(ConvDirectTest, RunsRightWithoutTheRing) {
  for (const Problem& p : Problems())
    if (p.channels == 1 && p.filters == 1) ExpectRight(p, {{"strip", 0}});
}

// Fprop, dgrad and wgrad through the ring: strips that do not divide the columns, several blocks of
// columns, images and rows a block, units one after the other.
TEST(ConvDirectTest, RingRunsRight) {
  const std::vector<Problem> problems = {
      {.name = "ring", .groups = 72, .images = 5},
      {.name = "ring_wide", .groups = 64, .image = {5, 83}},
      {.name = "ring_5x5_s2",
       .type = DType::kBF16,
       .groups = 16,
       .image = {11, 14},
       .taps = {5, 5},
       .pad = {2, 2},
       .stride = {2, 2}},
      {.name = "ring_dilated",
       .groups = 40,
       .image = {12, 29},
       .taps = {3, 2},
       .pad = {2, 4},
       .stride = {2, 1},
       .dilation = {3, 5}},
      {.name = "ring_f32", .type = DType::kF32, .groups = 12, .images = 7, .taps = {2, 3}},
      {.name = "ring_one_row", .groups = 8, .images = 9, .image = {1, 3}, .flip = true},
  };
  for (Problem p : problems) {
    for (const GraphOp op : {kF, kD, GraphOp::kConvWgrad}) {
      if (op == kD && NumElements(p.stride) != 1) continue;
      p.op = op;
      ExpectRight(p, {{"strip", 4}, {"pieces", 2}}, 1);
      ExpectRight(p, {{"strip", 7}, {"slab", 32}, {"pieces", 4}}, 2);
      ExpectRight(p, {{"strip", 2}, {"lanes", 4}}, 1);
    }
  }
}

std::vector<Problem> WgradProblems() {
  constexpr auto kW = GraphOp::kConvWgrad;
  return {
      {.name = "wgrad_group2", .op = kW, .groups = 20, .channels = 2, .filters = 2},
      {.name = "wgrad_group4", .op = kW, .groups = 10, .channels = 4, .filters = 4, .flip = true},
      {.name = "wgrad_group8_s2",
       .op = kW,
       .groups = 5,
       .channels = 8,
       .filters = 8,
       .image = {9, 14},
       .stride = {2, 2}},
      {.name = "wgrad_group16_bf16",
       .op = kW,
       .type = DType::kBF16,
       .groups = 3,
       .channels = 16,
       .filters = 16,
       .images = 5,
       .dilation = {2, 1}},
      {.name = "wgrad_group32", .op = kW, .groups = 2, .channels = 32, .filters = 32},
      {.name = "wgrad_group32_5x3",
       .op = kW,
       .groups = 2,
       .channels = 32,
       .filters = 32,
       .taps = {5, 3},
       .pad = {2, 0}},
      {.name = "wgrad_group8_5x5",
       .op = kW,
       .groups = 4,
       .channels = 8,
       .filters = 8,
       .taps = {5, 5},
       .pad = {2, 2}},
      {.name = "wgrad_depthwise_7x7", .op = kW, .taps = {7, 7}, .pad = {3, 3}},
      {.name = "wgrad_group16_wide",
       .op = kW,
       .groups = 2,
       .channels = 16,
       .filters = 16,
       .images = 1,
       .image = {6, 70}},
      {.name = "wgrad_group4_one_dim",
       .op = kW,
       .groups = 8,
       .channels = 4,
       .filters = 4,
       .image = {150},
       .taps = {5},
       .pad = {2},
       .stride = {1},
       .dilation = {1}},
      {.name = "wgrad_group4_small",
       .op = kW,
       .groups = 8,
       .channels = 4,
       .filters = 4,
       .images = 21,
       .image = {3, 2}},
      // By the FMA units: no tensor cores for f32 and channels outside.
      {.name = "wgrad_f16_nchw", .op = kW, .groups = 7, .last = false},
  };
}

TEST(ConvDirectTest, GroupedWgradRunsRight) {
  for (const Problem& p : WgradProblems()) {
    ExpectRight(p);
    ExpectRight(p, {{"strip", 0}, {"rows", 4}, {"steps", 1}});
    ExpectRight(p, {{"strip", 0}, {"rows", 1}, {"steps", 8}});
  }
}

TEST(ConvDirectTest, GroupedWgradOfManyPiecesABlock) {
  ExpectRight({.name = "many",
               .op = GraphOp::kConvWgrad,
               .groups = 64,
               .channels = 16,
               .filters = 16,
               .images = 16,
               .image = {8, 9}},
              {{"steps", 1}, {"rows", 1}});
}

TEST(ConvDirectTest, DepthwiseWgradRunsRight) {
  int run = 0;
  for (Problem p : Problems()) {
    if (p.op != kF || p.channels != 1 || p.filters != 1 || p.type == DType::kF64) continue;
    p.op = graph::GraphOp::kConvWgrad;
    p.name += "_wgrad";
    ExpectRight(p);
    ExpectRight(p, {{"strip", 0}, {"rows", 4}, {"steps", 1}});
    ExpectRight(p, {{"strip", 0}, {"rows", 1}, {"cols", 2}});
    ++run;
  }
  EXPECT_GT(run, 10);
}

// Some of the input not finite: what does not read it must not notice.
void ExpectRightWithNan(Problem p, const std::vector<size_t>& places, int strip = 4) {
  const Graph g = Build(p);
  graph::TensorValues inputs = graph::RandomInputs(g, 5, false);
  for (auto& [id, values] : inputs) {
    if (g[id].name != "x" && g[id].name != "dy") continue;
    for (size_t i : places) {
      const double bad = i % 2 == 0 ? std::numeric_limits<double>::quiet_NaN()
                                    : std::numeric_limits<double>::infinity();
      values[i % values.size()] = bad;
    }
    break;
  }
  const Result<TileRun> run =
      CheckTiles(g, *TargetFromArch("sm_90a"), inputs,
                 {.engine = EngineIndex("conv_direct"), .knobs = {{"strip", strip}}});
  ASSERT_TRUE(run.ok()) << p.name << ": " << run.status().message();
  int64_t finite = 0, all = 0;
  for (const auto& [id, values] : run->outputs) {
    finite += std::ranges::count_if(values, [](double v) { return std::isfinite(v); });
    all += static_cast<int64_t>(values.size());
  }
  EXPECT_LT(finite, all) << p.name;
  EXPECT_GT(finite, all / 4) << p.name;
}

TEST(ConvDirectTest, NanReachesOnlyWhatReadsIt) {
  for (const int strip : {4, 0})
    ExpectRightWithNan({.name = "depthwise", .groups = 40}, {3, 500, 1001}, strip);
  ExpectRightWithNan({.name = "group4", .groups = 8, .channels = 4, .filters = 4, .flip = true},
                     {77, 900});
  ExpectRightWithNan({.name = "dgrad_s2", .op = kD, .stride = {2, 2}, .fused = true}, {5, 101});
  ExpectRightWithNan(
      {.name = "one_dim", .image = {40}, .taps = {3}, .pad = {1}, .stride = {1}, .dilation = {1}},
      {9, 640});
  // Column 10 is read by taps 1 and 2 only: outputs past the last would read it by tap 0. Likewise
  // rows.
  for (const int strip : {4, 7, 0}) {
    ExpectRightWithNan({.name = "wgrad",
                        .op = graph::GraphOp::kConvWgrad,
                        .groups = 8,
                        .image = {1, 12},
                        .taps = {1, 3},
                        .pad = {0, 0}},
                       {10}, strip);
    ExpectRightWithNan({.name = "wgrad_rows",
                        .op = graph::GraphOp::kConvWgrad,
                        .groups = 8,
                        .images = 1,
                        .image = {12, 1},
                        .taps = {3, 1},
                        .pad = {0, 0}},
                       {10 * 8}, strip);
  }
}

TEST(ConvDirectTest, DepthwiseWgradOfManyStepsABlock) {
  ExpectRight({.name = "many",
               .op = graph::GraphOp::kConvWgrad,
               .groups = 256,
               .images = 60,
               .image = {6, 9}},
              {{"strip", 0}, {"steps", 1}, {"rows", 1}});
}

TEST(ConvDirectTest, EveryKnobValueRunsRight) {
  const Engine& engine = Engines()[EngineIndex("conv_direct")];
  size_t number = 0;
  for (const Problem& p : Problems()) {
    if (++number % 3 != 0 && p.name.find("group") == std::string::npos) continue;
    for (const KnobRow& row : engine.knobs)
      for (const int value : row.domain.subspan(1)) ExpectRight(p, {{row.name, value}});
  }
}

Graph WithHalfInputs(Graph g) {
  for (TensorId id : graph::Inputs(g))
    if (g[id].dtype == DType::kF32) g[id].dtype = DType::kF16;
  return g;
}

TEST(ConvDirectTest, TakesConvolutionSamples) {
  const Target target = *TargetFromArch("sm_90a");
  const Engine& engine = Engines()[EngineIndex("conv_direct")];
  int taken = 0;
  for (const SampleGraph& sample : ConvSamples()) {
    for (const Graph& g : {sample.graph, WithHalfInputs(sample.graph)}) {
      const Result<std::optional<Group>> leading = LeadingGroupOf(g, target);
      if (!leading.ok() || !leading->has_value() || !Supports(engine, **leading, target).ok())
        continue;
      const Result<TileRun> run = CheckTiles(g, target, graph::RandomInputs(g, 3, sample.positive),
                                             {.engine = EngineIndex("conv_direct"), .knobs = {}});
      EXPECT_TRUE(run.ok()) << sample.name << ": " << run.status().message() << graph::Print(g);
      ++taken;
    }
  }
  EXPECT_GT(taken, 20);
}

std::string Refusal(const Problem& p) {
  const Result<CompiledPlan> plan = Compile(Build(p), *TargetFromArch("sm_90a"),
                                            {.engine = EngineIndex("conv_direct"), .knobs = {}});
  return plan.ok() ? "" : plan.status().message();
}

TEST(ConvDirectTest, DeclinesInWords) {
  EXPECT_NE(Refusal({.name = "dense", .groups = 1, .channels = 64, .filters = 64})
                .find("64 channels and 64 filters"),
            std::string::npos);
  EXPECT_NE(Refusal({.name = "strided", .op = kD, .image = {19, 19}, .stride = {5, 1}})
                .find("dgrad's stride is 5"),
            std::string::npos);
  // A row of more taps takes its compiler half a minute and more.
  const Problem row = {.name = "row", .image = {1, 300}, .taps = {1, 256}, .pad = {0, 255}};
  EXPECT_EQ(Refusal(row), "");
  Problem longer = row;
  longer.taps = {1, 257};
  EXPECT_NE(Refusal(longer).find("the filter has 257 taps, which would be unrolled; at most 256"),
            std::string::npos);
}

// Maps read 0 along an extent of 1, which engines count as any other: these were internal errors.
TEST(ConvDirectTest, MapsFollowResultsWithExtentsOfOne) {
  const struct {
    const char* engine;
    const char* text;
  } graphs[] = {
      {"conv_direct",
       "tensor %dy uid=1 bf16 [1,16,1,6] strides=[96,1,96,16]"
       " tensor %w uid=2 bf16 [16,16,1,2] strides=[32,2,2,1] tensor %dx uid=3 f32 [1,16,1,7]"
       " %dx = conv_dgrad(%dy, %w) compute=f32 pre_padding=[0,0] post_padding=[0,0] stride=[1,1]"
       " dilation=[2,1] alpha=0.5"},
      {"conv_direct",
       "tensor %x uid=1 u8 [2,3,5,5,6] tensor %dy uid=2 f32 [2,3,7,2,7]"
       " tensor %c uid=3 f64 [3,1,1,1,2] tensor %dw uid=4 f64 [3,1,1,1,2]"
       " %dw = conv_wgrad(%x, %dy, %c) compute=f16 pre_padding=[1,1,1] post_padding=[1,0,1]"
       " stride=[1,3,1] dilation=[1,1,1] alpha=3 beta=0.5"},
      {"wgmma_sm90",
       "tensor %dy uid=1 bf16 [1,32,7,1,3] strides=[672,1,96,96,32]"
       " tensor %w uid=2 bf16 [32,14,2,2,1] tensor %dx uid=3 i8 [1,14,6,1,3]"
       " %dx = conv_dgrad(%dy, %w) compute=f32 pre_padding=[0,1,0] post_padding=[2,2,2]"
       " stride=[1,2,2] dilation=[1,2,2] flip alpha=0.5"}};
  const Target target = *TargetFromArch("sm_90a");
  for (const auto& [engine, text] : graphs) {
    SCOPED_TRACE(text);
    Result<Graph> g = graph::Parse(std::string("graph g {") + text + "}");
    ASSERT_TRUE(g.ok()) << g.status().message();
    ASSERT_TRUE(graph::Legalize(*g).ok());
    const EngineChoice choice{.engine = EngineIndex(engine)};
    EXPECT_EQ(Compile(*g, target, choice).status().message(), "");
    if (engine == std::string("wgmma_sm90")) continue;  // only a GPU runs it
    const Result<TileRun> run =
        CheckTiles(*g, target, graph::RandomInputs(*g, 5, true), choice, 1e-3);
    EXPECT_TRUE(run.ok()) << run.status().message();
  }
}

}  // namespace
}  // namespace kiln::compiler
