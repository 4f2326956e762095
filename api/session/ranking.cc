#include "api/session/ranking.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "api/session/client_workspace.h"
#include "api/session/graph_traits.h"
#include "api/session/heuristic_list.h"
#include "api/session/knobs.h"
#include "ir/base/env.h"
#include "ir/graph/ops.h"

namespace kiln::api {
namespace {

using compiler::Candidate;
using compiler::Engine;
using compiler::Group;
using compiler::Groups;
using compiler::Inputs;

// Plans below this size get no low-workspace alternative.
constexpr int64_t kSmallWorkspaceBytes = int64_t{64} << 20;
// Under a limit of the workspace each candidate is compiled to learn what it needs; so many are.
constexpr size_t kMostCompared = 64;

// As NVIDIA's library, whose switch this is: clients that want exact products filter by notes.
bool MayRound(RankMode mode) {
  return mode != RankMode::kFallback && GetEnv(Env::kTf32Override) != "0";
}
bool MayTake(Inputs inputs, RankMode mode) {
  if (inputs == Inputs::kRounded) return MayRound(mode);
  return inputs == Inputs::kExact || mode != RankMode::kFallback;
}

}  // namespace

Result<std::vector<EngineConfig>> Ranking::Get(const graph::Graph& graph, RankMode mode) const {
  const std::string text = graph::CanonicalText(graph);
  std::string key =
      fmt::format("{} {} {}\n", static_cast<int>(mode), parts_.policy.epoch(), MayRound(mode)) +
      text;
  if (const auto known = lists_.Find(key)) return *known;
  ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, CandidatesFor(graph, mode));
  std::vector<EngineConfig> ranked = Listed(graph, mode, candidates);
  if (ranked.empty()) {
    RETURN_IF_ERROR(parts_.compiler.Measure(graph, EngineConfig{}).status());
    ranked.push_back(EngineConfig{});
  }
  if (mode != RankMode::kInstant)
    AddLeastWorkspace(graph, mode == RankMode::kFallback ? kSmallWorkspaceBytes : 0, ranked);
  const auto kept = std::make_shared<const std::vector<EngineConfig>>(ranked);
  lists_.Insert(std::move(key), kept);
  if (parts_.next_plans != nullptr) parts_.next_plans->Offered(text, kept);
  return ranked;
}

// The candidates that the mode's list holds. An engine that takes the group of the ranking may
// decline the one that plans which ask for it are led by (attention is grouped by who asks for it):
// it is left out, and ends nobody's list.
std::vector<EngineConfig> Ranking::Listed(const graph::Graph& graph, RankMode mode,
                                          const std::vector<Candidate>& candidates) const {
  HeuristicList list(mode, Multiplies(graph, {DType::kF32, DType::kI8}));
  std::vector<EngineConfig> ranked;
  std::map<int, bool> takes;
  size_t compared = 0;
  for (const Candidate& candidate : candidates) {
    const auto [known, is_new] = takes.try_emplace(candidate.engine, true);
    if (is_new) known->second = parts_.catalog.Takes(graph, candidate.engine).ok();
    if (!known->second || !list.Wants(candidate)) continue;
    EngineConfig config = ConfigOf(candidate.engine, candidate.knobs);
    if (parts_.compiler.has_limit() &&
        (compared++ >= kMostCompared || !parts_.compiler.Measure(graph, config).ok()))
      continue;
    list.Add(candidate);
    ranked.push_back(std::move(config));
  }
  while (!ranked.empty() && !parts_.compiler.Measure(graph, ranked.front()).ok())
    ranked.erase(ranked.begin());
  return ranked;
}

// Adds a configuration that needs less than the first at the end, where the first needs more than
// `small_bytes`: for clients with a limit, who take the first that keeps to it. It is named by the
// engine that leads it, whose notes say most; in plans that ask for this engine, others may lead,
// and then it has no name but the compiler's choice.
void Ranking::AddLeastWorkspace(const graph::Graph& graph, int64_t small_bytes,
                                std::vector<EngineConfig>& ranked) const {
  const Result<Footprint> first = parts_.compiler.Measure(graph, ranked.front());
  if (!first.ok() || first->workspace_bytes <= small_bytes) return;
  const Result<compiler::LeastWorkspace> least = compiler::LeastWorkspaceOf(graph, target_);
  if (!least.ok() || WithAlignment(least->bytes) >= first->workspace_bytes) return;
  const bool is_named = least->engine >= 0 && parts_.catalog.Takes(graph, least->engine).ok();
  ranked.push_back(is_named ? ConfigOf(least->engine, least->knobs, true) : LeastWorkspaceOfAny());
}

double Ranking::SecondsOf(const graph::Graph& graph, RankMode mode,
                          const EngineConfig& config) const {
  const Result<compiler::EngineChoice> choice = ChoiceOf(config);
  if (!choice.ok() || choice->engine < 0) return compiler::kNoSeconds;
  const Engine& engine = EngineAt(choice->engine);
  const Inputs inputs = InputsOf(*choice);
  if (!MayTake(inputs, mode)) return compiler::kNoSeconds;
  const auto groups = parts_.groups.Get(graph, inputs, choice->engine);
  const Group* const group = groups.ok() ? LeadingGroups::Leading(**groups) : nullptr;
  if (group == nullptr || !compiler::Offers(inputs, engine, *group)) return compiler::kNoSeconds;
  const auto plan = engine.plan(*group, target_);
  const auto knobs = compiler::KnobsWith(engine, choice->knobs);
  return plan.ok() && knobs.ok() ? (*plan)->EstimateOf(*knobs).seconds : compiler::kNoSeconds;
}

// The candidates for the leading group, in the order of the list; the seconds are the whole plan's.
Result<std::vector<Candidate>> Ranking::CandidatesWith(const graph::Graph& graph, RankMode mode,
                                                       Inputs inputs) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Groups> groups,
                   parts_.groups.Get(graph, inputs, -1));
  const Group* const leading = LeadingGroups::Leading(*groups);
  if (leading == nullptr) return std::vector<Candidate>{};
  std::vector<Candidate> ranked = parts_.policy.Rank(*leading, mode, inputs);
  double others = -leading->cost;
  for (const Group& each : groups->all) others += each.cost;
  for (Candidate& candidate : ranked) candidate.seconds += others;
  return ranked;
}

Result<std::vector<Candidate>> Ranking::CandidatesFor(const graph::Graph& graph,
                                                      RankMode mode) const {
  ASSIGN_OR_RETURN(std::vector<Candidate> merged, CandidatesWith(graph, mode, Inputs::kExact));
  for (const auto inputs : {Inputs::kWinograd, Inputs::kRounded}) {
    // Others have nothing to round, or to multiply in other coordinates.
    if (!MayTake(inputs, mode) || !Multiplies(graph, {DType::kF32})) continue;
    if (inputs == Inputs::kWinograd && !Convolves(graph)) continue;
    ASSIGN_OR_RETURN(const std::vector<Candidate> others, CandidatesWith(graph, mode, inputs));
    // Each list keeps its order, which may be that of measured times.
    std::vector<Candidate> both;
    std::ranges::merge(merged, others, std::back_inserter(both), {}, &Candidate::seconds,
                       &Candidate::seconds);
    merged = std::move(both);
  }
  return merged;
}

}  // namespace kiln::api
