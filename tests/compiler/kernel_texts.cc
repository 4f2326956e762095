// kernel_texts: the kernels of every case, bench list and recorded graph, by the names that hash
// their texts. A change that must leave kernels as they are is checked by the output before and
// after it:
//
//   bazel run //tests/compiler:kernel_texts > before.txt
//
// A line is `arch engine label: entry entry …`; engine "first" is the model's own choice, the
// others are those that take the graph when asked for by name. A change that concerns a few engines
// is checked faster, and more closely, by naming them: every graph is then compiled for these
// engines alone, once as they choose and with --draws=N also for N draws of their knobs' values:
//
//   bazel run //tests/compiler:kernel_texts -- --draws=2 contract_mma contract_mma_tf32
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
  std::vector<std::string> engines = {};  // empty: all, and the model's own choice
  int draws = 0;

  bool Names(std::string_view engine) const {
    return engines.empty() || std::ranges::find(engines, engine) != engines.end();
  }
};

void PrintTexts(const char* arch, const std::string& engine, const std::string& label,
                const CompiledPlan& plan) {
  fmt::print("{} {} {}:", arch, engine, label);
  for (const KernelSource& kernel : plan.program.kernels) fmt::print(" {}", kernel.entry);
  fmt::print("\n");
}

// The plans of drawn knob values. The draws depend on engine and graph alone.
void PrintDraws(const graph::Graph& graph, const Target& target, int e, const std::string& label,
                int draws) {
  const Engine& engine = Engines()[e];
  for (int draw = 0; draw < draws; ++draw) {
    std::seed_seq seed(label.begin(), label.end());
    std::mt19937 random(seed);
    random.discard(static_cast<unsigned>(draw) * 64);
    EngineChoice choice = {.engine = e};
    std::string name = fmt::format("{}[", engine.name);
    for (const KnobRow& knob : engine.knobs) {
      choice.knobs.push_back({knob.name, knob.domain[random() % knob.domain.size()]});
      name += fmt::format("{},", choice.knobs.back().value);
    }
    if (const Result<CompiledPlan> plan = Compile(graph, target, choice); plan.ok())
      PrintTexts(target.arch.c_str(), name + "]", label, *plan);
  }
}

void PrintAll(const graph::Graph& graph, const std::string& label, bool every_engine,
              const Options& options) {
  for (const char* arch : kArchs) {
    const Target target = *TargetFromArch(arch);
    if (options.engines.empty()) {
      if (const Result<CompiledPlan> plan = Compile(graph, target); plan.ok())
        PrintTexts(arch, "first", label, *plan);
      if (!every_engine) continue;
    }
    for (int e = 0; e < static_cast<int>(Engines().size()); ++e) {
      if (!options.Names(Engines()[e].name)) continue;
      const Result<CompiledPlan> plan = Compile(graph, target, {.engine = e});
      if (!plan.ok()) continue;
      PrintTexts(arch, Engines()[e].name, label, *plan);
      PrintDraws(graph, target, e, label, options.draws);
    }
  }
}

Options OptionsOf(std::span<char*> arguments) {
  constexpr std::string_view kDraws = "--draws=";
  Options options;
  for (const std::string_view argument : arguments) {
    if (argument.starts_with(kDraws)) {
      std::from_chars(argument.data() + kDraws.size(), argument.data() + argument.size(),
                      options.draws);
    } else {
      options.engines.emplace_back(argument);
    }
  }
  return options;
}

int Main(const Options& options) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/cases"))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const std::filesystem::path& path : files) {
    const testing::CaseFile file = testing::LoadCases(path);
    for (const testing::Case& c : file.cases)
      if (const Result<graph::Graph> graph = testing::ToGraph(c); graph.ok())
        PrintAll(*graph, c.Label(), path.filename() != "bench_contract.txt", options);
  }
  for (const testing::Recorded& recorded : testing::RecordedGraphs())
    PrintAll(recorded.graph, fmt::format("recorded:{}", recorded.line), false, options);
  return 0;
}

}  // namespace
}  // namespace kiln::compiler

int main(int argc, char** argv) {
  return kiln::compiler::Main(
      kiln::compiler::OptionsOf(std::span(argv + 1, static_cast<size_t>(argc - 1))));
}
