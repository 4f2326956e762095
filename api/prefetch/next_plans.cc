#include "api/prefetch/next_plans.h"

#include <algorithm>
#include <utility>

namespace kiln::api {

void NextPlans::Offered(const std::string& graph,
                        std::shared_ptr<const std::vector<EngineConfig>> configs) {
  offered_.Insert(graph, std::move(configs));
}

std::vector<EngineConfig> NextPlans::After(const std::string& graph, const EngineConfig& config) {
  {
    const std::lock_guard lock(mutex_);
    if (graph != graph_) {
      was_timed_ = std::exchange(is_timed_, false);
      is_answered_ = false;
      graph_ = graph;
      first_ = config;
    } else if (config != first_) {
      is_timed_ = true;
    }
    if (is_answered_ || !(is_timed_ || was_timed_)) return {};
    is_answered_ = true;
  }
  const auto configs = offered_.Find(graph);
  if (configs == nullptr) return {};
  const auto at = std::ranges::find(*configs, config);
  if (at == configs->end()) return {};
  return {at + 1, configs->end()};
}

}  // namespace kiln::api
