// Every graph that bench/bandwidth times is legal, has other names than the rest, and compiles for
// a GPU, large and small.
#include "bench/bandwidth/list.h"

#include <gtest/gtest.h>

#include <set>

#include "compiler/compile.h"
#include "tests/support/case_graph.h"

namespace kiln::bench {
namespace {

std::string Engines(const std::string& line) {
  std::string error;
  const auto c = testing::ParseCase(line, &error);
  EXPECT_TRUE(c.has_value()) << error;
  if (!c) return "";
  const auto graph = testing::ToGraph(*c);
  EXPECT_TRUE(graph.ok()) << line << ": " << graph.status().message();
  if (!graph.ok()) return "";
  const auto plan = compiler::Compile(*graph, *TargetFromArch("sm_90a"));
  EXPECT_TRUE(plan.ok()) << line << ": " << plan.status().message();
  if (!plan.ok()) return "";
  std::string engines;
  for (const auto& group : plan->groups) engines += group.engine + " ";
  return engines;
}

TEST(BandwidthListTest, GraphsCompile) {
  std::set<std::string> names;
  for (const GraphRow& row : BandwidthGraphs()) {
    for (const std::string& type : TypesOf(row)) {
      EXPECT_TRUE(names.insert(std::string(row.name) + "/" + type).second) << row.name;
      EXPECT_NE(Engines(CaseOf(row, type, row.small)), "") << row.name;
      const std::string engines = Engines(CaseOf(row, type, row.large));
      EXPECT_NE(engines, "");
      // A norm is one group, read as seldom as an engine can.
      if (std::string(row.name).find("batch_norm") == 0) {
        EXPECT_TRUE(engines == "columns " || engines == "rows ") << row.name << ": " << engines;
      }
    }
  }
}

}  // namespace
}  // namespace kiln::bench
