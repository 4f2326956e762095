// Ranking: the configurations that a client of heuristics is shown for a graph, best first. It
// merges the candidates of the leading group that engines with exact, rounded and transformed
// inputs have, keeps those that the mode's list wants (heuristic_list.h), and adds one that needs
// the least workspace. A list is made once for a graph, a mode and the state of the tuning records.
//
// Safe from many threads: what is kept has its own lock.
#pragma once

#include <vector>

#include "api/prefetch/next_plans.h"
#include "api/session/engine_catalog.h"
#include "api/session/leading_groups.h"
#include "api/session/plan_compiler.h"
#include "api/session/tuning_policy.h"

namespace kiln::api {

// The parts of a session that a ranking asks; they outlive it.
struct RankingParts {
  const TuningPolicy& policy;
  const PlanCompiler& compiler;
  const LeadingGroups& groups;
  const EngineCatalog& catalog;
  NextPlans* next_plans;  // is shown each new list; null where nothing is compiled ahead
};

class Ranking {
 public:
  Ranking(const Target& target, const RankingParts& parts) : target_(target), parts_(parts) {}

  // Session::Rank without regard to which kernels are ready.
  Result<std::vector<EngineConfig>> Get(const graph::Graph& graph, RankMode mode) const;
  // The model's seconds of the leading group; kNoSeconds where the mode or the engine declines.
  double SecondsOf(const graph::Graph& graph, RankMode mode, const EngineConfig& config) const;

 private:
  static constexpr size_t kListsKept = 512;

  Result<std::vector<compiler::Candidate>> CandidatesFor(const graph::Graph& graph,
                                                         RankMode mode) const;
  Result<std::vector<compiler::Candidate>> CandidatesWith(const graph::Graph& graph, RankMode mode,
                                                          compiler::Inputs inputs) const;
  std::vector<EngineConfig> Listed(const graph::Graph& graph, RankMode mode,
                                   const std::vector<compiler::Candidate>& candidates) const;
  void AddLeastWorkspace(const graph::Graph& graph, int64_t small_bytes,
                         std::vector<EngineConfig>& ranked) const;

  const Target target_;
  const RankingParts parts_;
  mutable Recent<std::vector<EngineConfig>> lists_{kListsKept};
};

}  // namespace kiln::api
