// The graphs that clients of cuDNN have been seen to build: each that imports compiles for the GPUs
// and for the CPU, its CUDA texts pass NVRTC (a sample of them; all with KILN_TEST_ALL=1), and,
// with its large extents made small, it runs right.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "compiler/compile.h"
#include "ir/graph/builder.h"
#include "ir/graph/import_recorded.h"
#include "ir/graph/ops.h"
#include "tests/support/compile_check.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::Node;
using graph::Tensor;

struct Recorded {
  int line;
  Graph graph;
};

std::vector<Recorded> ImportedGraphs() {
  std::ifstream file("tests/data/recorded_graphs.jsonl");
  EXPECT_TRUE(file.good());
  std::vector<Recorded> graphs;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (Result<Graph> g = graph::ImportRecorded(line); g.ok())
      graphs.push_back({number, *std::move(g)});
  }
  return graphs;
}

TEST(RecordedTest, CompileForEveryTarget) {
  const std::vector<Recorded> graphs = ImportedGraphs();
  EXPECT_GE(graphs.size(), 60u);
  CompileCheck check;
  for (const Recorded& r : graphs) {
    for (const char* arch : {"sm_80", "sm_90a", "sm_100a", "cpu"}) {
      const Result<CompiledPlan> plan = Compile(r.graph, *TargetFromArch(arch));
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

// ---- small extents
// -----------------------------------------------------------------------------------

// Extents that a convolution's geometry ties together stay as they are.
std::set<int64_t> SpatialExtents(const Graph& g) {
  std::set<int64_t> extents;
  const auto is_convolution = [](const Node& n) {
    return Has(n, graph::kContraction) && n.op != graph::GraphOp::kMatmul;
  };
  for (const Node& node : g.nodes) {
    if (!is_convolution(node)) continue;
    for (const graph::TensorId id : {node.inputs[0], node.inputs[1], node.outputs[0]})
      for (size_t d = 2; d < g[id].dims.size(); ++d) extents.insert(g[id].dims[d]);
  }
  return extents;
}

// Memory for batches whose extents have changed.
void SmallMemory(Graph& g, const Node& node, graph::RaggedAttrs& ragged) {
  const bool is_load = node.op == graph::GraphOp::kRaggedLoad;
  const Dims dims = g[is_load ? node.outputs[0] : node.inputs[0]].dims;
  ragged.strides = PackedStridesLike(dims, ragged.strides);
  g[node.inputs[1]].dims[0] = dims[0] + 1;
  for (const graph::TensorId id : {is_load ? node.inputs[0] : node.inputs[2], node.outputs[0]})
    if (g[id].uid >= 0) g[id].dims[0] = NumElements(dims);
}

// The same graph with each other extent above 16 replaced by a small one, the same one wherever it
// stands.
Result<Graph> Small(Graph g) {
  const std::set<int64_t> kept = SpatialExtents(g);
  const auto small = [&](int64_t extent) {
    if (extent <= 16 || kept.contains(extent)) return extent;
    return extent % 8 == 0 ? 8 + 8 * (extent / 8 % 2) : 5 + extent % 8;
  };
  for (Tensor& t : g.tensors) {
    const Dims before = t.strides;
    for (int64_t& extent : t.dims) extent = small(extent);
    t.strides = PackedStridesLike(t.dims, before);
  }
  for (Node& node : g.nodes) {
    if (auto* slice = std::get_if<graph::SliceAttrs>(&node.attrs))
      std::ranges::fill(slice->start, 0);
    if (auto* ragged = std::get_if<graph::RaggedAttrs>(&node.attrs)) SmallMemory(g, node, *ragged);
  }
  RETURN_IF_ERROR(graph::Legalize(g));
  return g;
}

double Work(const Graph& g) {
  double work = 0;
  for (const Node& node : g.nodes) {
    double own = static_cast<double>(NumElements(g[node.outputs[0]].dims));
    if (Has(node, graph::kContraction)) {
      const Dims& w = g[node.inputs[1]].dims;
      own *= node.op == graph::GraphOp::kMatmul ? static_cast<double>(w[w.size() - 2])
             : node.op == graph::GraphOp::kConvWgrad
                 ? static_cast<double>(NumElements(w)) / static_cast<double>(w[1])
                 : static_cast<double>(NumElements(w)) / static_cast<double>(w[0]);
    }
    work += own;
  }
  return work;
}

TEST(RecordedTest, RunRightAtSmallExtents) {
  const double limit = TestAll() ? 1e8 : 1e6;
  int run = 0, large = 0;
  for (const Recorded& r : ImportedGraphs()) {
    const Result<Graph> small = Small(r.graph);
    // Extents that depend on each other in other ways than by being equal.
    if (!small.ok()) {
      fmt::print("line {} is not small: {}\n", r.line, small.status().message());
      continue;
    }
    if (Work(*small) > limit) {
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
