// kernel_texts: the kernels of every case, bench list and recorded graph, by the names that hash
// their texts. A change that must leave kernels as they are is checked by the output before and
// after it:
//
//   bazel run //tests/compiler:kernel_texts > before.txt
//
// A line is `arch engine label: entry entry …`; engine "first" is the model's own choice, the
// others are those that take the graph when asked for by name.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "tests/support/case_graph.h"
#include "tests/support/cases.h"
#include "tests/support/recorded.h"

namespace kiln::compiler {
namespace {

constexpr const char* kArchs[] = {"sm_80", "sm_90a", "sm_100a", "cpu"};

void PrintTexts(const char* arch, const char* engine, const std::string& label,
                const CompiledPlan& plan) {
  fmt::print("{} {} {}:", arch, engine, label);
  for (const KernelSource& kernel : plan.program.kernels) fmt::print(" {}", kernel.entry);
  fmt::print("\n");
}

void PrintAll(const graph::Graph& graph, const std::string& label, bool every_engine) {
  for (const char* arch : kArchs) {
    const Target target = *TargetFromArch(arch);
    if (const Result<CompiledPlan> plan = Compile(graph, target); plan.ok())
      PrintTexts(arch, "first", label, *plan);
    if (!every_engine) continue;
    for (size_t e = 0; e < Engines().size(); ++e) {
      const EngineChoice choice = {.engine = static_cast<int>(e)};
      if (const Result<CompiledPlan> plan = Compile(graph, target, choice); plan.ok())
        PrintTexts(arch, Engines()[e].name, label, *plan);
    }
  }
}

int Main() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/cases"))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const std::filesystem::path& path : files) {
    const testing::CaseFile file = testing::LoadCases(path);
    for (const testing::Case& c : file.cases)
      if (const Result<graph::Graph> graph = testing::ToGraph(c); graph.ok())
        PrintAll(*graph, c.Label(), path.filename() != "bench_contract.txt");
  }
  for (const testing::Recorded& recorded : testing::RecordedGraphs())
    PrintAll(recorded.graph, fmt::format("recorded:{}", recorded.line), false);
  return 0;
}

}  // namespace
}  // namespace kiln::compiler

int main() { return kiln::compiler::Main(); }
