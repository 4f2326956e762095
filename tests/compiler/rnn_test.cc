// Recurrent networks through the compiler: passes and the generic engine's kernels for GPUs and the
// CPU, in the tile interpreter, against the oracle.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "tests/support/rnn_case.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::RnnCell;
using testing::RnnCase;
using testing::RnnGraph;

void ExpectRight(const RnnCase& c, bool training, const char* arch,
                 const EngineChoice& choice = {}) {
  SCOPED_TRACE(c.Text() + " " + arch);
  const RnnGraph g = training ? TrainingGraph(c) : InferenceGraph(c);
  const Result<TileRun> run =
      CheckTiles(g.graph, *TargetFromArch(arch), g.inputs, choice, RnnTolerance(c));
  ASSERT_TRUE(run.ok()) << run.status().message();
  graph::TensorValues got = run->outputs;
  ASSERT_EQ(CompareRnn(c, g, got, training, RnnTolerance(c)), "");
}

TEST(Rnn, RandomNetworksRunRight) {
  const char* archs[] = {"sm_90a", "cpu"};
  for (uint64_t seed = 1; seed <= 200 && !HasFatalFailure(); ++seed) {
    const RnnCase c = testing::RandomRnnCase(seed);
    ExpectRight(c, seed % 4 != 0, archs[seed % 2]);
  }
}

// A loop and its gradient by themselves, as the engine runs them with every value of its knobs.
graph::Graph Loop(bool gradient) {
  const auto g = graph::Parse(gradient ? R"(graph g {
  tensor %dy uid=1 f32 [3,5,8]
  tensor %r uid=2 f32 [2,20,4]
  tensor %gates uid=3 f32 [3,5,2,20]
  tensor %y uid=4 f32 [3,5,8]
  tensor %cells uid=5 f32 [3,5,2,5]
  tensor %projection uid=6 f32 [2,4,5]
  tensor %lengths uid=7 i32 [5]
  tensor %dgates uid=8 f32 [3,5,2,20]
  tensor %dhx uid=9 f32 [2,5,4]
  tensor %dcx uid=10 f32 [2,5,5]
  tensor %dp uid=11 f32 [3,5,2,4]
  %dgates, %dhx, %dcx, %dp = recurrence_grad(%dy, %r, %gates, %y, %cells, _, _, _, _, %projection, %lengths) compute=f32 cell=lstm
})"
                                       : R"(graph g {
  tensor %xg uid=1 f32 [3,5,2,20]
  tensor %r uid=2 f32 [2,20,4]
  tensor %projection uid=3 f32 [2,4,5]
  tensor %lengths uid=4 i32 [5]
  tensor %y uid=5 f32 [3,5,8]
  tensor %hy uid=6 f32 [2,5,4]
  tensor %cy uid=7 f32 [2,5,5]
  %y, %hy, %cy = recurrence(%xg, %r, _, _, _, %projection, %lengths) compute=f32 cell=lstm
})");
  EXPECT_TRUE(g.ok()) << g.status().message();
  return *g;
}

TEST(Recurrence, EveryKnobRunsRight) {
  const int engine = EngineIndex("recurrence");
  for (const bool gradient : {false, true}) {
    const graph::Graph g = Loop(gradient);
    graph::TensorValues inputs;
    for (const graph::TensorId id : graph::Inputs(g)) {
      std::vector<double>& values = inputs[id];
      values.resize(static_cast<size_t>(NumElements(g[id].dims)));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = g[id].dtype == DType::kI32 ? static_cast<double>(i * 2 % 5) - 1
                                               : static_cast<double>(i * 7 % 11) / 16 - 0.25;
    }
    for (const KnobRow& row : Engines()[static_cast<size_t>(engine)].knobs) {
      for (const int value : row.domain) {
        for (const char* arch : {"sm_90a", "cpu"}) {
          SCOPED_TRACE(fmt::format("{} {}={}", arch, row.name, value));
          const Result<TileRun> run = CheckTiles(g, *TargetFromArch(arch), inputs,
                                                 {.engine = engine, .knobs = {{row.name, value}}});
          ASSERT_TRUE(run.ok()) << run.status().message();
          EXPECT_EQ(run->plan.engine, engine);
        }
      }
    }
  }
}

TEST(Recurrence, OtherGroupsAreDeclined) {
  const auto g = graph::Parse(R"(graph g {
  tensor %x uid=1 f32 [4]
  tensor %y uid=2 f32 [4]
  %y = pointwise(%x) compute=f32 mode=relu_fwd
})");
  ASSERT_TRUE(g.ok());
  const Target target = *TargetFromArch("sm_90a");
  const auto plan = Compile(*g, target, {.engine = EngineIndex("recurrence")});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("the group has no recurrence"), std::string::npos)
      << plan.status().message();
}

}  // namespace
}  // namespace kiln::compiler
