// Windows by interpretation: each case of tests/cases/window.txt with every value of every knob,
// and poolings of all sizes by tiles.
#include <gtest/gtest.h>

#include "compiler/engines/registry.h"
#include "compiler/engines/window/engine.h"
#include "compiler/engines/window/tiles.h"
#include "tests/compiler/case_plans.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using testing::Case;

Status Check(const graph::Graph& g, uint64_t seed, std::vector<KnobSetting> knobs) {
  const EngineChoice choice{.engine = EngineIndex("window"), .knobs = std::move(knobs)};
  return CheckTiles(g, *TargetFromArch("sm_90a"), graph::RandomInputs(g, seed, true), choice, 1e-4)
      .status();
}

TEST(WindowTest, EveryKnobRunsRight) {
  const testing::CaseFile file = testing::LoadCases("tests/cases/window.txt");
  ASSERT_TRUE(file.errors.empty()) << file.errors[0];
  for (const Case& c : file.cases) {
    if (c.expects_bad_param) continue;
    SCOPED_TRACE(c.Label());
    const graph::Graph g = GraphOf(c);
    if (EnginesOf(g).find("window") != 0) continue;  // knobs are those of the leading group
    for (const KnobRow& row : kWindowEngine.knobs) {
      for (const int value : row.domain) {
        const Status status = Check(g, 3, {{row.name, value}});
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

// Kernel, strides and paddings against layouts, types and odd extents; outputs beyond the padding.
TEST(WindowTest, TilesOfAllSizes) {
  int tiled = 0;
  const auto check = [&](const std::string& line) {
    SCOPED_TRACE(line);
    const graph::Graph g = GraphOf(line);
    const Result<CompiledPlan> plan = Compile(g, *TargetFromArch("sm_90a"));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (const auto& kernel : plan->program.kernels)
      tiled += kernel.text.find("window, tiles of") != std::string::npos;
    const Status status = Check(g, 11, {});
    EXPECT_TRUE(status.ok()) << status.message();
  };
  for (const char* layout : {"", "@nhwc"}) {
    for (const auto& [window, stride, pad, post] : {std::array{2, 2, 0, 0},
                                                    {3, 2, 1, 1},
                                                    {3, 1, 1, 1},
                                                    {2, 3, 0, 0},
                                                    {3, 2, 0, 1},
                                                    {4, 2, 2, 3},
                                                    {5, 4, 2, 1}}) {
      for (const int w : {16, 17, 24}) {
        const int h = 7, p = (h + pad + post - window) / stride + 1,
                  q = (w + pad + post - window) / stride + 1;
        const std::string x = fmt::format("[2,8,{},{}]{}", h, w, layout);
        const std::string y = fmt::format("[2,8,{},{}]{}", p, q, layout);
        const std::string how =
            fmt::format(" window={} stride={} pad={} post={}", window, stride, pad, post);
        check("maxpool(x:f16" + x + ") -> y:f16" + layout + ", i:i8" + layout + how +
              " padding=neg_inf");
        check("maxpool(x:f32" + x + "!nan) -> y:f32" + layout + how + " padding=neg_inf nan=skip");
        check("avgpool_exclude(x:bf16" + x + ") -> y:bf16" + layout + how);
        check("maxpool_bwd(dy:f16" + y + ", i:i8" + y + "!int) -> dx:f16" + x + how +
              " padding=neg_inf");
        check("avgpool_bwd(dy:f32" + y + ") -> dx:f32" + x + how);
        check("avgpool_exclude_bwd(dy:bf16" + y + ") -> dx:bf16" + x + how);
      }
    }
  }
  // One window over all of an image; windows that share their sources with their neighbours.
  for (const char* layout : {"", "@nhwc"}) {
    for (const char* mode : {"avgpool_bwd", "avgpool_exclude_bwd"}) {
      check(fmt::format("{0}(dy:f16[2,8,1,1]{1}) -> dx:f16[2,8,7,7]{1} window=7 stride=1", mode,
                        layout));
      check(fmt::format("{0}(dy:f32[2,3,1,2]{1}) -> dx:f32[2,3,4,5]{1} window=4 stride=1", mode,
                        layout));
      check(fmt::format("{0}(dy:f32[2,3,11,13]{1}) -> dx:f32[2,3,11,13]{1} window=3 stride=1 pad=1",
                        mode, layout));
    }
    check(fmt::format("avgpool_exclude(x:f32[2,3,11,13]{0}) -> y:f32{0} window=3 stride=1 pad=1",
                      layout));
  }
  // Rows of few elements, where all places are numbers.
  for (const int w : {1, 2, 3, 5})
    for (const int window : {1, 2, 3})
      for (const int stride : {1, 2, 3})
        for (const int pad : {0, 1, 2})
          for (const int post : {0, 1, 2}) {
            if (pad >= window || post >= window || w + pad + post < window) continue;
            const std::string x = fmt::format("[1,1,{}]", w);
            const std::string y = fmt::format("[1,1,{}]", (w + pad + post - window) / stride + 1);
            const std::string how =
                fmt::format(" window={} stride={} pad={} post={}", window, stride, pad, post);
            check("maxpool(x:f16" + x + ") -> y:f16, i:i8" + how + " padding=neg_inf");
            check("maxpool(x:f32" + x + ") -> y:f32, i:i8" + how);
            if (w != window)  // else it is a reduction
              check("avgpool(x:f32" + x + ") -> y:f32" + how);
            check("avgpool_exclude_bwd(dy:f32" + y + ") -> dx:f32" + x + how);
          }
  EXPECT_GE(tiled, 600);
}

// Maps around windows, windows of windows and searched maxima, without a workspace: each value of a
// tile is computed once.
TEST(WindowTest, NestsOfAllSizes) {
  int nests = 0;
  const auto check = [&](const std::string& line) {
    SCOPED_TRACE(line);
    const graph::Graph g = GraphOf(line);
    const Result<TileRun> run =
        CheckTiles(g, *TargetFromArch("sm_90a"), graph::RandomInputs(g, 13, true),
                   {.engine = EngineIndex("window"), .least_workspace = true}, 1e-4);
    ASSERT_TRUE(run.ok()) << run.status().message();
    for (const auto& kernel : run->module.program.kernels)
      nests += kernel.text.find("window, nest of") != std::string::npos;
  };
  for (const char* layout : {"", "@nhwc"}) {
    for (const auto& [window, stride, pad, post] :
         {std::array{2, 2, 0, 0}, {3, 2, 1, 1}, {3, 1, 1, 1}, {2, 3, 0, 0}, {5, 4, 2, 1}}) {
      for (const int w : {16, 17}) {
        const int h = 7, p = (h + pad + post - window) / stride + 1,
                  q = (w + pad + post - window) / stride + 1;
        const std::string x = fmt::format("[2,8,{},{}]{}", h, w, layout);
        const std::string y = fmt::format("[2,8,{},{}]{}", p, q, layout);
        const std::string how =
            fmt::format(" window={} stride={} pad={} post={}", window, stride, pad, post);
        check("maxpool_bwd(dy:f16" + y + ", _, x:f16" + x + ") -> dx:f16" + x + how +
              " padding=neg_inf");
        check("maxpool_bwd(dy:f32" + y + ", _, x:f32" + x + "!nan) -> dx:f32" + x + how +
              " padding=neg_inf");
        check(
            fmt::format("mul(x:f16{0}, x) -> %s:f32{1}; avgpool(%s) -> %p:f32{1}{2}; mul(%p, "
                        "c:f32[1,8,1,1]{1}) -> y:f16{1}",
                        x, layout, how));
        check(
            fmt::format("relu_fwd(x:bf16{0}) -> %s:f32{1}; maxpool(%s) -> %p:f32{1}{2} "
                        "padding=neg_inf; mul(%p, c:f32[1,8,1,1]{1}) -> y:bf16{1}",
                        x, layout, how));
        check(
            fmt::format("avgpool_exclude_bwd(dy:f32{0}) -> %d:f32{1}{2}{3}; mul(%d, "
                        "c:f32[1,8,1,1]{2}) -> dx:f32{2}",
                        y, x.substr(0, x.find(']') + 1), layout, how));
      }
    }
    for (const char* extents : {"[2,7,9,16]", "[2,8,5,17]", "[1,24,2,3]"})
      check(
          fmt::format("mul(x:f32{0}{1}, x) -> %s:f32{1}; avgpool(%s) -> %m:f32{1} window=5,1 "
                      "stride=1 pad=2,0 post=2,0; mul(x, %m) -> %t:f32{1}; avgpool(%t) -> "
                      "%n:f32{1} window=4,1 stride=1 pad=1,0 post=2,0; add(%n, x) -> y:f32{1}",
                      extents, layout));
  }
  // Tiles that take too much are left to loops.
  EXPECT_GE(nests, 90);
}

}  // namespace
}  // namespace kiln::compiler
