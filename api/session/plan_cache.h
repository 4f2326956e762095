// PlanCache: compiled plans by canonical graph, target and choice, so that a client that builds the
// same graph again, under other uids, pays for a look-up. Called by the session.
#pragma once

#include "api/session/recent.h"
#include "compiler/compile.h"

namespace kiln::api {

// All that the compiler knows of a device, as text.
std::string KeyOf(const Target& target);

class PlanCache {
 public:
  explicit PlanCache(size_t capacity) : plans_(capacity) {}

  // The plan for `graph`, its tensors under the graph's own uids. Compiles where it is not known;
  // no kernel is built or loaded here. Two threads that miss at once compile twice, which costs
  // less than waiting: lowering takes a fraction of a millisecond, and the kernel cache below has
  // the single flight. `advice_epoch` changes with what the advisor says.
  Result<compiler::CompiledPlan> Get(const graph::Graph& graph, const Target& target,
                                     const compiler::EngineChoice& choice,
                                     const compiler::Advisor& advisor = {},
                                     int64_t advice_epoch = 0);

 private:
  Recent<compiler::CompiledPlan> plans_;  // program tensors carry canonical uids
};

}  // namespace kiln::api
