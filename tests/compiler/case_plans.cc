#include "tests/compiler/case_plans.h"

#include <gtest/gtest.h>

#include "tests/support/case_graph.h"

namespace kiln::compiler {
namespace {

CompiledPlan PlanOf(const graph::Graph& g) {
  const Result<CompiledPlan> plan = Compile(g, *TargetFromArch("sm_90a"));
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : CompiledPlan{};
}

}  // namespace

graph::Graph GraphOf(const testing::Case& c) {
  const Result<graph::Graph> g = testing::ToGraph(c);
  EXPECT_TRUE(g.ok()) << c.Label() << ": " << g.status().message();
  return *g;
}

graph::Graph GraphOf(const std::string& line) {
  std::string error;
  const auto c = testing::ParseCase("case: " + line, &error);
  EXPECT_TRUE(c.has_value()) << error;
  return GraphOf(*c);
}

std::string EnginesOf(const graph::Graph& g) {
  std::string engines;
  for (const GroupReport& group : PlanOf(g).groups)
    engines += (engines.empty() ? "" : ", ") + group.engine;
  return engines;
}

size_t KernelsOf(const graph::Graph& g) { return PlanOf(g).program.launches.size(); }

std::string SourceOf(const graph::Graph& g) {
  const CompiledPlan plan = PlanOf(g);
  return plan.program.kernels.empty() ? "" : plan.program.kernels.front().text;
}

}  // namespace kiln::compiler
