// The kernels of contract_mma keep everything in registers: ptxas reports no spill for any
// candidate of the large problems, on the first and on the newest GPU that the engine is tuned for.
// So do those of wgmma_sm90 that reduce their result, in both forms.
// Skipped where there is no nvcc; all candidates with KILN_TEST_ALL=1, else every ninth.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "ir/graph/builder.h"
#include "tests/support/compile_check.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::TensorId;

constexpr const char* kNvcc = "/usr/local/cuda/bin/nvcc";

Graph Matmul(const Dims& b_strides) {
  graph::GraphBuilder builder("matmul");
  const TensorId a = builder.Input("a", DType::kF16, {1, 1024, 1024}, {}),
                 b = builder.Input("b", DType::kF16, {1, 1024, 1024}, b_strides);
  builder.Output(builder.Apply(GraphOp::kMatmul, {a, b}, graph::MatmulAttrs{},
                               {.dtype = DType::kF32, .compute = DType::kF32, .dims = {}}),
                 "y", DType::kF16, {});
  return *builder.Finish();
}

Graph Conv(GraphOp op) {
  graph::GraphBuilder builder("conv");
  const Dims image = {64 * 196, 1, 14 * 64, 64}, filter = {576, 1, 192, 64};
  const bool wgrad = op == GraphOp::kConvWgrad;
  const TensorId x = builder.Input("x", DType::kF16, {32, 64, 14, 14}, image);
  const TensorId second = builder.Input(
      "w", DType::kF16, wgrad ? Dims{32, 64, 14, 14} : Dims{64, 64, 3, 3}, wgrad ? image : filter);
  const graph::ConvAttrs attrs{
      .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
  const TensorId y = builder.Apply(op, {x, second}, attrs,
                                   {.dtype = DType::kF32,
                                    .compute = DType::kF32,
                                    .dims = wgrad ? Dims{64, 64, 3, 3} : Dims{32, 64, 14, 14}});
  builder.Output(y, "y", DType::kF16, wgrad ? filter : image);
  return *builder.Finish();
}

// ptxas' lines about spills that are not "0 bytes spill stores, 0 bytes spill loads".
std::string Spills(const KernelSource& kernel) {
  const std::filesystem::path folder = testing::TempDir();
  const std::filesystem::path source = folder / (kernel.entry + ".cu"),
                              log = folder / (kernel.entry + ".log");
  std::ofstream(source) << kernel.text;
  const std::string command =
      fmt::format("{} -cubin -std=c++17 -arch={} -Xptxas=-v -o {}.cubin {} > {} 2>&1", kNvcc,
                  kernel.arch, source.string(), source.string(), log.string());
  if (std::system(command.c_str()) != 0) return command + " failed";
  std::ifstream file(log);
  std::string line, found;
  int lines = 0;
  while (std::getline(file, line)) {
    if (line.find("spill stores") == line.npos) continue;
    ++lines;
    if (line.find(" 0 bytes spill stores, 0 bytes spill loads") == line.npos) found += line + "\n";
  }
  return lines > 0 ? found : "ptxas said nothing of spills";
}

TEST(SpillsTest, CandidatesOfContractMmaHaveNone) {
  if (!std::filesystem::exists(kNvcc)) GTEST_SKIP() << "no " << kNvcc;
  const Engine& engine = Engines()[EngineIndex("contract_mma")];
  size_t number = 0;
  for (const Graph& g : {Matmul({}), Matmul({1 << 20, 1, 1024}), Conv(GraphOp::kConvFprop),
                         Conv(GraphOp::kConvDgrad), Conv(GraphOp::kConvWgrad)}) {
    for (const char* arch : {"sm_80", "sm_90a"}) {
      const Target target = *TargetFromArch(arch);
      const Result<std::optional<Group>> leading = LeadingGroupOf(g, target);
      ASSERT_TRUE(leading.ok() && leading->has_value());
      for (const std::vector<int>& knobs : CandidateKnobs(engine, **leading, target)) {
        if (!TestAll() && number++ % 9 != 0) continue;
        EngineChoice choice{.engine = EngineIndex("contract_mma"), .knobs = {}};
        for (size_t k = 0; k < knobs.size(); ++k)
          choice.knobs.push_back({engine.knobs[k].name, knobs[k]});
        const Result<CompiledPlan> plan = Compile(g, target, choice);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        for (const KernelSource& kernel : plan->program.kernels)
          EXPECT_EQ(Spills(kernel), "") << g.name << " " << arch << " " << KnobText(engine, knobs);
      }
    }
  }
}

// Sums and sums of squares of the result, which goes out by tensor map, or beside a second operand.
Graph ConvWithStatistics(bool adds) {
  graph::GraphBuilder builder("conv");
  const Dims image = {128 * 784, 1, 28 * 128, 128}, filter = {1152, 1, 384, 128};
  const TensorId x = builder.Input("x", DType::kF16, {64, 128, 28, 28}, image);
  const TensorId w = builder.Input("w", DType::kF16, {128, 128, 3, 3}, filter);
  const graph::ConvAttrs attrs{
      .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
  const graph::ResultOptions options{.dtype = DType::kF32, .compute = DType::kF32, .dims = {}};
  TensorId y = builder.Apply(GraphOp::kConvFprop, {x, w}, attrs, options);
  if (adds) {
    const TensorId r = builder.Input("r", DType::kF16, {64, 128, 28, 28}, image);
    y = builder.Pointwise(graph::PointwiseMode::kAdd, {y, r}, options);
  }
  builder.Output(y, "y", DType::kF16, image);
  for (const auto mode : {graph::ReductionMode::kAdd, graph::ReductionMode::kNorm2})
    builder.Output(builder.Reduction(mode, y, {1, 128, 1, 1}, options), "s", DType::kF32);
  return *builder.Finish();
}

TEST(SpillsTest, WgmmaWithReductionsHasNone) {
  if (!std::filesystem::exists(kNvcc)) GTEST_SKIP() << "no " << kNvcc;
  const int index = EngineIndex("wgmma_sm90");
  const Engine& engine = Engines()[index];
  const Target target = *TargetFromArch("sm_90a");
  size_t number = 0;
  for (const bool adds : {false, true}) {
    const Graph g = ConvWithStatistics(adds);
    const Result<std::optional<Group>> leading = LeadingGroupOf(g, target);
    ASSERT_TRUE(leading.ok() && leading->has_value());
    for (const std::vector<int>& knobs : CandidateKnobs(engine, **leading, target)) {
      if (!TestAll() && number++ % 11 != 0) continue;
      EngineChoice choice{.engine = index, .knobs = {}};
      for (size_t k = 0; k < knobs.size(); ++k)
        choice.knobs.push_back({engine.knobs[k].name, knobs[k]});
      const Result<CompiledPlan> plan = Compile(g, target, choice);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      for (const KernelSource& kernel : plan->program.kernels) {
        if (kernel.text.find("contract_reduced_sm90") == kernel.text.npos) continue;
        EXPECT_EQ(Spills(kernel), "") << adds << " " << KnobText(engine, knobs);
      }
    }
  }
  EXPECT_GT(number, 20u);
}

}  // namespace
}  // namespace kiln::compiler
