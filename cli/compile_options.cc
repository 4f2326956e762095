#include "cli/compile_options.h"

#include <charconv>

#include "compiler/engines/engine.h"

namespace kiln::cli {
namespace {

std::string EngineNames() {
  std::string names;
  for (const compiler::Engine& engine : compiler::Engines())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", engine.name);
  return names;
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

void EngineOptions::AddTo(CLI::App& command) {
  command.add_option("--engine", engine, "engine of the most expensive group: " + EngineNames())
      ->type_name("NAME");
  command.add_option("--knob", knobs, "a knob of that engine; `kiln explain` lists them")
      ->type_name("NAME=VALUE");
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
      return Status::Error(Code::kInvalidValue, "there is no engine {}; there are {}", engine,
                           EngineNames());
    }
  }
  for (const std::string& text : knobs) {
    ASSIGN_OR_RETURN(compiler::KnobSetting knob, ParseKnob(text));
    choice.knobs.push_back(std::move(knob));
  }
  return choice;
}

}  // namespace kiln::cli
