// Graphs of calls that have no workspace, as the legacy API makes them (tests/data/legacy_graphs):
// a plan that needs none, and is right, by interpretation. Chains of reductions are one kernel
// however their rows lie; windows that windows read are computed again.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "compiler/pass.h"
#include "ir/graph/graph.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

Target Gpu() { return *TargetFromArch("sm_90a"); }

std::vector<std::filesystem::path> Files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/data/legacy_graphs"))
    if (entry.path().extension() == ".kiln") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

graph::Graph Load(const std::filesystem::path& path) {
  std::ifstream file(path);
  Result<graph::Graph> graph = graph::Parse(std::string(std::istreambuf_iterator<char>(file), {}));
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return *std::move(graph);
}

void ExpectRight(const graph::Graph& g, const Target& target, const EngineChoice& choice) {
  const Result<TileRun> run = CheckTiles(g, target, graph::RandomInputs(g, 5, true), choice, 1e-4);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->module.program.workspace_bytes, 0) << graph::Print(g);
}

TEST(LittleWorkspaceTest, CallsWithoutOneNeedNone) {
  for (const auto& path : Files()) {
    SCOPED_TRACE(path);
    ExpectRight(Load(path), Gpu(), {.least_workspace = true});
  }
  EXPECT_GE(Files().size(), 12u);
}

// Few multiprocessors make short teams, many long ones, and knobs anything between.
TEST(LittleWorkspaceTest, RowsSideBySideInEveryShape) {
  int chains = 0;
  for (const auto& path : Files()) {
    SCOPED_TRACE(path);
    const graph::Graph g = Load(path);
    Module module{.graph = g};
    ASSERT_TRUE(RunPipeline(module, {.target = Gpu(), .choice = {.least_workspace = true}}).ok());
    const Group& group = module.groups.front();
    if (group.kind != GroupKind::kRows) continue;
    ++chains;
    Target small = Gpu();
    small.multiprocessors = 1;
    ExpectRight(g, small, {.least_workspace = true});
    const Engine& rows = Engines()[static_cast<size_t>(group.engine)];
    for (const KnobRow& row : rows.knobs)
      for (const int value : row.domain.subspan(1))
        ExpectRight(
            g, small,
            {.engine = group.engine, .knobs = {{row.name, value}}, .least_workspace = true});
  }
  EXPECT_GE(chains, 6);
}

}  // namespace
}  // namespace kiln::compiler
