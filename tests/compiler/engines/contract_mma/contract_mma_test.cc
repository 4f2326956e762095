// The mma.sync engines by interpretation: every contraction sample that they take once its inputs
// are of a type they multiply, with knobs that change from sample to sample, and extents for which
// operands are read 16 bytes at a time. Races and reads before a copy has landed are errors there.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "ir/graph/builder.h"
#include "tests/compiler/sample_graphs.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::TensorId;

Target Hopper() { return *TargetFromArch("sm_90a"); }

bool TakesMma(const Graph& g) {
  const Result<std::optional<Group>> leading = LeadingGroupOf(g, Hopper());
  const Engine& engine = Engines()[EngineIndex("contract_mma")];
  return leading.ok() && leading->has_value() && Supports(engine, **leading, Hopper()).ok();
}

// Inputs of `type` in place of f32, which compute in what that type sums in.
Graph WithInputs(Graph g, DType type) {
  for (TensorId id : graph::Inputs(g))
    if (g[id].dtype == DType::kF32) g[id].dtype = type;
  if (type != DType::kI8) return g;
  for (graph::Node& node : g.nodes) node.compute = DType::kI32;
  return g;
}

using Knobs = std::vector<KnobSetting>;

void ExpectRight(const Graph& g, const std::string& name, const Knobs& knobs,
                 const char* engine = "contract_mma") {
  const EngineChoice choice{.engine = EngineIndex(engine), .knobs = knobs};
  const Result<TileRun> run = CheckTiles(g, Hopper(), graph::RandomInputs(g, 11, false), choice);
  EXPECT_TRUE(run.ok()) << name << ": " << run.status().message() << "\n" << graph::Print(g);
}

Knobs Tile(int m, int n) { return {{"tile_m", m}, {"tile_n", n}}; }

// In turn over the samples: stages, depths, warps and splits in small tiles.
Knobs KnobsOf(int number) {
  static constexpr int kStages[] = {2, 3, 4, 5}, kDepths[] = {64, 128, 128},
                       kSplits[] = {1, 2, 1, 8, 1};
  return {{"tile_m", 64},
          {"tile_n", number % 7 == 3 ? 128 : 64},
          {"stages", kStages[number % 4]},
          {"depth_bytes", kDepths[number % 3]},
          {"warps", number % 2 == 0 ? 4 : 8},
          {"split_k", kSplits[number % 5]}};
}

// Runs the samples, and returns how many of them the engine took.
int RunSamples(const std::vector<SampleGraph>& samples, std::vector<DType> types) {
  int taken = 0;
  for (const SampleGraph& sample : samples) {
    const DType type = types[static_cast<size_t>(taken) % types.size()];
    const Graph g = WithInputs(sample.graph, type);
    if (!TakesMma(g)) continue;
    ExpectRight(g, sample.name, KnobsOf(taken),
                taken % 5 == 4 ? "contract_mma_atomic" : "contract_mma");
    ++taken;
  }
  return taken;
}

TEST(ContractMmaTest, TakesMatmulSamples) {
  EXPECT_GT(RunSamples(MatmulSamples(), {DType::kF16, DType::kBF16, DType::kE4M3}), 15);
}
TEST(ContractMmaTest, TakesConvolutionSamples) {
  EXPECT_GT(RunSamples(ConvSamples(), {DType::kBF16, DType::kF16, DType::kE5M2}), 40);
}

Graph Matmul(const Dims& a, const Dims& as, const Dims& b, const Dims& bs, const Dims& cs = {}) {
  graph::GraphBuilder builder("wide");
  const TensorId x = builder.Input("a", DType::kF16, a, as),
                 y = builder.Input("b", DType::kF16, b, bs);
  const TensorId c = builder.Apply(GraphOp::kMatmul, {x, y}, graph::MatmulAttrs{},
                                   {.dtype = DType::kF32, .compute = DType::kF32, .dims = {}});
  builder.Output(c, "y", DType::kF16, cs);
  return *builder.Finish();
}

TEST(ContractMmaTest, WideReadsOfEitherOperand) {
  const Dims a = {1, 140, 72}, b = {1, 72, 70};
  for (const Dims& as : {Dims{10080, 72, 1}, Dims{10080, 1, 140}, Dims{11200, 80, 1}})
    for (const Dims& bs : {Dims{5040, 70, 1}, Dims{5040, 1, 72}, Dims{5600, 1, 80}})
      ExpectRight(Matmul(a, as, b, bs), "matmul", Tile(128, 64));
}

