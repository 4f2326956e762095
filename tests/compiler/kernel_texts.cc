// kernel_texts: the kernels of every case, bench list and recorded graph, by the names that hash
// their texts. A change that must leave kernels as they are is checked by the output before and
// after it:
//
//   bazel run //tests/compiler:kernel_texts > before.txt
//   bazel run //tests/compiler:kernel_texts -- sm_90a "NVIDIA H200" first > choices.txt
//
// Arguments are architectures, boards (ir/board.h), sm_90a=NAME for the sizes of one architecture's
// usual board under the name of another one, and "first" for the model's own choice alone,
// with its knobs; without any, four architectures and all engines. A line is `arch engine label:
// entry entry …`; engine "first" is the model's own choice, the others are those that take the
// graph when asked for by name.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "tests/support/case_graph.h"
#include "tests/support/cases.h"
#include "tests/support/recorded.h"

namespace kiln::compiler {
namespace {

struct Named {
  std::string name;  // without spaces
  Target target;
};

struct Options {
  std::vector<Named> targets;
  bool choices = false;  // nothing but the model's own
};

void PrintTexts(const std::string& arch, const char* engine, const std::string& label,
                const CompiledPlan& plan) {
  fmt::print("{} {} {}:", arch, engine, label);
  for (const KernelSource& kernel : plan.program.kernels) fmt::print(" {}", kernel.entry);
  fmt::print("\n");
}

// The engine and the knobs of each group, with what the model says of them.
void PrintChoice(const std::string& arch, const std::string& label, const graph::Graph& graph,
                 const Target& target) {
  std::string text;
  const auto observe = [&](std::string_view pass, const Module& module) {
    if (pass != "schedule") return;
    for (const Group& group : module.groups) {
      const Engine& engine = Engines()[static_cast<size_t>(group.engine)];
      text += fmt::format(" {} {} {:.3f}us;", engine.name, KnobText(engine, group.knobs),
                          group.cost * 1e6);
    }
  };
  if (const Result<CompiledPlan> plan = Compile(graph, target, {}, observe); plan.ok())
    fmt::print("{} choice {}:{}\n", arch, label, text);
}

void PrintAll(const graph::Graph& graph, const std::string& label, bool every_engine,
              const Options& options) {
  for (const auto& [arch, target] : options.targets) {
    if (options.choices) {
      PrintChoice(arch, label, graph, target);
      continue;
    }
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

Result<Options> OptionsOf(std::vector<std::string> arguments) {
  Options options;
  options.choices = std::erase(arguments, "first") > 0;
  if (arguments.empty()) arguments = {"sm_80", "sm_90a", "sm_100a", "cpu"};
  for (std::string& name : arguments) {
    const size_t end = std::min(name.find('='), name.size());
    Result<Target> target = TargetFromArch(name.substr(0, end));
    if (!target.ok()) target = TargetFromBoard(name);
    if (!target.ok()) return target.status();
    if (end < name.size()) target->name = name.substr(end + 1);
    std::ranges::replace(name, ' ', '_');
    options.targets.push_back({std::move(name), *std::move(target)});
  }
  return options;
}

int Main(std::vector<std::string> arguments) {
  const Result<Options> options = OptionsOf(std::move(arguments));
  if (!options.ok()) {
    fmt::print(stderr, "{}\n", options.status().message());
    return 1;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/cases"))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const std::filesystem::path& path : files) {
    const testing::CaseFile file = testing::LoadCases(path);
    for (const testing::Case& c : file.cases)
      if (const Result<graph::Graph> graph = testing::ToGraph(c); graph.ok())
        PrintAll(*graph, c.Label(), path.filename() != "bench_contract.txt", *options);
  }
  for (const testing::Recorded& recorded : testing::RecordedGraphs())
    PrintAll(recorded.graph, fmt::format("recorded:{}", recorded.line), false, *options);
  return 0;
}

}  // namespace
}  // namespace kiln::compiler

int main(int argc, char** argv) { return kiln::compiler::Main({argv + 1, argv + argc}); }
