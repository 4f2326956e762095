// Candidates: every way to run a group that the engines propose, in the order in which the cost
// model would try them. Heuristics show the list to clients, pick-engine takes its head, and tuning
// times it from the front.
#pragma once

#include <vector>

#include "compiler/engines/engine.h"

namespace kiln::compiler {

// Whether lists of the engine's kind have it.
bool Offers(Inputs inputs, const Engine& engine);

// Without duplicates, cheapest first; among equals in the order of the registry and of the engine's
// own list, so that defaults stay in front. Costs that are no number come last.
std::vector<Candidate> RankCandidates(const Group& group, const Target& target,
                                      Inputs inputs = Inputs::kExact);

}  // namespace kiln::compiler
