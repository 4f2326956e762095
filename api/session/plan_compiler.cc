#include "api/session/plan_compiler.h"

#include <algorithm>
#include <iterator>

#include "api/session/client_workspace.h"
#include "api/session/knobs.h"
#include "ir/base/env.h"

namespace kiln::api {
namespace {

constexpr size_t kPlansKept = 512;

}  // namespace

PlanCompiler::PlanCompiler(const Target& target, const TuningPolicy& policy)
    : target_(target),
      policy_(policy),
      limit_(WithoutAlignment(EnvInt(Env::kWorkspaceLimit))),
      plans_(kPlansKept) {}

Result<compiler::CompiledPlan> PlanCompiler::Get(const graph::Graph& graph,
                                                 compiler::EngineChoice choice) const {
  choice.workspace_limit = limit_;
  const TuningPolicy::Advice advice = policy_.AdviceForPlans();
  return plans_.Get(graph, target_, choice, advice.advisor, advice.epoch);
}

Result<compiler::CompiledPlan> PlanCompiler::Get(const graph::Graph& graph,
                                                 const EngineConfig& config) const {
  ASSIGN_OR_RETURN(compiler::EngineChoice choice, ChoiceOf(config));
  return Get(graph, std::move(choice));
}

Result<Footprint> PlanCompiler::Measure(const graph::Graph& graph,
                                        const EngineConfig& config) const {
  ASSIGN_OR_RETURN(const compiler::CompiledPlan plan, Get(graph, config));
  double seconds = 0;
  for (const compiler::GroupReport& group : plan.groups) seconds += group.modelled_seconds;
  return Footprint{.workspace_bytes = WorkspaceBytes(plan.program),
                   .shared_memory_bytes = static_cast<int32_t>(plan.shared_bytes),
                   .seconds = seconds};
}

std::vector<KernelSource> PlanCompiler::SourcesOf(const graph::Graph& graph,
                                                  std::span<const EngineConfig> configs) const {
  std::vector<KernelSource> sources;
  for (const EngineConfig& config : configs)
    if (Result<compiler::CompiledPlan> plan = Get(graph, config); plan.ok())
      std::ranges::move(plan->program.kernels, std::back_inserter(sources));
  return sources;
}

}  // namespace kiln::api
