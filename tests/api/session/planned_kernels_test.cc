// The kernels that a pack gets against those of plans that a session there would build.
#include "api/session/planned_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "api/session/knobs.h"
#include "api/session/session.h"
#include "compiler/compile.h"
#include "ir/target.h"

namespace kiln::api {
namespace {

constexpr const char* kGraphs[] = {
    R"(graph product {
  tensor %a uid=1 f16 [1,512,512]
  tensor %b uid=2 f16 [1,512,512]
  tensor %c uid=3 f16 [1,512,512]
  %c = matmul(%a, %b) compute=f32
}
)",
    R"(graph convolution {
  tensor %x uid=1 f16 [16,64,56,56] strides=[200704,1,3584,64]
  tensor %w uid=2 f16 [64,64,3,3] strides=[576,1,192,64]
  tensor %y uid=3 f16 [16,64,56,56] strides=[200704,1,3584,64]
  %y = conv_fprop(%x, %w) compute=f32 pre_padding=[1,1] post_padding=[1,1] stride=[1,1] dilation=[1,1]
}
)",
    R"(graph f32_product {
  tensor %a uid=1 f32 [1,256,256]
  tensor %b uid=2 f32 [1,256,256]
  tensor %c uid=3 f32 [1,256,256]
  %c = matmul(%a, %b) compute=f32
}
)"};

std::set<std::string> EntriesOf(const std::vector<KernelSource>& kernels) {
  std::set<std::string> entries;
  for (const KernelSource& kernel : kernels) {
    EXPECT_EQ(kernel.arch, "sm_90a");
    EXPECT_TRUE(entries.insert(kernel.entry).second) << kernel.entry << " comes twice";
  }
  return entries;
}

// The kernels of a configuration's plan are among `entries`.
void ExpectThere(const graph::Graph& graph, const Target& target, const EngineConfig& config,
                 const std::set<std::string>& entries) {
  const auto choice = ChoiceOf(config);
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  const auto plan = compiler::Compile(graph, target, *choice);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  for (const KernelSource& kernel : plan->program.kernels)
    EXPECT_TRUE(entries.contains(kernel.entry)) << graph.name << ": " << kernel.entry;
}

TEST(PlannedKernelsTest, EachListsKernelsAreThere) {
  const Target target = *TargetFromBoard("NVIDIA H200");
  const PlannedKernels planned(target);
  for (const char* text : kGraphs) {
    const auto graph = graph::Parse(text);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    const auto first = planned.Of(*graph, PlannedFor::kFirstChoice);
    const auto whole = planned.Of(*graph, PlannedFor::kWholeList);
    ASSERT_TRUE(first.ok() && whole.ok());
    const std::set<std::string> firsts = EntriesOf(*first), all = EntriesOf(*whole);
    EXPECT_TRUE(std::ranges::includes(all, firsts));
    const std::shared_ptr<Session> session = NewSessionFor(target);
    for (const RankMode mode : {RankMode::kInstant, RankMode::kA, RankMode::kFallback}) {
      const auto ranked = session->Rank(*graph, {.mode = mode});
      ASSERT_TRUE(ranked.ok()) << ranked.status().message();
      ExpectThere(*graph, target, ranked->front(), firsts);
      if (mode != RankMode::kInstant) continue;
      for (const EngineConfig& config : *ranked) ExpectThere(*graph, target, config, all);
    }
  }
}

}  // namespace
}  // namespace kiln::api
