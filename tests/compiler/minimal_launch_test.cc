// KILN_LAUNCH=minimal: every sample graph compiles for it, with every engine and knob that fits,
// and no program needs more than cuModuleLoadData, cuModuleGetFunction and cuLaunchKernel give. And
// of every engine, with or without the restriction, that it announces the shared memory that it
// uses.
#include <gtest/gtest.h>

#include <map>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "tests/compiler/sample_graphs.h"

namespace kiln::compiler {
namespace {

Target Minimal() {
  Target target = *TargetFromArch("sm_90a");
  target.minimal_launch = true;
  return target;
}

EngineChoice ChoiceOf(size_t engine, std::span<const int> knobs) {
  EngineChoice choice{.engine = static_cast<int>(engine), .knobs = {}};
  for (size_t k = 0; k < knobs.size(); ++k)
    choice.knobs.push_back({Engines()[engine].knobs[k].name, knobs[k]});
  return choice;
}

std::vector<SampleGraph> Samples(bool all_modes) {
  std::vector<SampleGraph> samples;
  for (const auto family : {PointwiseSamples, ReduceSamples, MatmulSamples, ConvSamples,
                            ViewSamples, EmptySamples, FusedSamples})
    for (SampleGraph& sample : family()) samples.push_back(std::move(sample));
  if (all_modes)
    for (SampleGraph& sample : PointwiseModeSamples()) samples.push_back(std::move(sample));
  return samples;
}

class MinimalLaunchTest : public testing::Test {
 protected:
  void ExpectMinimal(const CompiledPlan& plan, const std::string& name) {
    EXPECT_LE(plan.shared_bytes, kSharedWithoutAttribute) << name;
    for (const Launch& launch : plan.program.launches)
      EXPECT_EQ(launch.dynamic_shared_bytes, 0u) << name;
    for (const KernelSource& kernel : plan.program.kernels) {
      // An entry's name belongs to one text, in all programs.
      const auto [known, is_new] = texts_.try_emplace(kernel.entry, kernel.text);
      EXPECT_EQ(known->second, kernel.text) << name;
      for (const char* part : {"__grid_constant__", "CUtensorMap", "__cluster_dims__", "cluster.",
                               "extern __shared__"})
        EXPECT_EQ(kernel.text.find(part), std::string::npos) << name << " has " << part;
    }
  }

  std::map<std::string, std::string> texts_;
};

TEST_F(MinimalLaunchTest, EverySampleCompiles) {
  for (const SampleGraph& sample : Samples(true)) {
    const Result<CompiledPlan> plan = Compile(sample.graph, Minimal());
    ASSERT_TRUE(plan.ok()) << sample.name << ": " << plan.status().message();
    ExpectMinimal(*plan, sample.name);
  }
  EXPECT_GT(texts_.size(), 100u);
}

// Configurations that do not fit are refused in words, and only where they would not fit.
TEST_F(MinimalLaunchTest, EveryEngineAndKnobStaysWithinOrIsRefused) {
  const Target whole = *TargetFromArch("sm_90a"), minimal = Minimal();
  int compiled = 0;
  for (const SampleGraph& sample : Samples(false)) {
    const Result<std::optional<Group>> leading = LeadingGroupOf(sample.graph, minimal);
    ASSERT_TRUE(leading.ok()) << leading.status().message();
    if (!leading->has_value()) continue;
    for (size_t e = 0; e < Engines().size(); ++e) {
      if (!Supports(Engines()[e], **leading, minimal).ok()) continue;
      for (const std::vector<int>& knobs : CandidateKnobs(Engines()[e], **leading, whole)) {
        const EngineChoice choice = ChoiceOf(e, knobs);
        const Result<CompiledPlan> free = Compile(sample.graph, whole, choice);
        const Result<CompiledPlan> bound = Compile(sample.graph, minimal, choice);
        ASSERT_TRUE(free.ok()) << sample.name << ": " << free.status().message();
        EXPECT_EQ(bound.ok(), free->shared_bytes <= kSharedWithoutAttribute)
            << sample.name << ", " << KnobText(Engines()[e], knobs) << ", "
            << (bound.ok() ? "" : bound.status().message());
        if (bound.ok()) {
          ExpectMinimal(*bound, sample.name);
          ++compiled;
        } else {
          EXPECT_NE(bound.status().message().find("KILN_LAUNCH=minimal"), std::string::npos)
              << bound.status().message();
        }
      }
    }
  }
  EXPECT_GT(compiled, 500);
}

// Engines that announce: where it matters, the number is the one that the kernel uses.
TEST(AnnouncedSharedTest, IsWhatTheKernelUses) {
  const Target target = *TargetFromArch("sm_90a");
  int announced = 0;
  for (const SampleGraph& sample : Samples(false)) {
    const Result<std::optional<Group>> leading = LeadingGroupOf(sample.graph, target);
    ASSERT_TRUE(leading.ok()) << leading.status().message();
    if (!leading->has_value()) continue;
    for (size_t e = 0; e < Engines().size(); ++e) {
      const Engine& engine = Engines()[e];
      const auto plan = engine.plan(**leading, target);
      if (!plan.ok()) continue;
      for (const auto& [knobs, seconds, shared_bytes, preference] : Propose(engine, **plan)) {
        const Result<Lowered> lowered = (*plan)->Lower(knobs);
        ASSERT_TRUE(lowered.ok()) << lowered.status().message();
        int64_t used = 0;
        for (const tile::Kernel& kernel : lowered->kernels)
          used = std::max(used, SharedBytes(kernel));
        ++announced;
        // Below 48 KB nobody asks.
        EXPECT_EQ(std::max(shared_bytes, kSharedWithoutAttribute),
                  std::max(used, kSharedWithoutAttribute))
            << engine.name << " " << KnobText(engine, knobs) << " of " << sample.name;
      }
    }
  }
  EXPECT_GT(announced, 500);
}

}  // namespace
}  // namespace kiln::compiler
