// The plan of least workspace: over all cases, no group of it uses memory of its own if any
// configuration does without, so that a graph whose groups can has a plan without.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <map>
#include <numeric>

#include "compiler/engines/candidates.h"
#include "compiler/engines/registry.h"
#include "compiler/pass.h"
#include "tests/compiler/case_plans.h"
#include "tests/support/case_graph.h"

namespace kiln::compiler {
namespace {

int64_t ScratchOf(const Lowered& lowered) {
  return std::accumulate(lowered.scratch_bytes.begin(), lowered.scratch_bytes.end(), int64_t{0});
}

// The least scratch memory of every configuration that may be chosen.
int64_t LeastScratch(const Group& group, const Target& target) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Candidate& c : RankCandidates(group, target)) {
    const auto plan = Engines()[static_cast<size_t>(c.engine)].plan(group, target);
    if (!plan.ok()) continue;
    const Result<Lowered> lowered = (*plan)->Lower(c.knobs);
    if (lowered.ok()) least = std::min(least, ScratchOf(*lowered));
    if (least == 0) break;
  }
  return least;
}

struct Counts {
  int graphs = 0, without = 0, groups_that_need = 0;
};

// Also of the bytes that are said without printing a kernel.
void Check(const graph::Graph& g, const Target& target, Counts& counts) {
  Module module{.graph = g};
  const Status status =
      RunPipeline(module, {.target = target, .choice = {.least_workspace = true}});
  ASSERT_TRUE(status.ok()) << status.message();
  const Result<LeastWorkspace> said = LeastWorkspaceOf(g, target);
  ASSERT_TRUE(said.ok()) << said.status().message();
  EXPECT_EQ(said->bytes, module.program.workspace_bytes);
  ++counts.graphs;
  counts.without += said->bytes == 0;
  for (const Group& group : module.groups) {
    const int64_t scratch = ScratchOf(group.lowered);
    if (scratch == 0) continue;
    ++counts.groups_that_need;
    // Not all configurations are asked, so a little more than the least may be needed.
    EXPECT_LE(scratch, 2 * LeastScratch(group, target))
        << Engines()[static_cast<size_t>(group.engine)].name << " was taken for\n"
        << graph::Print(group.graph);
  }
}

TEST(WorkspaceTest, NoGroupNeedsAnyThatCanDoWithout) {
  std::map<std::string, Counts> all;
  for (const auto& entry : std::filesystem::directory_iterator("tests/cases")) {
    if (entry.path().extension() != ".txt" || entry.path().filename() == "bench_contract.txt" ||
        entry.path().filename() == "nvidia_differs.txt")
      continue;
    const testing::CaseFile file = testing::LoadCases(entry.path());
    ASSERT_TRUE(file.errors.empty()) << file.errors[0];
    for (const testing::Case& c : file.cases) {
      const Result<graph::Graph> g = testing::ToGraph(c);
      if (!g.ok()) continue;  // that it is refused is what the case is for
      for (const char* arch : {"sm_90a", "sm_80", "cpu"}) {
        SCOPED_TRACE(c.Label() + " for " + arch);
        Check(*g, *TargetFromArch(arch), all[arch]);
      }
    }
  }
  for (const auto& [arch, counts] : all) {
    std::printf("%s: %d of %d graphs without workspace, %d groups need some\n", arch.c_str(),
                counts.without, counts.graphs, counts.groups_that_need);
    EXPECT_GT(counts.graphs, 1000);
    EXPECT_GT(counts.without, counts.graphs / 2);
  }
}

}  // namespace
}  // namespace kiln::compiler
