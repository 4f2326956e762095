// PlanCache: compiled plans by canonical graph, target and choice, so that a client that builds the
// same graph again, under other uids, pays for a look-up. Least recently used entries go first.
// Called by the session.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "compiler/compile.h"

namespace kiln::api {

class PlanCache {
 public:
  explicit PlanCache(size_t capacity) : capacity_(capacity) {}

  // The plan for `graph`, its tensors under the graph's own uids. Compiles where it is not known;
  // no kernel is built or loaded here. Two threads that miss at once compile twice, which costs
  // less than waiting: lowering takes a fraction of a millisecond, and the kernel cache below has
  // the single flight. `advice_epoch` changes with what the advisor says.
  Result<compiler::CompiledPlan> Get(const graph::Graph& graph, const Target& target,
                                     const compiler::EngineChoice& choice,
                                     const compiler::Advisor& advisor = {},
                                     int64_t advice_epoch = 0);

 private:
  // Program tensors carry canonical uids.
  using Entry = std::pair<std::string, std::shared_ptr<const compiler::CompiledPlan>>;

  std::shared_ptr<const compiler::CompiledPlan> Find(const std::string& key);
  void Insert(std::string key, std::shared_ptr<const compiler::CompiledPlan> plan);

  const size_t capacity_;
  std::mutex mutex_;
  std::list<Entry> recent_;  // most recent first
  std::map<std::string_view, std::list<Entry>::iterator>
      by_key_;  // the whole text: nothing collides
};

}  // namespace kiln::api
