// The corpus in both of its texts: each graph is legal and is the case of its name, and some are
// planned for Hopper, which needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/contract/list.h"
#include "compiler/compile.h"
#include "ir/graph/builder.h"
#include "ir/target.h"
#include "tests/support/case_graph.h"
#include "tests/support/cases.h"

namespace kiln::bench {
namespace {

constexpr const char* kGraphs = "bench/corpus/all.kiln";
constexpr const char* kCases = "bench/corpus/all.txt";
constexpr size_t kPlanned = 30;  // one of so many

std::vector<graph::Graph> Graphs() {
  std::ifstream file(kGraphs);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  constexpr std::string_view kEnd = "\n}\n";
  std::vector<graph::Graph> graphs;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(kEnd, at), text.size() - kEnd.size()) + kEnd.size();
    Result<graph::Graph> graph = graph::Parse(std::string_view(text).substr(at, end - at));
    const Status status = graph.ok() ? graph::Legalize(*graph) : graph.status();
    EXPECT_TRUE(status.ok()) << status.message() << " in\n" << text.substr(at, end - at);
    if (status.ok()) graphs.push_back(*std::move(graph));
    at = end;
  }
  return graphs;
}

TEST(Corpus, GraphsAreTheCasesOfTheirNames) {
  const testing::CaseFile file = testing::LoadCases(kCases);
  for (const std::string& error : file.errors) ADD_FAILURE() << error;
  std::map<std::string, graph::Graph> by_name;
  for (graph::Graph& graph : Graphs()) by_name.emplace(graph.name, std::move(graph));
  EXPECT_EQ(by_name.size(), file.cases.size());
  std::map<std::string, int> kinds;
  for (const testing::Case& c : file.cases) {
    const Result<graph::Graph> expected = testing::ToGraph(c);
    ASSERT_TRUE(expected.ok()) << c.Label() << ": " << expected.status().message();
    ASSERT_TRUE(by_name.contains(c.name)) << c.Label();
    EXPECT_EQ(graph::CanonicalText(by_name.at(c.name)), graph::CanonicalText(*expected)) << c.text;
    ++kinds[c.list];
  }
  EXPECT_EQ(kinds.size(), 16u);
  for (const auto& [kind, count] : kinds) EXPECT_GE(count, 20) << kind;
}

// Convolutions and products whose operands are dense (graphs.py --dense) make lists of
// bench/contract.
TEST(Corpus, ContractionsAreBenchProblems) {
  std::ifstream file(kCases);
  std::string list, section;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("[")) section = line;
    const bool is_contraction = section.starts_with("[conv_") || section.starts_with("[matmul");
    if (is_contraction && line.find("@s") == line.npos) list += line + "\n";
  }
  const ProblemList problems = ParseProblems("all.txt", list);
  for (const std::string& error : problems.errors) ADD_FAILURE() << error;
  EXPECT_GT(problems.problems.size(), 10000u);
  for (const Problem& problem : problems.problems)
    EXPECT_GT(problem.FloorMicroseconds(), 0) << problem.Name();
}

TEST(Corpus, ArePlannedForHopper) {
  const Result<Target> target = TargetFromArch("sm_90a");
  ASSERT_TRUE(target.ok());
  const std::vector<graph::Graph> graphs = Graphs();
  for (size_t i = 0; i < graphs.size(); i += kPlanned) {
    const auto plan = compiler::Compile(graphs[i], *target, {});
    EXPECT_TRUE(plan.ok()) << graphs[i].name << ": " << plan.status().message();
  }
}

}  // namespace
}  // namespace kiln::bench
