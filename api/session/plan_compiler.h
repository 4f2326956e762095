// PlanCompiler: programs as a session makes them, by its limit of the workspace and by the tuning
// records that its policy follows. Whoever asks what a configuration needs, or which kernels it
// has, asks here, and gets the program that building it would give; no kernel is compiled or
// loaded.
//
// Safe from many threads: the cache has its own lock.
#pragma once

#include <span>
#include <vector>

#include "api/session/plan_cache.h"
#include "api/session/session.h"
#include "api/session/tuning_policy.h"

namespace kiln::api {

class PlanCompiler {
 public:
  // `policy` must outlive it.
  PlanCompiler(const Target& target, const TuningPolicy& policy);

  // KILN_WORKSPACE_LIMIT for programs; true if the user has set one.
  bool has_limit() const { return limit_ >= 0; }

  Result<compiler::CompiledPlan> Get(const graph::Graph& graph,
                                     compiler::EngineChoice choice) const;
  Result<compiler::CompiledPlan> Get(const graph::Graph& graph, const EngineConfig& config) const;
  // Session::Measure.
  Result<Footprint> Measure(const graph::Graph& graph, const EngineConfig& config) const;
  // The kernels of all of these plans; those of configurations that fail are left out.
  std::vector<KernelSource> SourcesOf(const graph::Graph& graph,
                                      std::span<const EngineConfig> configs) const;

 private:
  const Target target_;
  const TuningPolicy& policy_;
  const int64_t limit_;  // of programs' workspaces, in bytes; -1: none
  mutable PlanCache plans_;
};

}  // namespace kiln::api