TEST(ContractMmaTest, WideReadsOfConvolutions) {
  const Dims nhwc_x = {2 * 7 * 9 * 16, 1, 9 * 16, 16}, krsc_w = {9 * 16, 1, 3 * 16, 16};
  for (const int groups : {1, 2}) {
    graph::GraphBuilder builder("conv");
    const int64_t channels = 16 * groups;
    Dims xs = nhwc_x;
    for (int64_t& s : xs) s = s == 1 ? 1 : s * groups;
    const TensorId x = builder.Input("x", DType::kBF16, {2, channels, 7, 9}, xs);
    const TensorId w = builder.Input("w", DType::kBF16, {24, 16, 3, 3}, krsc_w);
    const graph::ConvAttrs attrs{
        .pre_padding = {1, 0}, .post_padding = {1, 2}, .stride = {2, 1}, .dilation = {1, 2}};
    const TensorId c = builder.Apply(GraphOp::kConvFprop, {x, w}, attrs,
                                     {.dtype = DType::kF32, .compute = DType::kF32, .dims = {}});
    builder.Output(c, "y", DType::kBF16, {});
    ExpectRight(*builder.Finish(), fmt::format("groups {}", groups), Tile(64, 64));
  }
}

// Output and operands in the layouts of weights and activations, so that every path of an operand
// (along k, along rows, by elements) meets every other; then all of it transposed.
TEST(ContractMmaTest, EveryPairOfPathsInEveryStage) {
  const Dims a = {1, 72, 200}, b = {1, 200, 80};
  int number = 0;
  for (const Dims& as : {Dims{14400, 200, 1}, Dims{14400, 1, 72}, Dims{15000, 205, 1}})
    for (const Dims& bs : {Dims{16000, 80, 1}, Dims{16000, 1, 200}, Dims{17000, 85, 1}})
      for (const Dims& cs : {Dims{5760, 80, 1}, Dims{5760, 1, 72}})
        for (const int stages : {2, 5})
          ExpectRight(Matmul(a, as, b, bs, cs), fmt::format("matmul {}", number),
                      {{"tile_m", 64},
                       {"tile_n", 64},
                       {"stages", stages},
                       {"split_k", number % 3 + 1 < 3 ? number % 3 + 1 : 4},
                       {"depth_bytes", number++ % 2 == 0 ? 64 : 128}});
}

TEST(ContractMmaTest, EveryTile) {
  const Graph g = Matmul({1, 300, 136}, {}, {1, 136, 264}, {});
  for (const int m : {64, 128, 256})
    for (const int n : {64, 128, 256})
      for (const int warps : {4, 8}) {
        Knobs knobs = Tile(m, n);
        knobs.push_back({"warps", warps});
        ExpectRight(g, fmt::format("{}x{}x{}", m, n, warps), knobs);
      }
}

TEST(ContractMmaTest, IntegersAreExact) {
  for (const Dims& bs : {Dims{}, Dims{9600, 1, 160}}) {
    graph::GraphBuilder builder("integers");
    const TensorId x = builder.Input("a", DType::kI8, {1, 70, 160}, {}),
                   y = builder.Input("b", DType::kI8, {1, 160, 60}, bs);
    const TensorId c = builder.Apply(GraphOp::kMatmul, {x, y}, graph::MatmulAttrs{},
                                     {.dtype = DType::kI32, .compute = DType::kI32, .dims = {}});
    builder.Output(c, "y", DType::kI32, {});
    const Graph g = *builder.Finish();
    for (const int splits : {1, 2})
      for (const char* engine : {"contract_mma", "contract_mma_atomic"})
        ExpectRight(g, "integers", {{"tile_m", 64}, {"tile_n", 64}, {"split_k", splits}}, engine);
  }
}

// Numbers of few bits are the same in TF32; nothing but a request brings the engine.
TEST(ContractMmaTest, FloatsOnRequest) {
  graph::GraphBuilder builder("floats");
  const TensorId x = builder.Input("a", DType::kF32, {1, 70, 100}, {}),
                 y = builder.Input("b", DType::kF32, {1, 100, 60}, {6000, 1, 100});
  const TensorId c = builder.Apply(GraphOp::kMatmul, {x, y}, graph::MatmulAttrs{},
                                   {.dtype = DType::kF32, .compute = DType::kF32, .dims = {}});
  builder.Output(c, "y", DType::kF32, {});
  const Graph g = *builder.Finish();
  graph::TensorValues inputs = graph::RandomInputs(g, 3, false);
  for (auto& [id, values] : inputs)
    for (double& v : values) v = RoundTo(DType::kF16, v);
  const EngineChoice choice{.engine = EngineIndex("contract_mma_tf32"),
                            .knobs = {{"tile_m", 64}, {"tile_n", 64}, {"split_k", 2}}};
  const Result<TileRun> run = CheckTiles(g, Hopper(), inputs, choice);
  EXPECT_TRUE(run.ok()) << run.status().message();

  const Result<TileRun> free = RunTiles(g, Hopper(), inputs);
  ASSERT_TRUE(free.ok()) << free.status().message();
  EXPECT_STREQ(Engines()[free->module.groups[0].engine].name, "contract_simt");
}

TEST(ContractMmaTest, DeclinesInWords) {
  const Result<CompiledPlan> plan =
      Compile(Matmul({1, 8, 8}, {}, {1, 8, 8}, {}), *TargetFromArch("sm_75"),
              {.engine = EngineIndex("contract_mma"), .knobs = {}});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("needs sm_80"), std::string::npos)
      << plan.status().message();
}

}  // namespace
}  // namespace kiln::compiler
