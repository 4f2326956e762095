#include "api/session/readiness.h"

#include <algorithm>
#include <utility>

namespace kiln::api {
namespace {

// Configurations that are remembered, and those of them that a ranking looks at.
constexpr size_t kConfigsRemembered = 64, kConfigsTried = 4;
// A ready configuration that takes more times as long as the best by the model stays behind it.
constexpr double kWorthWaitingFor = 2;

}  // namespace

bool Readiness::IsReady(const graph::Graph& graph, const EngineConfig& config) const {
  if (device_ == nullptr) return false;
  const Result<compiler::CompiledPlan> plan = compiler_.Get(graph, config);
  return plan.ok() && std::ranges::all_of(plan->program.kernels, [&](const KernelSource& kernel) {
           return device_->IsReady(kernel);
         });
}

size_t Readiness::MissingKernels(const Program& program) const {
  return static_cast<size_t>(std::ranges::count_if(
      program.kernels, [&](const KernelSource& kernel) { return !device_->IsReady(kernel); }));
}

void Readiness::Remember(const EngineConfig& config) {
  const std::lock_guard lock(mutex_);
  std::erase(remembered_, config);
  remembered_.insert(remembered_.begin(), config);
  if (remembered_.size() > kConfigsRemembered) remembered_.pop_back();
}

void Readiness::PutReadyFirst(const Ranking& ranking, const graph::Graph& graph, RankMode mode,
                              std::vector<EngineConfig>& ranked) const {
  if (ranked.empty() || IsReady(graph, ranked.front())) return;
  const double most = kWorthWaitingFor * ranking.SecondsOf(graph, mode, ranked.front());
  std::vector<std::pair<double, EngineConfig>> candidates;
  {
    const std::lock_guard lock(mutex_);
    for (const EngineConfig& config : remembered_) candidates.emplace_back(0, config);
  }
  for (auto& [seconds, config] : candidates) seconds = ranking.SecondsOf(graph, mode, config);
  std::ranges::stable_sort(candidates, {}, [](const auto& candidate) { return candidate.first; });
  if (candidates.size() > kConfigsTried) candidates.resize(kConfigsTried);
  for (const auto& [seconds, config] : candidates) {
    if (!(seconds <= most) || !IsReady(graph, config)) continue;
    std::erase(ranked, config);
    ranked.insert(ranked.begin(), config);
    return;
  }
}

}  // namespace kiln::api
