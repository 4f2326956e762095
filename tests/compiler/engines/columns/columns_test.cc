// Chains of reductions across memory are passes of the engine columns: batch norm as clients send
// it, by interpretation, with every value of every knob.
#include <gtest/gtest.h>

#include "compiler/engines/columns/engine.h"
#include "compiler/engines/registry.h"
#include "tests/compiler/case_plans.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using testing::Case;
using testing::CaseFile;

const CaseFile& Cases() {
  static const CaseFile file = testing::LoadCases("tests/cases/columns.txt");
  return file;
}

bool IsOf(const Case& c, const char* section) {
  return c.Label().find(section) != std::string::npos;
}
bool IsApart(const Case& c) { return IsOf(c, "apart/"); }

TEST(ColumnsTest, CasesAreItsOwn) {
  ASSERT_TRUE(Cases().errors.empty()) << Cases().errors[0];
  EXPECT_GE(Cases().cases.size(), 20u);
  for (const Case& c : Cases().cases) {
    SCOPED_TRACE(c.Label());
    const std::string engines = EnginesOf(GraphOf(c));
    if (IsApart(c))
      EXPECT_EQ(engines.find("columns"), std::string::npos) << engines;
    else
      EXPECT_EQ(engines, IsOf(c, "along/") ? "rows" : "columns");
  }
}

// Statistics are one pass: the mean and the squared distances from it.
TEST(ColumnsTest, BatchNormIsTwoPasses) {
  for (const Case& c : Cases().cases) {
    SCOPED_TRACE(c.Label());
    if (IsOf(c, "batch/")) {
      EXPECT_EQ(KernelsOf(GraphOf(c)), 3u);
    }
  }
  const auto kernels = [](const char* mean, const char* type) {
    return KernelsOf(GraphOf(fmt::format(
        "{} -> m:{}[1,24]; sub(x, m) -> %d:f32; mul(%d, %d) -> %q:f32; reduce_add(%q) -> "
        "v:f32[1,24]; mul(%d, v) -> y:f32",
        mean, type)));
  };
  EXPECT_EQ(kernels("reduce_avg(x:f32[50,24])", "f32"), 3u);
  EXPECT_EQ(kernels("reduce_avg(x:f32[50,24])", "f16"), 5u) << "rounded";
  EXPECT_EQ(kernels("reduce_add(x:f32[50,24])", "f32"), 5u) << "no mean";
}

// A thread has as many neighbouring channels as 16 bytes hold.
TEST(ColumnsTest, ChannelsAreReadAsVectors) {
  const auto source = [](int channels) {
    return SourceOf(
        GraphOf(fmt::format("norm_forward(x:f16[4,{0},6,6]@nhwc, _, _, scale:f32[1,{0},1,1]@nhwc, "
                            "bias:f32[1,{0},1,1]@nhwc, eps:f32[1,1,1,1]=1e-5) -> y:f16@nhwc, "
                            "m:f32[1,{0},1,1]@nhwc, v:f32[1,{0},1,1]@nhwc mode=batch",
                            channels)));
  };
  EXPECT_NE(source(64).find("lanes=8,"), std::string::npos) << source(64);
  EXPECT_NE(source(20).find("lanes=4,"), std::string::npos) << source(20);
  EXPECT_NE(source(7).find("lanes=1,"), std::string::npos) << source(7);
}

// A result that needs no reduction is stored by the first pass, and read in place of its operands.
TEST(ColumnsTest, WhatIsKnownEarlyIsStoredEarly) {
  const auto reads = [](const char* gradient) {
    const graph::Graph g = GraphOf(fmt::format(
        "relu_bwd(dy:f16[12,16,6,6]@nhwc, y:f16[12,16,6,6]@nhwc) -> {0}; "
        "norm_backward(x:f16[12,16,6,6]@nhwc, {1}, m:f32[1,16,1,1], v:f32[1,16,1,1]!pos, "
        "scale:f32[1,16,1,1]) -> dx:f16@nhwc, ds:f32, db:f32 mode=batch",
        gradient, std::string(gradient).substr(0, std::string(gradient).find(':'))));
    const Result<CompiledPlan> plan = Compile(g, *TargetFromArch("sm_90a"));
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    const std::string& text = plan->program.kernels.back().text;
    EXPECT_NE(text.find("columns, pass 1"), std::string::npos);
    int count = 0;
    for (size_t at = 0; (at = text.find("const half_t* __restrict__", at)) != std::string::npos;
         ++at)
      ++count;
    return count;
  };
  EXPECT_EQ(reads("dz:f16@nhwc"), 1) << "x, beside what the first pass has stored";
  EXPECT_EQ(reads("%dz:f32@nhwc"), 3) << "x, dy and y";
}

