// engine_texts: the kernels of a few engines at many values of their knobs, by the names that hash
// their texts. A change to an engine's kernels that must leave them as they are is checked by the
// output before and after it, faster than by kernel_texts and more closely:
//
//   bazel run //tests/compiler:engine_texts -- --draws=2 contract_mma contract_mma_tf32 >
//   before.txt
//
// Each graph of the cases, the bench lists and the recorded ones is compiled for each of these
// engines, once with the knobs that it chooses and so many times with drawn ones. A line is `arch
// engine label: entry entry …`, or `arch engine[knob,knob,…] label: …`.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <string_view>
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

struct Options {
  std::vector<int> engines = {};  // rows of the registry
  int draws = 0;
};

void PrintTexts(const char* arch, const std::string& engine, const std::string& label,
                const CompiledPlan& plan) {
  fmt::print("{} {} {}:", arch, engine, label);
  for (const KernelSource& kernel : plan.program.kernels) fmt::print(" {}", kernel.entry);
  fmt::print("\n");
}

// The plans of drawn knob values. Draws depend on the engine and the graph's label alone.
void PrintDraws(const graph::Graph& graph, const char* arch, int e, const std::string& label,
                int draws) {
  constexpr unsigned kNumbersOfDraw = 64;
  const Engine& engine = Engines()[e];
  for (int draw = 0; draw < draws; ++draw) {
    std::seed_seq seed(label.begin(), label.end());
    std::mt19937 random(seed);
    random.discard(kNumbersOfDraw * static_cast<unsigned>(draw));
    EngineChoice choice = {.engine = e};
    std::string name = fmt::format("{}[", engine.name);
    for (const KnobRow& knob : engine.knobs) {
      choice.knobs.push_back({knob.name, knob.domain[random() % knob.domain.size()]});
      name += fmt::format("{},", choice.knobs.back().value);
    }
    const Result<CompiledPlan> plan = Compile(graph, *TargetFromArch(arch), choice);
    if (plan.ok()) PrintTexts(arch, name + "]", label, *plan);
  }
}

void PrintAll(const graph::Graph& graph, const std::string& label, const Options& options) {
  for (const char* arch : kArchs) {
    for (const int e : options.engines) {
      const Result<CompiledPlan> plan = Compile(graph, *TargetFromArch(arch), {.engine = e});
      if (!plan.ok()) continue;
      PrintTexts(arch, Engines()[e].name, label, *plan);
      PrintDraws(graph, arch, e, label, options.draws);
    }
  }
}

Result<Options> OptionsOf(std::span<char*> arguments) {
  constexpr std::string_view kDraws = "--draws=";
  Options options;
  for (const std::string_view argument : arguments) {
    if (argument.starts_with(kDraws)) {
      std::from_chars(argument.data() + kDraws.size(), argument.data() + argument.size(),
                      options.draws);
    } else if (const int engine = EngineIndex(argument); engine >= 0) {
      options.engines.push_back(engine);
    } else {
      return Status::Error(Code::kBadParam, "no engine is called {}", argument);
    }
  }
  return options;
}

int Main(std::span<char*> arguments) {
  const Result<Options> options = OptionsOf(arguments);
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
        PrintAll(*graph, c.Label(), *options);
  }
  for (const testing::Recorded& recorded : testing::RecordedGraphs())
    PrintAll(recorded.graph, fmt::format("recorded:{}", recorded.line), *options);
  return 0;
}

}  // namespace
}  // namespace kiln::compiler

int main(int argc, char** argv) {
  return kiln::compiler::Main(std::span(argv + 1, static_cast<size_t>(argc - 1)));
}
