#include "api/legacy/call_plans.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "api/cudnn_types.h"

namespace kiln::api::legacy {
namespace {

bool UsesTensorCores(const Session& session, const graph::Graph& graph, int64_t engine) {
  const Result<EngineFacts> facts = session.Describe(graph, engine);
  if (!facts.ok()) return true;
  return std::ranges::any_of(facts->numerical_notes, [](int32_t note) {
    return note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
           note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
  });
}

// The first of a ranking that is as wished; `least` is lowered to the workspace that any needs.
Result<std::optional<EngineConfig>> FirstOf(const Session& session, const graph::Graph& graph,
                                            RankMode mode, const PlanWishes& wishes,
                                            int64_t& least) {
  ASSIGN_OR_RETURN(const std::vector<EngineConfig> ranked, session.Rank(graph, {.mode = mode}));
  for (const EngineConfig& config : ranked) {
    if (wishes.only_fma && UsesTensorCores(session, graph, config.engine)) continue;
    const Result<Footprint> footprint = session.Measure(graph, config);
    if (!footprint.ok()) continue;
    if (footprint->workspace_bytes <= wishes.workspace_bytes) return std::optional(config);
    least = std::min(least, footprint->workspace_bytes);
  }
  return std::optional<EngineConfig>();
}

}  // namespace

CallPlans& CallPlans::Of(const Session& session) {
  // Leaked, as sessions are.
  static auto* const mutex = new std::mutex;
  static auto* const plans = new std::map<const Session*, std::unique_ptr<CallPlans>>;
  const std::lock_guard lock(*mutex);
  std::unique_ptr<CallPlans>& own = (*plans)[&session];
  if (own == nullptr) own = std::make_unique<CallPlans>();
  return *own;
}

Result<std::shared_ptr<const Plan>> PlanWithin(Session& session, const graph::Graph& graph,
                                               const PlanWishes& wishes) {
  int64_t least = INT64_MAX;
  // The wide ranking asks every engine for every configuration: only where the short ones have
  // none. The generic engines take everything.
  for (const RankMode mode : {RankMode::kInstant, RankMode::kFallback, RankMode::kA}) {
    ASSIGN_OR_RETURN(const std::optional<EngineConfig> config,
                     FirstOf(session, graph, mode, wishes, least));
    if (config) return session.Build(graph, *config, {});
  }
  if (least == INT64_MAX) return Status::Text(Code::kNotSupported, "no engine takes the operation");
  return Status::Error(Code::kSizeInsufficient, "{} bytes of workspace; at least {} are needed",
                       wishes.workspace_bytes, least);
}

}  // namespace kiln::api::legacy
