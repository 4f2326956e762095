#include "compiler/compile.h"

#include <algorithm>
#include <numeric>

#include "compiler/engines/registry.h"
#include "compiler/passes/emit.h"
#include "compiler/passes/leading_group.h"
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

Result<CompiledPlan> CompileOnce(const graph::Graph& graph, const PassContext& context,
                                 const PassObserver& observer) {
  Module module{.graph = graph};
  RETURN_IF_ERROR(RunPipeline(module, context, observer));
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

// The bytes of workspace between groups. Scratch memory of groups is no more than the most that one
// uses, since they run one after the other; the rest of the workspace lies between them.
int64_t BetweenGroups(const CompiledPlan& plan) {
  int64_t most = 0;
  for (const GroupReport& group : plan.groups) most = std::max(most, group.scratch_bytes);
  return plan.program.workspace_bytes - most;
}

Status TooMuch(const CompiledPlan& plan, int64_t limit) {
  return Status::Error(Code::kNotSupported,
                       "the plan needs {} bytes of workspace at least, and the limit is {}",
                       plan.program.workspace_bytes, limit);
}

// Another plan for a graph whose fastest needs more than the limit: with less scratch, without
// copies in other layouts, and at last with as little as can be.
Result<CompiledPlan> CompileWithin(const graph::Graph& graph, PassContext context,
                                   const PassObserver& observer) {
  const int64_t limit = context.choice.workspace_limit;
  for (const bool stores : {true, false}) {
    context.stores_layouts = stores;
    context.scratch_limit = limit;
    ASSIGN_OR_RETURN(CompiledPlan plan, CompileOnce(graph, context, observer));
    if (plan.program.workspace_bytes <= limit) return plan;
    context.scratch_limit = std::max<int64_t>(0, limit - BetweenGroups(plan));
    ASSIGN_OR_RETURN(plan, CompileOnce(graph, context, observer));
    if (plan.program.workspace_bytes <= limit) return plan;
  }
  context.choice.least_workspace = true;
  ASSIGN_OR_RETURN(CompiledPlan plan, CompileOnce(graph, context, observer));
  if (plan.program.workspace_bytes <= limit) return plan;
  return TooMuch(plan, limit);
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
  const auto engine = static_cast<size_t>(choice.engine);
  const bool is_chosen_engine = choice.engine >= 0 && engine < Engines().size();
  const PassContext context{
      .target = target,
      .choice = choice,
      .groups_for = choice.engine,
      .inputs = is_chosen_engine ? InputsOf(Engines()[engine]) : Inputs::kExact,
      .advisor = advisor};
  ASSIGN_OR_RETURN(CompiledPlan plan, CompileOnce(graph, context, observer));
  if (choice.workspace_limit < 0 || plan.program.workspace_bytes <= choice.workspace_limit)
    return plan;
  const bool is_chosen = choice.engine >= 0 && plan.groups.size() == 1;
  if (is_chosen || choice.least_workspace) return TooMuch(plan, choice.workspace_limit);
  return CompileWithin(graph, context, observer);
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
                                            Inputs inputs, int engine) {
  ASSIGN_OR_RETURN(Groups groups, GroupsOf(graph, target, inputs, engine));
  if (groups.leading < 0) return std::optional<Group>();
  return std::optional<Group>(std::move(groups.all[static_cast<size_t>(groups.leading)]));
}

Result<LeastWorkspace> LeastWorkspaceOf(const graph::Graph& graph, const Target& target) {
  Module module{.graph = graph};
  RETURN_IF_ERROR(RunUntil(Emit, module, {.target = target, .choice = {.least_workspace = true}}));
  LeastWorkspace least{.bytes = LayOutWorkspace(module).bytes};
  for (const Group& group : module.groups) least.engines.push_back(group.engine);
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
