// kiln explain GRAPH: how the graph was divided, which engine took each part and what the others
// said, the knobs that could be turned, and what no kernel can do without: the bytes that must
// move.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/compile_options.h"
#include "cli/graph_file.h"
#include "cli/units.h"
#include "compiler/compile.h"
#include "compiler/engines/engine.h"

namespace kiln::cli {
namespace {

constexpr const char* kFooter =
    "A group is what one engine runs, usually one kernel. \"floor\" is the memory traffic that the "
    "group\n"
    "cannot avoid: each input read once, each output written once.\n"
    "\n"
    "Examples:\n"
    "  kiln explain examples/graphs/softmax.kiln\n"
    "  kiln explain examples/graphs/matmul_bias_gelu.kiln --arch sm_80\n"
    "  kiln explain examples/graphs/wgrad.kiln --knob tile_m=64";

struct ExplainOptions {
  std::string graph, arch = "sm_90a";
  EngineOptions engine;
};

std::string ListText(std::span<const int> values) {
  std::string text;
  for (const int value : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", value);
  return text;
}

void PrintKnobs(const compiler::Engine& engine, const std::vector<int>& values) {
  for (size_t i = 0; i < engine.knobs.size(); ++i) {
    fmt::print("  knob      {}={}, legal {}\n", engine.knobs[i].name, values[i],
               ListText(engine.knobs[i].domain));
  }
}

void PrintGroup(const compiler::GroupReport& report, const compiler::Group& group, bool leads) {
  const compiler::Engine& engine = compiler::Engines()[static_cast<size_t>(group.engine)];
  fmt::print("  engine    {} (index {}), model {}{}\n", engine.name, group.engine,
             TimeText(report.modelled_seconds),
             leads ? ", leads: --engine and --knob are about this group" : "");
  PrintKnobs(engine, group.knobs);
  for (const std::string& reason : report.declined) fmt::print("  declined  {}\n", reason);
  fmt::print("  floor     {}\n", BytesText(report.floor_bytes));
  for (const std::string& kernel : report.kernels) fmt::print("  kernel    {}\n", kernel);
}

Status Explain(const ExplainOptions& options) {
  ASSIGN_OR_RETURN(const graph::Graph graph, ReadGraph(options.graph));
  ASSIGN_OR_RETURN(const Target target, TargetFromArch(options.arch));
  ASSIGN_OR_RETURN(const compiler::EngineChoice choice, options.engine.Choice());
  std::vector<compiler::Group> groups;
  int leading = -1;
  const auto observe = [&](std::string_view pass, const compiler::Module& module) {
    if (pass != "schedule") return;
    groups = module.groups;
    leading = compiler::LeadingGroup(module);
  };
  ASSIGN_OR_RETURN(const compiler::CompiledPlan plan,
                   compiler::Compile(graph, target, choice, observe));
  fmt::print("graph {}: {} operations in {} group{} for {} ({}), {} of workspace\n", graph.name,
             graph.nodes.size(), groups.size(), groups.size() == 1 ? "" : "s", target.arch,
             target.name, BytesText(plan.program.workspace_bytes));
  for (size_t g = 0; g < groups.size(); ++g) {
    fmt::print("\ngroup {}: {}\n", g, plan.groups[g].work);
    PrintGroup(plan.groups[g], groups[g], static_cast<int>(g) == leading);
  }
  return {};
}

}  // namespace

void AddExplain(CLI::App& app, int& exit_status) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "groups, engines with their refusals, knobs; needs no device");
  command->add_option("GRAPH", options->graph, "the graph; see `kiln --help`")->required();
  command->add_option("--arch", options->arch, "sm_80, sm_90a, sm_100a …, or cpu")
      ->capture_default_str();
  options->engine.AddTo(*command);
  command->footer(kFooter);
  command->callback([options, &exit_status] {
    if (const Status status = Explain(*options); !status.ok()) exit_status = Fail(status);
  });
}

}  // namespace kiln::cli
