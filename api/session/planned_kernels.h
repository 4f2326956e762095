// PlannedKernels: the kernels that clients will need for a graph on a described device, by the
// choices that a session there makes: the lists of heuristics, with tuning records. For packs,
// which are compiled where no such device is (`kiln pack build`).
//
// Safe from many threads.
#pragma once

#include <vector>

#include "api/session/engine_catalog.h"
#include "api/session/leading_groups.h"
#include "api/session/plan_compiler.h"
#include "api/session/ranking.h"
#include "api/session/tuning_policy.h"

namespace kiln::api {

enum class PlannedFor : uint8_t {
  kFirstChoice,  // clients that take the first configuration of a list
  kWholeList,    // and those that time all of the instant list (PyTorch with benchmark on)
};

class PlannedKernels {
 public:
  explicit PlannedKernels(const Target& target);

  // Each kernel once. Error: the graph cannot be compiled for the device.
  Result<std::vector<KernelSource>> Of(const graph::Graph& graph, PlannedFor clients) const;

 private:
  const Target target_;
  // Each part refers to those above it.
  TuningPolicy policy_{target_, nullptr};
  PlanCompiler compiler_{target_, policy_};
  LeadingGroups groups_{target_};
  EngineCatalog catalog_{target_, nullptr, groups_};
  Ranking ranking_;
};

}  // namespace kiln::api
