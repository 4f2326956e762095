// KernelPrefetch: kernels that a session has compiled before anybody waits for them. It decides
// which: those that a client asked for (Session::CompileBeside), those of graphs that a known
// network asks for next, and those that a client which times will build next. api/prefetch knows
// the networks and guesses the plans, and has the threads.
//
// Work on those threads keeps no session alive: sessions with a device stay to the end of the
// process. A fork waits for work that has begun (prefetch/background.h). Safe from many threads:
// one word is atomic, and all else is constant or has its own lock.
#pragma once

#include <atomic>
#include <future>

#include "api/prefetch/known_networks.h"
#include "api/prefetch/next_plans.h"
#include "api/session/plan_compiler.h"
#include "api/session/ranking.h"
#include "api/session/session.h"
#include "api/session/tuning_policy.h"
#include "runtime/device.h"

namespace kiln::api {

// The parts of a session that it asks; they outlive it.
struct PrefetchParts {
  const TuningPolicy& policy;
  const PlanCompiler& compiler;
  const Ranking& ranking;
  NextPlans& next_plans;
};

class KernelPrefetch {
 public:
  // `device`: null where plans are made for a device that is not here; nothing is prefetched then.
  KernelPrefetch(runtime::Device* device, const PrefetchParts& parts);

  // Session::CompileBeside.
  std::shared_future<void> CompileBeside(const graph::Graph& graph, const EngineConfig& config);

  // A build that waits for a compiler calls these around its wait. `is_first`: no build has come
  // back from its wait yet, and nothing was compiled beside.
  bool is_first() const { return !has_compiled_; }
  // Begins to compile what the client will ask for behind the graph, and compiles the kernels of
  // `program` together with those that are likely to be built next.
  void BeforeWait(const graph::Graph& graph, const EngineConfig& config, const Program& program,
                  bool is_first);
  // The first wait is over. Threads begin here and no earlier: a compiler's first run leaves
  // handlers for exit, which the threads have to end before.
  void AfterFirstWait(const graph::Graph& graph);

 private:
  void PrepareBeside(const graph::Graph& graph) const;
  void PrepareListed(const graph::Graph& graph) const;

  runtime::Device* const device_;
  const PrefetchParts parts_;
  std::atomic<bool> has_compiled_ = false;
  mutable KnownNetworks networks_;
};

// Compiles the kernels of a plan for a device that is not here into the kernel cache, for the
// process that will run it. Does nothing without a compiler, which that process has to have then.
Status CompileAhead(const Target& target, const Program& program);

}  // namespace kiln::api
