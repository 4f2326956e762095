// Readiness: which kernels of a plan are there, loaded or on disk, so that nobody waits for a
// compiler. A client that makes the same structure with many shapes would rather run a kernel that
// is there than the best one; for it, configurations that were remembered and are ready move to the
// front of a ranking.
#pragma once

#include <mutex>
#include <vector>

#include "api/session/plan_compiler.h"
#include "api/session/ranking.h"
#include "api/session/session.h"
#include "runtime/device.h"

namespace kiln::api {

class Readiness {
 public:
  // `device`: null where plans are made for a device that is not here, for which nothing is ready.
  // `compiler` must outlive it.
  Readiness(runtime::Device* device, const PlanCompiler& compiler)
      : device_(device), compiler_(compiler) {}

  // Session::IsReady.
  bool IsReady(const graph::Graph& graph, const EngineConfig& config) const;
  // The number of the program's kernels that are neither loaded nor on disk; the session has a
  // device.
  size_t MissingKernels(const Program& program) const;

  // Session::Remember.
  void Remember(const EngineConfig& config);
  // Moves the remembered configuration to the front of the list that is ready and that the model
  // likes best, where the first is not ready and would not be worth waiting for.
  void PutReadyFirst(const Ranking& ranking, const graph::Graph& graph, RankMode mode,
                     std::vector<EngineConfig>& ranked) const;

 private:
  runtime::Device* const device_;
  const PlanCompiler& compiler_;
  mutable std::mutex mutex_;              // guards the next
  std::vector<EngineConfig> remembered_;  // newest first
};

}  // namespace kiln::api
