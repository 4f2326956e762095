// Candidates: every way to run a group that the engines propose, in the order in which the cost
// model would try them. Heuristics show the list to clients, pick-engine takes its head, and tuning
// times it from the front.
#pragma once

#include <vector>

#include "compiler/engines/engine.h"

namespace kiln::compiler {

struct Candidate {
  int engine = -1;         // index in Engines()
  std::vector<int> knobs;  // a value for each row
  double seconds = 0;      // by the engine's model

  // The modelled time is a consequence of the rest.
  bool operator==(const Candidate& other) const {
    return engine == other.engine && knobs == other.knobs;
  }
};

// Without duplicates, cheapest first; among equals in the order of the registry and of the engine's
// own list, so that defaults stay in front. Costs that are no number come last.
std::vector<Candidate> RankCandidates(const Group& group, const Target& target);

}  // namespace kiln::compiler
