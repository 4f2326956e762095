// kiln: the tool that shows on the command line how Kiln compiles and runs a graph. Commands are in
// files of their names; this one parses, checks the environment and turns the outcome into an exit
// status.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/choices.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/memory.h"
#include "cli/out_of_memory.h"
#include "cli/units.h"
#include "cli/version.h"
#include "ir/base/env.h"
#include "ir/base/similar_names.h"
#include "runtime/cache/build_id.h"

namespace kiln::cli {
namespace {

constexpr const char* kAbout =
    "Kiln compiles cuDNN graphs to fused kernels. This tool shows what it makes of a graph, runs "
    "the\n"
    "result, and checks it against an interpreter in double precision. Nothing but `run` and "
    "`tune` needs a device.";

constexpr const char* kFooter =
    "A GRAPH is a file, or - for the standard input, in one of three forms that are told apart by "
    "content:\n"
    "  graph.kiln        Kiln's text, as `kiln dump GRAPH --what graph` prints it\n"
    "  graph.json        cudnn-frontend's JSON: as graph.serialize() writes it\n"
    "  graphs.jsonl:7    line 7 of a file of recorded graphs, one a line\n"
    "\n"
    "Start with\n"
    "  kiln run examples/graphs/conv_scale_bias_relu.json        run it, check it, time it\n"
    "  kiln dump examples/graphs/pointwise_dag.kiln              the CUDA that it becomes\n"
    "  kiln explain examples/graphs/softmax.kiln                 which kernels, and why\n"
    "  kiln doctor                                               what is installed, what is "
    "missing\n"
    "\n"
    "Exit status: 0 done; 1 a check failed, or the graph cannot be compiled or run here; 2 "
    "malformed input\n"
    "or usage. Variables: docs/environment.md.";

// Doctor reports the environment with everything else.
void WarnOfTheEnvironment(const CLI::App& app) {
  if (app.got_subcommand("doctor")) return;
  for (const std::string& text : EnvWarnings()) PrintError("kiln: warning: {}\n", text);
}

// The command that the command line speaks of, as far as it was understood.
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> taken = app.get_subcommands();
  return taken.empty() ? app : Innermost(*taken.front());
}

std::string NameOf(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return parent == nullptr ? "kiln" : NameOf(*parent) + " " + command.get_name();
}

std::vector<std::string_view> Views(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

// Nothing, or a word that is none of the command's own.
int ExitForSubcommand(const CLI::App& command, const std::vector<std::string>& unknown) {
  if (unknown.empty()) {
    PrintError("{}", command.help());
    return kExitUsage;
  }
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  const auto near = SimilarNames(unknown.front(), Views(names), 1);
  PrintError("{}: there is no command {}{}; there are {}\n", NameOf(command),
             Printable(unknown.front()),
             near.empty() ? "" : fmt::format(", perhaps {}", near.front()), fmt::join(names, ", "));
  return kExitUsage;
}

// A word too many, or an option that does not exist.
int ExitForExtras(const CLI::App& command, const std::vector<std::string>& extras) {
  const auto option =
      std::ranges::find_if(extras, [](const std::string& word) { return word.starts_with('-'); });
  if (option == extras.end()) {
    PrintError("{}: {} is one argument too many; see `{} --help`\n", NameOf(command),
               Printable(extras.front()), NameOf(command));
    return kExitUsage;
  }
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options())
    for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  PrintError("{}: there is no option {}{}\n", NameOf(command), Printable(*option),
             NearestText(*option, Views(names)));
  return kExitUsage;
}

int ExitFor(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream out, errors;
  // Help and version are errors to the parser; everything else that it says is about usage.
  if (app.exit(error, out, errors) == kExitOk) {
    WriteRaw(stdout, out.str());
    return kExitOk;
  }
  const CLI::App& command = Innermost(app);
  std::vector<std::string> unknown = command.remaining();
  if (unknown.empty()) unknown = app.remaining();
  if (command.get_require_subcommand_min() > 0 && command.get_subcommands().empty())
    return ExitForSubcommand(command, unknown);
  const bool has_extras =
      error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && !unknown.empty();
  if (has_extras) return ExitForExtras(command, unknown);
  PrintError("{}: {}; see `{} --help`\n", NameOf(command), Printable(error.what()),
             NameOf(command));
  return kExitUsage;
}

int Main(int argc, char** argv) {
  CLI::App app{kAbout, "kiln"};
  int exit_status = kExitOk;
  app.footer(kFooter);
  app.set_version_flag(
      "--version", [] { return fmt::format("kiln {}, build {}", kVersion, runtime::BuildId()); });
  app.require_subcommand(1);
  app.parse_complete_callback([&app] { WarnOfTheEnvironment(app); });
  for (auto add : {AddRun, AddDump, AddExplain, AddTune, AddRecords, AddPack, AddCache, AddDoctor})
    add(app, exit_status);
  try {
    app.parse(argc, argv);
  } catch (const Answer& answer) {
    PrintOut("{}\n", answer.what());
  } catch (const CLI::ParseError& error) {
    return ExitFor(app, error);
  }
  return exit_status;
}

}  // namespace
}  // namespace kiln::cli

int main(int argc, char** argv) {
  try {
    return kiln::cli::Main(argc, argv);
  } catch (const kiln::cli::OutOfMemory& error) {
    kiln::cli::PrintError("kiln: out of memory: {} were wanted at once, and {} are free\n",
                          kiln::cli::BytesText(static_cast<int64_t>(error.wanted())),
                          kiln::cli::BytesText(kiln::cli::AvailableBytes()));
    return kiln::cli::kExitFailed;
  } catch (const std::exception& error) {
    kiln::cli::PrintError("kiln: internal error: {}\n", error.what());
    return kiln::cli::kExitFailed;
  }
}
