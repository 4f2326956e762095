// The recorded graphs on the CPU device, their large extents made small, against the interpreter.
#include <gtest/gtest.h>

#include "runtime/device_select.h"
#include "tests/numerics/graph_runs.h"
#include "tests/support/random_graph.h"
#include "tests/support/recorded.h"

namespace kiln::testing {
namespace {

class RecordedGraph : public ::testing::TestWithParam<int> {};

constexpr int kShards = 4;

TEST_P(RecordedGraph, AgreesWithTheInterpreter) {
  const auto device = runtime::DefaultDevice();
  ASSERT_TRUE(device.ok()) << device.status().message();
  const std::vector<Recorded> graphs = RecordedGraphs();
  ASSERT_EQ(graphs.size(), 120u);
  int ran = 0, declined = 0;
  for (size_t i = static_cast<size_t>(GetParam()); i < graphs.size(); i += kShards) {
    SCOPED_TRACE(graphs[i].line);
    if (NeedsSeveralGpus(graphs[i].graph)) {
      ++declined;
      continue;
    }
    const Result<graph::Graph> small = WithSmallExtents(graphs[i].graph);
    EXPECT_TRUE(small.ok()) << small.status().message();
    if (!small.ok()) continue;
    const auto seed = static_cast<uint64_t>(graphs[i].line);
    // Positive: some inputs are variances.
    const GraphRun run = RunGraph(**device, *small, graph::RandomInputs(*small, seed, true), seed);
    EXPECT_EQ(run.text, "") << graph::Print(*small);
    EXPECT_GT(run.finite, run.elements / 2);
    fmt::print("line {}: {} elements, work {:.2g}\n", graphs[i].line, run.elements, Work(*small));
    ++ran;
  }
  EXPECT_EQ(ran + declined, 120 / kShards);
  EXPECT_LE(declined, 2);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedGraph, ::testing::Range(0, kShards));

}  // namespace
}  // namespace kiln::testing
