#include "compiler/compile.h"

#include <algorithm>
#include <numeric>

#include "compiler/passes/emit.h"
#include "compiler/passes/pick_engine.h"
#include "compiler/passes/schedule.h"
#include "compiler/passes/workspace.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

std::string WorkOf(const Group& group) {
  std::string work;
  for (const graph::Node& node : group.graph.nodes) {
    const bool is_map = node.op == graph::GraphOp::kMap && !node.As<graph::MapAttrs>().identity;
    work += work.empty() ? "" : ", ";
    work += is_map ? std::string_view(Info(node.As<graph::MapAttrs>().op).text)
                   : graph::Info(node.op).mnemonic;
  }
  return work;
}

int64_t SharedBytesOf(const tile::Block& block);

int64_t SharedBytesOf(const tile::Stmt& stmt) {
  if (const auto* alloc = std::get_if<tile::Alloc>(&stmt.node))
    return alloc->space == tile::Space::kShared ? AlignUp(alloc->size * SizeOf(alloc->type), 16)
                                                : 0;
  if (const auto* call = std::get_if<tile::Call>(&stmt.node)) return call->shared_bytes;
  if (const auto* loop = std::get_if<tile::For>(&stmt.node)) return SharedBytesOf(loop->body);
  if (const auto* branch = std::get_if<tile::If>(&stmt.node))
    return SharedBytesOf(branch->then_body) + SharedBytesOf(branch->else_body);
  return 0;
}

int64_t SharedBytesOf(const tile::Block& block) {
  int64_t bytes = 0;
  for (const tile::Stmt& stmt : block) bytes += SharedBytesOf(stmt);
  return bytes;
}

GroupReport Report(const Group& group) {
  const Engine& engine = Engines()[group.engine];
  GroupReport report{.engine = engine.name,
                     .knobs = KnobText(engine, group.knobs),
                     .work = WorkOf(group),
                     .why = group.why,
                     .declined = group.declined,
                     .kernels = {},
                     .modelled_seconds = group.cost,
                     .floor_bytes = FloorBytes(group),
                     .read_bytes = FloorTraffic(group.graph).read,
                     .written_bytes = FloorTraffic(group.graph).written};
  for (const int64_t bytes : group.lowered.scratch_bytes) report.scratch_bytes += bytes;
  for (const LoweredLaunch& launch : group.lowered.launches)
    report.kernels.push_back(group.lowered.kernels[launch.kernel].name);
  return report;
}

using PassFunction = Result<bool> (*)(Module&, const PassContext&);

Status RunOnly(PassFunction pass, Module& module, const PassContext& context) {
  return pass(module, context).status();
}

// The passes before `end`, unverified, as for plans of which nothing is kept.
Status RunUntil(PassFunction end, Module& module, const PassContext& context) {
  for (const Pass& pass : Pipeline()) {
    if (pass.run == end) break;
    if (Status status = RunOnly(pass.run, module, context); !status.ok())
      return std::move(status).Within(pass.name);
  }
  return {};
}

}  // namespace

int64_t SharedBytes(const tile::Kernel& kernel) { return SharedBytesOf(kernel.body); }

Result<CompiledPlan> Compile(const graph::Graph& graph, const Target& target,
                             const EngineChoice& choice, const PassObserver& observer,
                             const Advisor& advisor) {
  Module module{.graph = graph};
  const bool rounds = choice.engine >= 0 && static_cast<size_t>(choice.engine) < Engines().size() &&
                      OnlyRoundsInputs(Engines()[static_cast<size_t>(choice.engine)]);
  RETURN_IF_ERROR(RunPipeline(module,
                              {.target = target,
                               .choice = choice,
                               .groups_for = choice.engine,
                               .inputs = rounds ? Inputs::kRounded : Inputs::kExact,
                               .advisor = advisor},
                              observer));
  CompiledPlan plan;
  if (const int leading = LeadingGroup(module); leading >= 0) {
    plan.engine = module.groups[leading].engine;
    plan.knobs = module.groups[leading].knobs;
  }
  for (const Group& group : module.groups) {
    plan.groups.push_back(Report(group));
    for (const tile::Kernel& kernel : group.lowered.kernels)
      plan.shared_bytes = std::max(plan.shared_bytes, SharedBytes(kernel));
  }
  plan.why = std::move(module.why);
  const Traffic traffic = FloorTraffic(graph);
  plan.floor_bytes = traffic.read + traffic.written;
  plan.program = std::move(module.program);
  return plan;
}

Result<Groups> GroupsOf(const graph::Graph& graph, const Target& target, Inputs inputs, int engine,
                        Picks picks) {
  Module module{.graph = graph};
  const PassContext context{.target = target, .groups_for = engine, .inputs = inputs};
  RETURN_IF_ERROR(RunUntil(PickEngine, module, context));
  if (picks == Picks::kAll || module.groups.size() != 1)
    RETURN_IF_ERROR(RunOnly(PickEngine, module, context));
  const int leading = LeadingGroup(module);
  return Groups{.all = std::move(module.groups), .leading = leading};
}

Result<std::optional<Group>> LeadingGroupOf(const graph::Graph& graph, const Target& target,
                                            Inputs inputs, int engine, Picks picks) {
  ASSIGN_OR_RETURN(Groups groups, GroupsOf(graph, target, inputs, engine, picks));
  if (groups.leading < 0) return std::optional<Group>();
  return std::optional<Group>(std::move(groups.all[static_cast<size_t>(groups.leading)]));
}

Result<LeastWorkspace> LeastWorkspaceOf(const graph::Graph& graph, const Target& target) {
  Module module{.graph = graph};
  RETURN_IF_ERROR(RunUntil(Emit, module, {.target = target, .choice = {.least_workspace = true}}));
  LeastWorkspace least{.bytes = LayOutWorkspace(module).bytes};
  if (const int leading = LeadingGroup(module); leading >= 0) {
    const Group& group = module.groups[static_cast<size_t>(leading)];
    least.engine = group.engine;
    least.knobs = group.knobs;
  }
  return least;
}

Result<Program> CompileGroup(const Group& group, const Target& target, const Candidate& candidate) {
  Module module{.form = Form::kGrouped, .graph = group.graph, .groups = {group}};
  Group& alone = module.groups[0];
  alone.engine = candidate.engine;
  alone.knobs = candidate.knobs;
  alone.lowered = {};
  std::iota(alone.outer.begin(), alone.outer.end(), 0);
  const PassContext context{.target = target};
  for (auto* pass : {Schedule, Emit}) {
    RETURN_IF_ERROR(RunOnly(pass, module, context));
  }
  return std::move(module.program);
}

}  // namespace kiln::compiler
