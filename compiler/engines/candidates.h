// Candidates: every way to run a group that the engines propose, in the order in which the cost
// model would try them. Heuristics show the list to clients, pick-engine takes its head, and tuning
// times it from the front.
//
// A kernel is compiled once and serves every shape of its structure, so the head is not simply what
// the model likes best: where a configuration that the engine prefers is within a few percent of
// it, that one stands first. Models err by more, a few tiles serve most layers of a network, and
// another batch size mostly finds its kernels there. The choice follows from group and target
// alone; it never looks at what happens to be compiled, so that it can be reproduced.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "compiler/engines/engine.h"

namespace kiln::compiler {

// The ratio of times that a kernel of its own must gain, and the one that does not count among
// preferred ones.
inline constexpr double kWorthAKernel = 1.10;
inline constexpr double kAsGood = 1.02;

// The number of images that decides a convolution's kernel for all of kManyImages and more, and how
// much slower that kernel may be than the best for the images that there are.
inline constexpr int64_t kUsualImages = 64, kManyImages = 32;
inline constexpr double kWorthAnotherForBatch = 1.25;

// True if lists of the engine's kind have it for this group.
bool Offers(Inputs inputs, const Engine& engine, const Group& group);

// Hears of an engine that proposes nothing, and why.
using Declined = std::function<void(const Engine& engine, std::string_view reason)>;

// An engine that may be chosen for a group, and its plan of it.
struct Taker {
  int engine = -1;  // index in Engines()
  std::unique_ptr<const EnginePlan> plan = {};
};

// The engines that may be chosen for the group and take it, in the order of the registry.
std::vector<Taker> TakersOf(const Group& group, const Target& target, Inputs inputs,
                            const Declined& declined = {});

// The candidates without duplicates; the choice first, then cheapest first, among equals in the
// order of the registry and of the engine's own list, so that defaults stay in front. Costs that
// are no number come last.
std::vector<Candidate> RankCandidates(const Group& group, const Target& target,
                                      Inputs inputs = Inputs::kExact,
                                      const Declined& declined = {});

// The seconds of the candidate that the model likes best; kNoSeconds where there is none.
double LeastSeconds(const std::vector<Candidate>& candidates);

}  // namespace kiln::compiler
