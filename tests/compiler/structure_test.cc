// Tests of what kernels depend on: the structure of a graph, not its extents, so that new shapes
// find their kernels in the cache; the width of indices; and what a compile costs.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "ir/graph/builder.h"
#include "tests/support/pace.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::GraphOp;
using graph::TensorId;
using M = graph::PointwiseMode;

Dims Nhwc(const Dims& d) { return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; }

Graph ConvBiasRelu(int64_t n, int64_t c, int64_t k, int64_t size, DType type = DType::kF16) {
  GraphBuilder b("conv_bias_relu");
  const Dims xd = {n, c, size, size}, wd = {k, c, 3, 3};
  const TensorId x = b.Input("x", type, xd, Nhwc(xd)), w = b.Input("w", type, wd, Nhwc(wd));
  const TensorId bias = b.Input("bias", type, {1, k, 1, 1});
  const graph::ConvAttrs attrs{
      .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
  const TensorId y = b.Pointwise(
      M::kReluFwd, {b.Pointwise(M::kAdd, {b.Apply(GraphOp::kConvFprop, {x, w}, attrs), bias})});
  b.Output(y, "y", type, Nhwc({n, k, size, size}));
  return *b.Finish();
}

Graph Pointwise(Dims dims) {
  GraphBuilder b("pointwise");
  const TensorId x = b.Input("x", DType::kF16, dims), z = b.Input("z", DType::kF32, {dims.back()});
  b.Output(b.Pointwise(M::kGeluFwd, {b.Pointwise(M::kMul, {x, z})}), "y", DType::kF16);
  return *b.Finish();
}

Graph Transpose(int64_t rows, int64_t columns) {
  GraphBuilder b("transpose");
  const TensorId x = b.Input("x", DType::kF16, {rows, columns}, {1, rows});
  b.Output(b.Pointwise(M::kNeg, {x}), "y", DType::kF16, {columns, 1});
  return *b.Finish();
}

Graph Reduce(Dims dims, size_t reduced) {
  GraphBuilder b("reduce");
  const TensorId x = b.Input("x", DType::kF16, dims);
  dims[reduced] = 1;
  b.Output(b.Reduction(graph::ReductionMode::kAvg, x, dims), "y", DType::kF32);
  return *b.Finish();
}

Graph Matmul(int64_t batch, int64_t m, int64_t n, int64_t k) {
  GraphBuilder b("matmul");
  const TensorId x = b.Input("a", DType::kF16, {batch, m, k}),
                 z = b.Input("b", DType::kF16, {batch, k, n});
  b.Output(b.Apply(GraphOp::kMatmul, {x, z}, graph::MatmulAttrs{}), "y", DType::kF16);
  return *b.Finish();
}

// The knobs that the model chooses for a graph may follow its extents; kernels of the same knobs do
// not.
EngineChoice ChoiceFor(const Graph& g, const char* arch) {
  const Result<CompiledPlan> plan = Compile(g, *TargetFromArch(arch));
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  EngineChoice choice;
  if (!plan.ok()) return choice;
  choice.engine = plan->engine;
  const Engine& engine = Engines()[static_cast<size_t>(plan->engine)];
  for (size_t k = 0; k < engine.knobs.size(); ++k)
    choice.knobs.push_back({engine.knobs[k].name, plan->knobs[k]});
  return choice;
}

std::vector<std::string> TextsOf(const Graph& g, const char* arch,
                                 const EngineChoice& choice = {}) {
  const Result<CompiledPlan> plan = Compile(g, *TargetFromArch(arch), choice);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  std::vector<std::string> texts;
  if (plan.ok())
    for (const KernelSource& kernel : plan->program.kernels) texts.push_back(kernel.text);
  return texts;
}

TEST(StructureTest, ExtentsAreNoPartOfTheKernels) {
  const std::pair<Graph, Graph> pairs[] = {
      {ConvBiasRelu(8, 128, 64, 56), ConvBiasRelu(3, 256, 32, 28)},
      // Few channels: the tile and its halo are part of conv_halo_sm90's kernels, images are not.
      {ConvBiasRelu(8, 64, 64, 56), ConvBiasRelu(3, 64, 64, 56)},
      {Pointwise({64, 1024}), Pointwise({7, 40})},
      {Pointwise({2, 3, 64}), Pointwise({9, 5, 128})},
      {Transpose(96, 200), Transpose(640, 1000)},
      {Reduce({4096, 1024}, 1), Reduce({8192, 768}, 1)},
      {Reduce({4096, 512}, 0), Reduce({8192, 768}, 0)},
      {Matmul(4, 128, 256, 64), Matmul(9, 70, 40, 96)},
  };
  for (const auto& [first, second] : pairs)
    for (const char* arch : {"sm_90a", "cpu"})
      EXPECT_TRUE(TextsOf(first, arch) == TextsOf(second, arch, ChoiceFor(first, arch)))
          << first.name << " " << arch;
}

TEST(StructureTest, KernelsDoDifferWhereStructureDoes) {
  EXPECT_FALSE(TextsOf(Pointwise({64, 1024}), "sm_90a") ==
               TextsOf(Pointwise({64, 1023}), "sm_90a"));
  EXPECT_FALSE(TextsOf(Matmul(4, 8, 8, 8), "sm_90a") == TextsOf(Matmul(1, 8, 8, 8), "sm_90a"));
}

TEST(StructureTest, NamesOfTheClientAreNoPartOfTheKernels) {
  Graph g = Pointwise({64, 1024});
  const auto texts = TextsOf(g, "sm_90a");
  for (graph::Tensor& t : g.tensors) t.name = "client_" + t.name;
  for (graph::Node& n : g.nodes) n.name = "a name";
  g.name = "other";
  EXPECT_TRUE(TextsOf(g, "sm_90a") == texts);
}

TEST(StructureTest, LargeTensorsHaveWideIndices) {
  constexpr int64_t kRows = (int64_t{1} << 31) / 64 + 1;
  const std::pair<Graph, Graph> pairs[] = {
      {Pointwise({kRows, 64}), Pointwise({1000, 64})},
      {Reduce({kRows, 64}, 1), Reduce({1000, 64}, 1)},
      {Reduce({kRows, 64}, 0), Reduce({1000, 64}, 0)},
      {Transpose(kRows, 64), Transpose(1000, 64)},
      {Matmul(1, kRows, 8, 64), Matmul(1, 1000, 8, 64)},
  };
  for (const auto& [large, small] : pairs) {
    const auto wide = TextsOf(large, "cpu"), narrow = TextsOf(small, "cpu");
    ASSERT_FALSE(wide.empty());
    for (const std::string& text : wide) {
      EXPECT_NE(text.find("for bx: i64"), std::string::npos) << text;
      EXPECT_EQ(text.find("i32"), std::string::npos) << text;
    }
    for (const std::string& text : narrow) EXPECT_EQ(text.find("i64"), std::string::npos) << text;
    const auto cuda = TextsOf(large, "sm_90a");
    ASSERT_FALSE(cuda.empty());
    for (const std::string& text : cuda)
      EXPECT_NE(text.find("long long"), std::string::npos) << text;
  }
}

// The cost of a new shape whose kernels are known: a session looks texts up by their hash, so it is
// that of Compile.
void ExpectCompilesFast(DType type) {
  const Target target = *TargetFromArch("sm_90a");
  const double pace = testing::Pace();
  std::vector<double> micros;
  for (int64_t n = 1; n <= 64; ++n) {
    const Graph g = ConvBiasRelu(n, 64, 64, 32, type);
    const double begin = testing::ThreadSeconds();
    const Result<CompiledPlan> plan = Compile(g, target);
    micros.push_back(1e6 * (testing::ThreadSeconds() - begin));
    ASSERT_TRUE(plan.ok());
  }
  std::ranges::sort(micros);
  fmt::print("compile of conv+bias+relu in {}: {:.0f} us at best, {:.0f} us median\n",
             Info(type).text, micros[0], micros[micros.size() / 2]);
  // The fastest of 64, so that a loaded machine does not matter.
  EXPECT_LT(micros[0], 1000 * std::max(pace, testing::Pace()));
}

TEST(StructureTest, CompilingTakesLittleTime) {
  ExpectCompilesFast(DType::kF16);
  ExpectCompilesFast(DType::kF32);
  ExpectCompilesFast(DType::kF64);
}

}  // namespace
}  // namespace kiln::compiler
