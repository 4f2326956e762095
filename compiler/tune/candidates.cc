#include "compiler/tune/candidates.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace kiln::compiler {

bool Offers(Inputs inputs, const Engine& engine) {
  return inputs == Inputs::kRounded ? OnlyRoundsInputs(engine) : !OnlyOnRequest(engine);
}

std::vector<Candidate> RankCandidates(const Group& group, const Target& target, Inputs inputs) {
  std::vector<Candidate> ranked;
  const auto engines = Engines();
  for (size_t e = 0; e < engines.size(); ++e) {
    if (!Offers(inputs, engines[e]) || !engines[e].supports(group, target).ok()) continue;
    std::set<std::vector<int>> seen;
    for (std::vector<int>& knobs : CandidateKnobs(engines[e], group, target)) {
      if (!seen.insert(knobs).second) continue;
      if (!FitsShared(engines[e], group, target, knobs).ok()) continue;
      double seconds = engines[e].cost(group, target, knobs);
      if (std::isnan(seconds)) seconds = kNoSeconds;
      ranked.push_back(
          {.engine = static_cast<int>(e), .knobs = std::move(knobs), .seconds = seconds});
    }
  }
  std::ranges::stable_sort(ranked, {}, &Candidate::seconds);
  return ranked;
}

}  // namespace kiln::compiler
