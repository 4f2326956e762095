#include "cli/compile_options.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "cli/choices.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "ir/base/similar_names.h"
#include "ir/target.h"

namespace kiln::cli {
namespace {

std::vector<std::string_view> EngineNames() {
  std::vector<std::string_view> names;
  for (const compiler::Engine& engine : compiler::Engines()) names.push_back(engine.name);
  return names;
}

// One line for each engine: its knobs with all legal values.
std::string KnobsText() {
  std::string text = "the knobs of each engine are";
  for (const compiler::Engine& engine : compiler::Engines()) {
    text += fmt::format("\n  {}:", engine.name);
    for (const auto& knob : engine.knobs)
      text += fmt::format(" {}={}", knob.name, fmt::join(knob.domain, "|"));
  }
  return text;
}

Result<compiler::KnobSetting> ParseKnob(const std::string& text) {
  const size_t equals = text.find('=');
  const char* const end = text.data() + text.size();
  int value = 0;
  if (equals != std::string::npos && equals > 0) {
    const auto parsed = std::from_chars(text.data() + equals + 1, end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end)
      return compiler::KnobSetting{.name = text.substr(0, equals), .value = value};
  }
  return Status::Error(Code::kInvalidValue, "--knob {} is not of the form name=number", text);
}

}  // namespace

void AddArchOption(CLI::App& command, std::string& arch) {
  AnswerQuestion(command.add_option("--arch", arch, "sm_80, sm_90a, sm_100a …, or cpu")
                     ->type_name("ARCH")
                     ->capture_default_str(),
                 [] { return TargetFromArch("?").status().message(); });
}

void EngineOptions::AddTo(CLI::App& command) {
  const auto engines = [] { return fmt::format("{}", fmt::join(EngineNames(), ", ")); };
  AnswerQuestion(
      command.add_option("--engine", engine, "engine of the most expensive group: " + engines())
          ->type_name("NAME"),
      [engines] { return "the engines are " + engines(); });
  AnswerQuestion(
      command.add_option("--knob", knobs, "a knob of that engine; `kiln explain` lists them")
          ->type_name("NAME=VALUE"),
      KnobsText);
  command.add_flag("--least-workspace", least_workspace,
                   "as little workspace as the engines can do with, rather than the least time");
  command
      .add_option("--workspace-limit", workspace_limit,
                  "the fastest plan that needs no more bytes of workspace")
      ->type_name("BYTES")
      ->check(CLI::NonNegativeNumber);
}

Result<compiler::EngineChoice> EngineOptions::Choice() const {
  compiler::EngineChoice choice{.least_workspace = least_workspace,
                                .workspace_limit = workspace_limit};
  if (!engine.empty()) {
    choice.engine = compiler::EngineIndex(engine);
    if (choice.engine < 0) {
      const std::vector<std::string_view> near = SimilarNames(engine, EngineNames(), 1);
      return Status::Error(Code::kInvalidValue, "there is no engine {}{}; there are {}", engine,
                           near.empty() ? "" : fmt::format(", perhaps {}", near.front()),
                           fmt::join(EngineNames(), ", "));
    }
  }
  for (const std::string& text : knobs) {
    ASSIGN_OR_RETURN(compiler::KnobSetting knob, ParseKnob(text));
    choice.knobs.push_back(std::move(knob));
  }
  return choice;
}

}  // namespace kiln::cli
