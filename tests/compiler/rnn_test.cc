// Recurrent networks through the compiler: passes and the generic engine's kernels for GPUs and the
// CPU, in the tile interpreter, against the oracle.
#include <gtest/gtest.h>

#include <algorithm>

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
  for (uint64_t seed = 1; seed <= 60 && !HasFatalFailure(); ++seed) {
    const RnnCase c = testing::RandomRnnCase(seed);
    ExpectRight(c, seed % 4 != 0, archs[seed % 2]);
  }
}

}  // namespace
}  // namespace kiln::compiler
