// kernel_texts: the kernels of every case, bench list and recorded graph, by the names that hash
// their texts. A change that must leave kernels as they are is checked by the output before and
// after it:
//
//   bazel run //tests/compiler:kernel_texts > before.txt
//   bazel run //tests/compiler:kernel_texts -- sm_90a "NVIDIA H200" first > choices.txt
//
//   bazel run //tests/compiler:kernel_texts -- --draws=2 contract_mma contract_mma_tf32 > mma.txt
//
// Arguments are architectures, boards (ir/board.h), sm_90a=NAME for the sizes of one architecture's
// usual board under the name of another one; "first" for the model's own choice alone, with its
// knobs; engines, which are then asked for every graph, and --draws=N for as many drawn values of
// their knobs beside. Without any, four architectures and all engines, which the bench list and
// recorded graphs are not asked for. A line is `arch engine label: entry entry …`, of drawn values
// `arch engine[knob,knob,…] label: …`; engine "first" is the model's own choice, the others are
// those that take the graph when asked for by name.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
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
  bool choices = false;           // nothing but the model's own
  std::vector<int> engines = {};  // rows of the registry that are asked for; empty: all
  int draws = 0;
};

void PrintTexts(const std::string& arch, std::string_view engine, const std::string& label,
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

// The plans of drawn knob values. Draws depend on the engine and the graph's label alone.
void PrintDraws(const graph::Graph& graph, const Named& target, int e, const std::string& label,
                int draws) {
  constexpr unsigned kNumbersOfDraw = 64;
  const Engine& engine = Engines()[static_cast<size_t>(e)];
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
    if (const Result<CompiledPlan> plan = Compile(graph, target.target, choice); plan.ok())
      PrintTexts(target.name, name + "]", label, *plan);
  }
}

void PrintEngine(const graph::Graph& graph, const Named& target, int e, const std::string& label,
                 int draws) {
  const Result<CompiledPlan> plan = Compile(graph, target.target, {.engine = e});
  if (!plan.ok()) return;
  PrintTexts(target.name, Engines()[static_cast<size_t>(e)].name, label, *plan);
  PrintDraws(graph, target, e, label, draws);
}

void PrintAll(const graph::Graph& graph, const std::string& label, bool every_engine,
              const Options& options) {
  for (const Named& target : options.targets) {
    if (options.choices) {
      PrintChoice(target.name, label, graph, target.target);
      continue;
    }
    for (const int e : options.engines) PrintEngine(graph, target, e, label, options.draws);
    if (!options.engines.empty()) continue;
    if (const Result<CompiledPlan> plan = Compile(graph, target.target); plan.ok())
      PrintTexts(target.name, "first", label, *plan);
    if (!every_engine) continue;
    for (int e = 0; e < std::ssize(Engines()); ++e)
      PrintEngine(graph, target, e, label, options.draws);
  }
}

Result<Named> TargetNamed(std::string name) {
  const size_t end = std::min(name.find('='), name.size());
  Result<Target> target = TargetFromArch(name.substr(0, end));
  if (!target.ok()) target = TargetFromBoard(name);
  if (!target.ok()) return target.status();
  if (end < name.size()) target->name = name.substr(end + 1);
  std::ranges::replace(name, ' ', '_');
  return Named{std::move(name), *std::move(target)};
}

Result<Options> OptionsOf(const std::vector<std::string>& arguments) {
  constexpr std::string_view kDraws = "--draws=";
  Options options;
  for (const std::string& argument : arguments) {
    if (argument == "first") {
      options.choices = true;
    } else if (argument.starts_with(kDraws)) {
      const char* const end = argument.data() + argument.size();
      const auto [rest, error] =
          std::from_chars(argument.data() + kDraws.size(), end, options.draws);
      if (error != std::errc() || rest != end)
        return Status::Error(Code::kBadParam, "{} does not end in a number", argument);
    } else if (const int engine = EngineIndex(argument); engine >= 0) {
      options.engines.push_back(engine);
    } else {
      ASSIGN_OR_RETURN(Named target, TargetNamed(argument));
      options.targets.push_back(std::move(target));
    }
  }
  if (options.targets.empty()) {
    for (const char* arch : {"sm_80", "sm_90a", "sm_100a", "cpu"}) {
      ASSIGN_OR_RETURN(Named target, TargetNamed(arch));
      options.targets.push_back(std::move(target));
    }
  }
  return options;
}

int Main(const std::vector<std::string>& arguments) {
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
        PrintAll(*graph, c.Label(), path.filename() != "bench_contract.txt", *options);
  }
  for (const testing::Recorded& recorded : testing::RecordedGraphs())
    PrintAll(recorded.graph, fmt::format("recorded:{}", recorded.line), false, *options);
  return 0;
}

}  // namespace
}  // namespace kiln::compiler

int main(int argc, char** argv) { return kiln::compiler::Main({argv + 1, argv + argc}); }
