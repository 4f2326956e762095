// Plans executed by interpretation against the f64 reference: hand-written graphs for every engine
// and schedule, all knob values, random graphs. KILN_TEST_SEED and KILN_TEST_SEEDS choose other
// random graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "ir/graph/ops.h"
#include "tests/compiler/sample_graphs.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

constexpr const char* kArchs[] = {"sm_90a", "cpu"};

Target TargetOf(const char* arch) { return *TargetFromArch(arch); }

void ExpectRight(const SampleGraph& sample, const Target& target, const EngineChoice& choice = {}) {
  const graph::TensorValues inputs = graph::RandomInputs(sample.graph, 7, sample.positive);
  const Result<TileRun> run = CheckTiles(sample.graph, target, inputs, choice);
  EXPECT_TRUE(run.ok()) << sample.name << ": " << run.status().message() << "\n"
                        << graph::Print(sample.graph);
}

class SamplesTest : public testing::TestWithParam<std::vector<SampleGraph> (*)()> {};

TEST_P(SamplesTest, RunRight) {
  for (const SampleGraph& sample : GetParam()())
    for (const char* arch : kArchs) ExpectRight(sample, TargetOf(arch));
}

// The smallest tiles where the leading group is a contraction: the interpreter is several times as
// fast with them.
EngineChoice SmallTiles(const graph::Graph& g, const Target& target) {
  const Result<std::optional<Group>> leading = LeadingGroupOf(g, target);
  if (HasWholeSkeletons(g, target)) return {};
  if (!leading.ok() || !leading->has_value() || (*leading)->kind != GroupKind::kContract) return {};
  return {.engine = EngineIndex("contract_simt"), .knobs = {{"tile_m", 32}, {"tile_n", 32}}};
}

// Convolutions in small tiles, and every fourth in the default ones.
TEST(ConvSamplesTest, RunRight) {
  size_t number = 0;
  for (const SampleGraph& sample : ConvSamples()) {
    for (const char* arch : kArchs) {
      const Target target = TargetOf(arch);
      ExpectRight(sample, target,
                  number % 4 == 0 ? EngineChoice{} : SmallTiles(sample.graph, target));
    }
    ++number;
  }
}

INSTANTIATE_TEST_SUITE_P(Pointwise, SamplesTest, testing::Values(PointwiseSamples));
INSTANTIATE_TEST_SUITE_P(PointwiseModes, SamplesTest, testing::Values(PointwiseModeSamples));
INSTANTIATE_TEST_SUITE_P(Reduce, SamplesTest, testing::Values(ReduceSamples));
INSTANTIATE_TEST_SUITE_P(Matmul, SamplesTest, testing::Values(MatmulSamples));
INSTANTIATE_TEST_SUITE_P(Rnn, SamplesTest, testing::Values(RnnSamples));
INSTANTIATE_TEST_SUITE_P(View, SamplesTest, testing::Values(ViewSamples));
INSTANTIATE_TEST_SUITE_P(Window, SamplesTest, testing::Values(WindowSamples));
INSTANTIATE_TEST_SUITE_P(BlockScale, SamplesTest, testing::Values(BlockScaleSamples));
INSTANTIATE_TEST_SUITE_P(Empty, SamplesTest, testing::Values(EmptySamples));
INSTANTIATE_TEST_SUITE_P(Fused, SamplesTest, testing::Values(FusedSamples));

// Every knob of the leading group's engine takes every value of its domain, the others at their
// defaults.
class KnobsTest : public SamplesTest {};

TEST_P(KnobsTest, EveryValueRunsRight) {
  // Large tiles take the interpreter long: of the matrix products, every fifth.
  const size_t step = GetParam() == MatmulSamples ? 5 : 1;
  const std::vector<SampleGraph> samples = GetParam()();
  int samples_run = 0;
  for (size_t i = 0; i < samples.size(); i += step) {
    const SampleGraph& sample = samples[i];
    for (const char* arch : kArchs) {
      const Target target = TargetOf(arch);
      const Result<std::optional<Group>> leading = LeadingGroupOf(sample.graph, target);
      ASSERT_TRUE(leading.ok()) << leading.status().message();
      if (!leading->has_value()) continue;
      const int engine = Interpretable(**leading, target).engine;
      for (const KnobRow& row : Engines()[engine].knobs) {
        for (const int value : row.domain.subspan(1))
          ExpectRight(sample, target, {.engine = engine, .knobs = {{row.name, value}}});
      }
      ++samples_run;
    }
  }
  EXPECT_GT(samples_run, 0);
}

