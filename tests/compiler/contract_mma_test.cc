// The tensor-core engine by interpretation: every contraction sample that it takes once its inputs
// are f16, in both tile sizes, and extents for which operands are read 16 bytes at a time.
#include <gtest/gtest.h>

#include "compiler/compile.h"
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
  return leading.ok() && leading->has_value() && engine.supports(**leading, Hopper()).ok();
}

Graph WithHalfInputs(Graph g, DType half) {
  for (TensorId id : graph::Inputs(g))
    if (g[id].dtype == DType::kF32) g[id].dtype = half;
  return g;
}

void ExpectRight(const Graph& g, const std::string& name, int tile_m, int tile_n) {
  const EngineChoice choice{.engine = EngineIndex("contract_mma"),
                            .knobs = {{"tile_m", tile_m}, {"tile_n", tile_n}}};
  const Result<TileRun> run = CheckTiles(g, Hopper(), graph::RandomInputs(g, 11, false), choice);
  EXPECT_TRUE(run.ok()) << name << ": " << run.status().message() << "\n" << graph::Print(g);
}

// How many of the samples the engine took.
int RunSamples(const std::vector<SampleGraph>& samples) {
  int taken = 0;
  for (const SampleGraph& sample : samples) {
    const Graph g = WithHalfInputs(sample.graph, taken % 2 == 0 ? DType::kF16 : DType::kBF16);
    if (!TakesMma(g)) continue;
    ExpectRight(g, sample.name, 64, taken % 3 == 0 ? 128 : 64);
    ++taken;
  }
  return taken;
}

TEST(ContractMmaTest, TakesMatmulSamples) { EXPECT_GT(RunSamples(MatmulSamples()), 15); }
TEST(ContractMmaTest, TakesConvolutionSamples) { EXPECT_GT(RunSamples(ConvSamples()), 40); }

Graph Matmul(const Dims& a, const Dims& as, const Dims& b, const Dims& bs) {
  graph::GraphBuilder builder("wide");
  const TensorId x = builder.Input("a", DType::kF16, a, as),
                 y = builder.Input("b", DType::kF16, b, bs);
  const TensorId c = builder.Apply(GraphOp::kMatmul, {x, y}, graph::MatmulAttrs{},
                                   {.dtype = DType::kF32, .compute = DType::kF32, .dims = {}});
  builder.Output(c, "y", DType::kF16, {});
  return *builder.Finish();
}

TEST(ContractMmaTest, WideReadsOfEitherOperand) {
  const Dims a = {1, 140, 72}, b = {1, 72, 70};
  for (const Dims& as : {Dims{10080, 72, 1}, Dims{10080, 1, 140}, Dims{11200, 80, 1}})
    for (const Dims& bs : {Dims{5040, 70, 1}, Dims{5040, 1, 72}, Dims{5600, 1, 80}})
      ExpectRight(Matmul(a, as, b, bs), "matmul", 128, 64);
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
    ExpectRight(*builder.Finish(), fmt::format("groups {}", groups), 64, 64);
  }
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
