// kiln explain GRAPH: how the graph was divided, which engine took each part and what the others
// said, the knobs that could be turned, and what no kernel can do without: the bytes that must
// move.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/compile_options.h"
#include "cli/console.h"
#include "cli/device_option.h"
#include "cli/graph_file.h"
#include "cli/units.h"
#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "compiler/machine/machine.h"
#include "compiler/passes/leading_group.h"

namespace kiln::cli {
namespace {

constexpr const char* kFooter =
    "A group is what one engine runs, usually one kernel. \"floor\" is the memory traffic that the "
    "group\n"
    "cannot avoid: each input read once, each output written once. \"why\" says what kept a group "
    "from\n"
    "joining another one. \"record\" says what tuning found to be faster than the model's\n"
    "choice, which is shown: plans of the library take that.\n"
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
    PrintOut("  knob      {}={}, legal {}\n", engine.knobs[i].name, values[i],
             ListText(engine.knobs[i].domain));
  }
}

// Prints the record by which a plan that names no engine is made otherwise: this command shows what
// the model chooses.
void PrintRecord(const compiler::Group& group, const Target& target) {
  const compiler::Advisor advisor = RecordsAdvisor(target);
  const std::optional<compiler::Candidate> best = advisor ? advisor(group) : std::nullopt;
  if (!best || (best->engine == group.engine && best->knobs == group.knobs)) return;
  const compiler::Engine& engine = compiler::Engines()[static_cast<size_t>(best->engine)];
  PrintOut("  record    {} {}: was measured, and is what the library takes\n", engine.name,
           compiler::KnobText(engine, best->knobs));
}

// "8.3 MiB, 2.1 us at 4.1 TB/s"
std::string FloorText(int64_t bytes, const Target& target) {
  const double rate = compiler::BytesPerSecond(target);
  if (rate == 0) return BytesText(bytes);
  return fmt::format("{}, {} at {:.1f} TB/s", BytesText(bytes),
                     TimeText(static_cast<double>(bytes) / rate), rate * 1e-12);
}

void PrintGroup(const compiler::GroupReport& report, const compiler::Group& group,
                const Target& target, bool leads) {
  const compiler::Engine& engine = compiler::Engines()[static_cast<size_t>(group.engine)];
  for (const std::string& reason : report.why) PrintOut("  why       {}\n", reason);
  PrintOut("  engine    {} (row {}), model {}{}\n", engine.name, group.engine,
           TimeText(report.modelled_seconds),
           leads ? ", leads: --engine and --knob are about this group" : "");
  PrintKnobs(engine, group.knobs);
  PrintRecord(group, target);
  for (const std::string& reason : report.declined) PrintOut("  declined  {}\n", reason);
  PrintOut("  floor     {}: reads {}, writes {}\n", FloorText(report.floor_bytes, target),
           BytesText(report.read_bytes), BytesText(report.written_bytes));
  if (report.scratch_bytes > 0)
    PrintOut("  scratch   {} of workspace, written and read again\n",
             BytesText(report.scratch_bytes));
  for (const std::string& kernel : report.kernels) PrintOut("  kernel    {}\n", kernel);
}

double SecondsOf(const compiler::CompiledPlan& plan) {
  double seconds = 0;
  for (const compiler::GroupReport& group : plan.groups) seconds += group.modelled_seconds;
  return seconds;
}

// Prints sums of the whole plan: what moves, what would have to, and what the model makes of it.
void PrintPlan(const compiler::CompiledPlan& plan, const Target& target) {
  int64_t moved = 0;
  for (const compiler::GroupReport& group : plan.groups)
    moved += group.floor_bytes + 2 * group.scratch_bytes;
  PrintOut("floor {}; the groups move {}, model {}\n", FloorText(plan.floor_bytes, target),
           BytesText(moved), TimeText(SecondsOf(plan)));
  for (const std::string& reason : plan.why) PrintOut("why {}\n", reason);
}

// Prints the time that the workspace buys: the plan without it, beside this one.
Status PrintLeastWorkspace(const graph::Graph& graph, const Target& target,
                           const compiler::CompiledPlan& plan) {
  if (plan.program.workspace_bytes == 0) return {};
  ASSIGN_OR_RETURN(const compiler::CompiledPlan least,
                   compiler::Compile(graph, target, {.least_workspace = true}));
  if (least.program.workspace_bytes >= plan.program.workspace_bytes) {
    PrintOut("workspace {}: no engine can do with less\n", BytesText(plan.program.workspace_bytes));
    return {};
  }
  PrintOut("workspace {}: with --least-workspace {}, model {}\n",
           BytesText(plan.program.workspace_bytes), BytesText(least.program.workspace_bytes),
           TimeText(SecondsOf(least)));
  return {};
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
  PrintOut("graph {}: {} operations in {} group{} for {} ({}), {} of workspace\n",
           Printable(graph.name), graph.nodes.size(), groups.size(), groups.size() == 1 ? "" : "s",
           target.arch, target.name, BytesText(plan.program.workspace_bytes));
  PrintPlan(plan, target);
  if (!choice.least_workspace) RETURN_IF_ERROR(PrintLeastWorkspace(graph, target, plan));
  for (size_t g = 0; g < groups.size(); ++g) {
    PrintOut("\ngroup {}: {}\n", g, plan.groups[g].work);
    PrintGroup(plan.groups[g], groups[g], target, static_cast<int>(g) == leading);
  }
  return {};
}

}  // namespace

void AddExplain(CLI::App& app, int& exit_status) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "groups, engines with their refusals, knobs; needs no device");
  command->add_option("GRAPH", options->graph, "the graph; see `kiln --help`")->required();
  AddArchOption(*command, options->arch);
  options->engine.AddTo(*command);
  command->footer(kFooter);
  command->callback([options, &exit_status] {
    if (const Status status = Explain(*options); !status.ok()) exit_status = Fail(status);
  });
}

}  // namespace kiln::cli
