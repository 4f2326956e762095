#include "api/legacy/call_plans.h"

#include <map>
#include <mutex>

namespace kiln::api::legacy {
namespace {

// The first of a ranking that fits; `least` is lowered to what any of them needs.
Result<std::optional<EngineConfig>> FirstWithin(const Session& session, const graph::Graph& graph,
                                                RankMode mode, int64_t limit, int64_t& least) {
  ASSIGN_OR_RETURN(const std::vector<EngineConfig> ranked, session.Rank(graph, {.mode = mode}));
  for (const EngineConfig& config : ranked) {
    const Result<Footprint> footprint = session.Measure(graph, config);
    if (!footprint.ok()) continue;
    if (footprint->workspace_bytes <= limit) return std::optional(config);
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
                                               int64_t workspace_bytes) {
  int64_t least = INT64_MAX;
  // The wide ranking asks every engine for every configuration: only where the short one has none.
  for (const RankMode mode : {RankMode::kInstant, RankMode::kA}) {
    ASSIGN_OR_RETURN(const std::optional<EngineConfig> config,
                     FirstWithin(session, graph, mode, workspace_bytes, least));
    if (config) return session.Build(graph, *config, {});
  }
  if (least == INT64_MAX) return Status::Text(Code::kNotSupported, "no engine takes the operation");
  return Status::Error(Code::kSizeInsufficient, "{} bytes of workspace; at least {} are needed",
                       workspace_bytes, least);
}

}  // namespace kiln::api::legacy
