// kiln: what Kiln makes of a graph, from the command line. Commands are in files of their names;
// this one parses, checks the environment and turns the outcome into an exit status.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "cli/commands.h"
#include "ir/base/env.h"
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
  for (const std::string& text : EnvWarnings()) fmt::print(stderr, "kiln: warning: {}\n", text);
}

// "no such command" rather than that one is required.
int ExitFor(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining();
  if (app.get_subcommands().empty() && !unknown.empty()) {
    fmt::print(stderr, "kiln: there is no command {}; `kiln --help` lists them\n", unknown.front());
    return kExitUsage;
  }
  if (app.get_subcommands().empty() && error.get_name() == "RequiredError") {
    fmt::print(stderr, "{}", app.help());
    return kExitUsage;
  }
  // Help and version are errors to the parser; everything else that it says is about usage.
  return app.exit(error) == kExitOk ? kExitOk : kExitUsage;
}

int Main(int argc, char** argv) {
  CLI::App app{kAbout, "kiln"};
  int exit_status = kExitOk;
  app.footer(kFooter);
  app.set_version_flag("--version", [] { return "kiln, build " + runtime::BuildId(); });
  app.require_subcommand(1);
  app.parse_complete_callback([&app] { WarnOfTheEnvironment(app); });
  for (auto add : {AddRun, AddDump, AddExplain, AddTune, AddRecords, AddCache, AddDoctor})
    add(app, exit_status);
  try {
    app.parse(argc, argv);
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
  } catch (const std::exception& error) {
    fmt::print(stderr, "kiln: internal error: {}\n", error.what());
    return kiln::cli::kExitFailed;
  }
}
