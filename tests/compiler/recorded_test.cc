// The graphs that clients of cuDNN have been seen to build: each that imports compiles for the GPUs
// and for the CPU, its CUDA texts pass NVRTC (a sample of them; all with KILN_TEST_ALL=1), and,
// with its large extents made small, it runs right.
#include "tests/support/recorded.h"

#include <gtest/gtest.h>

#include <string_view>

#include "compiler/compile.h"
#include "tests/support/compile_check.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using testing::Recorded;

TEST(RecordedTest, CompileForEveryTarget) {
  const std::vector<Recorded> graphs = testing::RecordedGraphs();
  EXPECT_GE(graphs.size(), 120u);
  CompileCheck check;
  for (const Recorded& r : graphs) {
    for (const char* arch : {"sm_80", "sm_90a", "sm_100a", "cpu"}) {
      const Result<CompiledPlan> plan = Compile(r.graph, *TargetFromArch(arch));
      if (arch == std::string_view("cpu") && testing::NeedsSeveralGpus(r.graph)) {
        EXPECT_EQ(plan.status().code(), Code::kArchMismatch) << plan.status().message();
        continue;
      }
      EXPECT_TRUE(plan.ok()) << "line " << r.line << ", " << arch << ": "
                             << plan.status().message();
      if (plan.ok()) check.Add(plan->program, fmt::format("line {}", r.line));
    }
  }
  const Result<const runtime::Nvrtc*> nvrtc = runtime::ProcessNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message();
  for (const std::string& failure : check.Run(**nvrtc, TestAll() ? check.texts() : 40))
    ADD_FAILURE() << failure;
}

TEST(RecordedTest, RunRightAtSmallExtents) {
  const double limit = TestAll() ? 1e8 : 1e6;
  int run = 0, large = 0;
  for (const Recorded& r : testing::RecordedGraphs()) {
    if (testing::NeedsSeveralGpus(r.graph)) continue;
    const Result<Graph> small = testing::WithSmallExtents(r.graph);
    // Extents that depend on each other in other ways than by being equal.
    if (!small.ok()) {
      fmt::print("line {} is not small: {}\n", r.line, small.status().message());
      continue;
    }
    if (testing::Work(*small) > limit) {
      ++large;
      continue;
    }
    const graph::TensorValues inputs =
        graph::RandomInputs(*small, static_cast<uint64_t>(r.line), true);
    for (const char* arch : {"sm_90a", "cpu"}) {
      const Result<TileRun> result = CheckTiles(*small, *TargetFromArch(arch), inputs, {}, 1e-2);
      EXPECT_TRUE(result.ok()) << "line " << r.line << ": " << result.status().message() << "\n"
                               << graph::Print(*small);
    }
    ++run;
  }
  fmt::print("{} recorded graphs ran at small extents; {} are too large for the interpreter\n", run,
             large);
  EXPECT_GE(run, 30);
}

}  // namespace
}  // namespace kiln::compiler