INSTANTIATE_TEST_SUITE_P(Pointwise, KnobsTest, testing::Values(PointwiseSamples));
INSTANTIATE_TEST_SUITE_P(Reduce, KnobsTest, testing::Values(ReduceSamples));
INSTANTIATE_TEST_SUITE_P(Window, KnobsTest, testing::Values(WindowSamples));
INSTANTIATE_TEST_SUITE_P(Matmul, KnobsTest, testing::Values(MatmulSamples));

// ---- random graphs

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// With every float computation in f64, composites and their primitives agree to f64's precision, so
// that even graphs that amplify errors can be compared from end to end.
graph::Graph InDouble(graph::Graph g) {
  for (graph::Node& node : g.nodes)
    if (IsFloat(node.compute) && node.op != graph::GraphOp::kPeerReduce) node.compute = DType::kF64;
  // The type that a tensor is quantised to is part of the operation, and a network has one type.
  constexpr graph::GraphOp kTyped[] = {
      graph::GraphOp::kBlockScaleQuantize, graph::GraphOp::kRnnForward,
      graph::GraphOp::kRnnBackwardData, graph::GraphOp::kRnnBackwardWeights};
  std::set<graph::TensorId> quantised;
  for (const graph::Node& node : g.nodes)
    if (std::ranges::find(kTyped, node.op) != std::end(kTyped))
      quantised.insert(node.outputs.begin(), node.outputs.end());
  // GPUs exchange f32, and hand on what they have as it is.
  constexpr graph::GraphOp kBetweenGpus[] = {
      graph::GraphOp::kPeerReduce, graph::GraphOp::kSignalSet, graph::GraphOp::kSignalWait};
  for (const graph::Node& node : g.nodes) {
    if (std::ranges::find(kBetweenGpus, node.op) == std::end(kBetweenGpus)) continue;
    quantised.insert(node.inputs.begin(), node.inputs.end());
    quantised.insert(node.outputs.begin(), node.outputs.end());
  }
  for (size_t id = 0; id < g.tensors.size(); ++id) {
    graph::Tensor& t = g.tensors[id];
    if (t.is_virtual && IsFloat(t.dtype) && !quantised.contains(static_cast<graph::TensorId>(id)))
      t.dtype = DType::kF64;
  }
  // Memory that is added to has the type of its sums.
  for (const graph::Node& node : g.nodes)
    if (node.op == graph::GraphOp::kScatterAdd && IsFloat(node.compute))
      g[node.outputs[0]].dtype = DType::kF64;
  return g;
}

TEST(RandomGraphsTest, RunRight) {
  const uint64_t first = FromEnvironment("KILN_TEST_SEED", 1),
                 count = FromEnvironment("KILN_TEST_SEEDS", 240);
  int64_t elements = 0, loose = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    graph::Graph g = graph::RandomGraph(seed, {.nodes = 6,
                                               .max_extent = 13,
                                               .max_elements = 1200,
                                               .empty_tensors = seed % 5 == 0,
                                               .layouts = seed % 3 == 0});
    const bool exact = seed % 2 == 0;
    if (exact) g = InDouble(std::move(g));
    const graph::TensorValues inputs = graph::RandomInputs(g, seed, seed % 3 == 0);
    for (const char* arch : kArchs) {
      const Target target = TargetOf(arch);
      const EngineChoice choice = seed % 8 == 0 ? EngineChoice{} : SmallTiles(g, target);
      const Result<TileRun> run =
          exact ? CheckTiles(g, target, inputs, choice, 1e-6) : RunTiles(g, target, inputs, choice);
      EXPECT_TRUE(run.ok()) << "seed " << seed << ": " << run.status().message() << "\n"
                            << graph::Print(g);
      if (!run.ok()) continue;
      elements += run->elements;
      loose += run->loose;
    }
  }
  fmt::print("{} random graphs from seed {}: {} elements, {} of them compared loosely\n", count,
             first, elements, loose);
  if (count >= 100) {
    EXPECT_LT(loose * 20, elements) << "the comparison has become too lenient to find errors";
  }
}

}  // namespace
}  // namespace kiln::compiler