TEST(ColumnsTest, EveryKnobRunsRight) {
  int runs = 0;
  for (const Case& c : Cases().cases) {
    SCOPED_TRACE(c.Label());
    if (IsApart(c)) continue;
    const graph::Graph g = GraphOf(c);
    const graph::TensorValues inputs = graph::RandomInputs(g, 5, true);
    const auto expect_right = [&](std::vector<KnobSetting> knobs) {
      const EngineChoice choice{.engine = EngineIndex("columns"), .knobs = std::move(knobs)};
      const Result<TileRun> run = CheckTiles(g, *TargetFromArch("sm_90a"), inputs, choice, 1e-4);
      EXPECT_TRUE(run.ok()) << run.status().message();
      ++runs;
    };
    expect_right({});
    for (const KnobRow& row : kColumnsEngine.knobs)
      for (const int value : row.domain.subspan(1)) expect_right({{row.name, value}});
    expect_right({{"threads", 128}, {"unroll", 1}, {"splits", 5}});
    expect_right({{"threads", 128}, {"unroll", 2}, {"splits", 2}});
  }
  EXPECT_GE(runs, 300);
}

// Running statistics are written over the ones before.
TEST(ColumnsTest, ResultsMayOverwriteWhatIsRead) {
  graph::Graph g = GraphOf(
      "norm_forward(x:f16[4,8,5,5]@nhwc, _, _, scale:f32[1,8,1,1], bias:f32[1,8,1,1], "
      "eps:f32[1]=1e-3, f:f32[1]=0.1, rm:f32[1,8,1,1], rv:f32[1,8,1,1]!pos) -> y:f16@nhwc, "
      "m:f32[1,8,1,1], v:f32[1,8,1,1], nm:f32[1,8,1,1], nv:f32[1,8,1,1] mode=batch");
  const auto uid = [&](const char* name) -> int64_t& {
    return std::ranges::find(g.tensors, name, &graph::Tensor::name)->uid;
  };
  uid("nm") = uid("rm");
  uid("nv") = uid("bias");
  uid("m") = uid("scale");
  EXPECT_EQ(EnginesOf(g), "columns");
  const Result<TileRun> run =
      CheckTiles(g, *TargetFromArch("sm_90a"), graph::RandomInputs(g, 5, true), {}, 1e-4);
  EXPECT_TRUE(run.ok()) << run.status().message();
}

// Values of which a sum of squares keeps nothing: mean 4096, deviations of 1/16.
TEST(ColumnsTest, StatisticsDoNotCancel) {
  const graph::Graph g = GraphOf(
      "norm_forward(x:f32[600,8], _, _, scale:f32[1,8], bias:f32[1,8], eps:f32[1]=1e-9) -> y:f32, "
      "m:f32[1,8], v:f32[1,8] mode=batch");
  ASSERT_EQ(EnginesOf(g), "columns");
  graph::TensorValues inputs = graph::RandomInputs(g, 5, true);
  for (size_t t = 0; t < g.tensors.size(); ++t)
    if (g.tensors[t].name == "x")
      for (size_t i = 0; i < inputs[t].size(); ++i)
        inputs[t][i] = 4096 + static_cast<double>(i * 7919 % 33) / 256 - 1.0 / 16;
  for (const int splits : {1, 2, 5}) {
    const EngineChoice choice{.engine = EngineIndex("columns"),
                              .knobs = {{"threads", 128}, {"splits", splits}}};
    const Result<TileRun> run = CheckTiles(g, *TargetFromArch("sm_90a"), inputs, choice, 2e-3);
    EXPECT_TRUE(run.ok()) << run.status().message();
  }
}

}  // namespace
}  // namespace kiln::compiler
