#include "api/session/planned_kernels.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <span>

namespace kiln::api {
namespace {

// The lists that clients ask for: PyTorch and legacy calls the instant one and the fallback,
// cudnn-frontend A or B.
constexpr RankMode kModes[] = {RankMode::kInstant, RankMode::kA, RankMode::kB, RankMode::kFallback};

void AddOnce(std::vector<EngineConfig>& configs, const EngineConfig& config) {
  if (std::ranges::find(configs, config) == configs.end()) configs.push_back(config);
}

}  // namespace

PlannedKernels::PlannedKernels(const Target& target)
    : target_(target),
      ranking_(target_, {.policy = policy_,
                         .compiler = compiler_,
                         .groups = groups_,
                         .catalog = catalog_,
                         .next_plans = nullptr}) {}

Result<std::vector<KernelSource>> PlannedKernels::Of(const graph::Graph& graph,
                                                     PlannedFor clients) const {
  // Programs that name the engine of index 0 get the compiler's choice.
  std::vector<EngineConfig> configs = {EngineConfig{}};
  for (const RankMode mode : kModes) {
    ASSIGN_OR_RETURN(const std::vector<EngineConfig> list, ranking_.Get(graph, mode));
    if (list.empty()) continue;
    const bool is_timed = mode == RankMode::kInstant && clients == PlannedFor::kWholeList;
    for (const EngineConfig& config : is_timed ? std::span(list) : std::span(list).first(1))
      AddOnce(configs, config);
  }
  std::vector<KernelSource> kernels = compiler_.SourcesOf(graph, configs);
  std::set<std::string> entries;
  std::erase_if(kernels, [&](const KernelSource& k) { return !entries.insert(k.entry).second; });
  return kernels;
}

}  // namespace kiln::api
