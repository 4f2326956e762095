#include "compiler/engines/candidates.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "compiler/engines/contraction/contraction.h"
#include "compiler/engines/registry.h"

namespace kiln::compiler {
namespace {

struct Ranked {
  Candidate candidate;
  int preference = Proposal::kNotPreferred;

  double seconds() const { return candidate.seconds; }
};

// All proposals of the engine's plan that fit the target; why the first one does not, where none
// does.
void AddProposals(int index, const EnginePlan& plan, const Group& group, const Target& target,
                  std::vector<Ranked>& all, const Declined& declined) {
  const Engine& engine = Engines()[static_cast<size_t>(index)];
  const size_t before = all.size();
  Status too_large;
  std::set<std::vector<int>> seen;
  for (Proposal& p : Propose(engine, plan)) {
    if (Status fits = FitsShared(engine, group, target, p.knobs, p.shared_bytes); !fits.ok()) {
      if (too_large.ok()) too_large = std::move(fits);
      continue;
    }
    if (!seen.insert(p.knobs).second) continue;
    // A cost that is no number must not win because nothing is below it.
    const double seconds = std::isnan(p.seconds) ? kNoSeconds : p.seconds;
    all.push_back(
        {{.engine = index, .knobs = std::move(p.knobs), .seconds = seconds}, p.preference});
  }
  if (all.size() == before && declined) declined(engine, too_large.message());
}

// The place of the choice in a list that is sorted by seconds. Only the engine that the model likes
// best is asked for its preferences.
size_t ChoiceIn(const std::vector<Ranked>& sorted) {
  const Candidate& best = sorted.front().candidate;
  if (!std::isfinite(best.seconds)) return 0;
  const auto is_preferred = [&](const Ranked& r) {
    return r.candidate.engine == best.engine && r.preference != Proposal::kNotPreferred &&
           r.seconds() <= best.seconds * kWorthAKernel;
  };
  const auto first = std::ranges::find_if(sorted, is_preferred);
  if (first == sorted.end()) return 0;
  auto choice = first;
  for (auto it = first; it != sorted.end() && it->seconds() <= first->seconds() * kAsGood; ++it)
    if (is_preferred(*it) && it->preference < choice->preference) choice = it;
  return static_cast<size_t>(choice - sorted.begin());
}

// The convolution with kUsualImages; none where it has them, few images, or something fused whose
// dims may be others'.
std::optional<Group> WithUsualImages(const Group& group) {
  if (group.graph.nodes.size() != 1) return std::nullopt;
  const graph::Node& conv = group.graph.nodes[0];
  const bool wgrad = conv.op == graph::GraphOp::kConvWgrad;
  if (!wgrad && conv.op != graph::GraphOp::kConvFprop && conv.op != graph::GraphOp::kConvDgrad)
    return std::nullopt;
  const graph::TensorId images[] = {conv.inputs[0], wgrad ? conv.inputs[1] : conv.outputs[0]};
  const int64_t count = group.graph[images[0]].dims[0];
  if (count == kUsualImages || count < kManyImages) return std::nullopt;
  Group usual = group;
  for (const graph::TensorId id : images) usual.graph[id].dims[0] = kUsualImages;
  return usual;
}

// The place of the best configuration with the kernel that kUsualImages would have, or `choice`.
size_t ChoiceOfUsualImages(const std::vector<Ranked>& sorted, size_t choice, const Group& group,
                           const Target& target) {
  const std::optional<Group> usual = WithUsualImages(group);
  if (!usual) return choice;
  const double most = sorted.front().seconds() * kWorthAnotherForBatch;
  std::set<int> engines;
  for (const Ranked& r : sorted)
    if (r.seconds() <= most) engines.insert(r.candidate.engine);
  std::vector<Ranked> others;
  for (const int e : engines) {
    const PlanResult plan = Engines()[static_cast<size_t>(e)].plan(*usual, target);
    if (plan.ok()) AddProposals(e, **plan, *usual, target, others, {});
  }
  if (others.empty()) return choice;
  std::ranges::stable_sort(others, {}, &Ranked::seconds);
  const Candidate& wanted = others[ChoiceIn(others)].candidate;
  const Engine& engine = Engines()[static_cast<size_t>(wanted.engine)];
  const auto found = std::ranges::find_if(sorted, [&](const Ranked& r) {
    return r.candidate.engine == wanted.engine && r.seconds() <= most &&
           SameText(engine, r.candidate.knobs, wanted.knobs);
  });
  return found == sorted.end() ? choice : static_cast<size_t>(found - sorted.begin());
}

}  // namespace

bool Offers(Inputs inputs, const Engine& engine, const Group& group) {
  return InputsOf(engine) == inputs &&
         (inputs == Inputs::kRounded || !OnlyOnRequest(engine, group));
}

std::vector<Taker> TakersOf(const Group& group, const Target& target, Inputs inputs,
                            const Declined& declined) {
  std::vector<Taker> takers;
  const auto engines = Engines();
  for (size_t e = 0; e < engines.size(); ++e) {
    const bool offered = Offers(inputs, engines[e], group);
    if (!offered && !declined) continue;
    PlanResult plan = engines[e].plan(group, target);
    if (!plan.ok()) {
      if (declined) declined(engines[e], plan.status().message());
    } else if (!offered) {
      declined(engines[e], "is for those who ask for it");
    } else {
      takers.push_back({.engine = static_cast<int>(e), .plan = *std::move(plan)});
    }
  }
  return takers;
}

std::vector<Candidate> RankCandidates(const Group& group, const Target& target, Inputs inputs,
                                      const Declined& declined) {
  std::vector<Ranked> all;
  for (const Taker& taker : TakersOf(group, target, inputs, declined))
    AddProposals(taker.engine, *taker.plan, group, target, all, declined);
  std::ranges::stable_sort(all, {}, &Ranked::seconds);
  std::vector<Candidate> ranked;
  if (all.empty()) return ranked;
  const size_t place = ChoiceOfUsualImages(all, ChoiceIn(all), group, target);
  const auto choice = all.begin() + static_cast<std::ptrdiff_t>(place);
  std::rotate(all.begin(), choice, choice + 1);
  ranked.reserve(all.size());
  for (Ranked& r : all) ranked.push_back(std::move(r.candidate));
  return ranked;
}

double LeastSeconds(const std::vector<Candidate>& candidates) {
  double least = kNoSeconds;
  for (const Candidate& c : candidates) least = std::min(least, c.seconds);
  return least;
}

}  // namespace kiln::compiler
