// The CUDA texts of all hand-written graphs and of the examples compile for three generations of
// GPUs without a warning. Sampled; all of them with KILN_TEST_ALL=1. Skipped where there is no
// NVRTC.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "ir/graph/import.h"
#include "tests/compiler/sample_graphs.h"
#include "tests/support/compile_check.h"

namespace kiln::compiler {
namespace {

constexpr const char* kArchs[] = {"sm_80", "sm_90a", "sm_100a"};

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const runtime::Nvrtc*> nvrtc = runtime::ProcessNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message();
    nvrtc_ = *nvrtc;
  }
  // A plan of its own for each architecture: some engines exist for one only.
  void Add(const graph::Graph& g, const std::string& name, const EngineChoice& choice = {}) {
    for (const char* arch : kArchs) {
      const Result<CompiledPlan> plan = Compile(g, *TargetFromArch(arch), choice);
      ASSERT_TRUE(plan.ok()) << name << ", " << arch << ": " << plan.status().message();
      check_.Add(plan->program, name);
    }
  }
  void ExpectCompiles(size_t limit) {
    for (const std::string& failure : check_.Run(*nvrtc_, TestAll() ? check_.texts() : limit))
      ADD_FAILURE() << failure;
  }

  const runtime::Nvrtc* nvrtc_ = nullptr;
  CompileCheck check_;
};

TEST_F(NvrtcTest, HandWrittenGraphsCompile) {
  for (const SampleGraph& sample : AllSamples()) Add(sample.graph, sample.name);
  ExpectCompiles(120);
}

// Two stages, and the smallest and largest tiles.
TEST_F(NvrtcTest, KnobsCompile) {
  for (const SampleGraph& sample : ReduceSamples()) {
    if (sample.name == "columns" || sample.name == "rows_long" ||
        sample.name == "prologue_epilogue")
      for (const int splits : {1, 4})
        Add(sample.graph, sample.name, {.engine = -1, .knobs = {{"splits", splits}}});
  }
  for (const SampleGraph& sample : ConvSamples()) {
    if (sample.name.starts_with("conv_bias_relu"))
      for (const char* engine : {"contract_simt", "contract_mma"})
        for (const int tile : {64, 128})
          Add(sample.graph, sample.name,
              {.engine = EngineIndex(engine), .knobs = {{"tile_m", tile}, {"tile_n", tile}}});
  }
  ExpectCompiles(12);
}

TEST_F(NvrtcTest, ExamplesCompile) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator("examples/graphs")) {
    if (entry.path().extension() != ".kiln" && entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const Result<graph::Graph> g = graph::ImportAny(text.str());
    ASSERT_TRUE(g.ok()) << entry.path() << ": " << g.status().message();
    Add(*g, entry.path());
    ++examples;
  }
  EXPECT_GE(examples, 5);
  ExpectCompiles(60);
}

// nvcc is another front end than NVRTC, and is what people try by hand.
TEST_F(NvrtcTest, NvccCompilesAHandful) {
  const char* nvcc = "/usr/local/cuda/bin/nvcc";
  if (!std::filesystem::exists(nvcc)) GTEST_SKIP() << "no " << nvcc;
  int compiled = 0;
  const std::filesystem::path folder = testing::TempDir();
  for (const SampleGraph& sample : AllSamples()) {
    if (sample.name != "conv_bias_relu_nhwc" && sample.name != "softmax" &&
        sample.name != "mixed_types")
      continue;
    const Result<CompiledPlan> plan = Compile(sample.graph, *TargetFromArch("sm_90a"));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (const KernelSource& kernel : plan->program.kernels) {
      const std::filesystem::path source = folder / (kernel.entry + ".cu");
      std::ofstream(source) << kernel.text;
      const std::string command =
          fmt::format("{} -cubin -std=c++17 -arch=sm_90a -o {}.cubin {} 2>&1", nvcc,
                      source.string(), source.string());
      EXPECT_EQ(std::system(command.c_str()), 0) << sample.name << "\n" << kernel.text;
      ++compiled;
    }
  }
  EXPECT_GE(compiled, 3);
}

}  // namespace
}  // namespace kiln::compiler
