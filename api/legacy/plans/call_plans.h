// CallPlans: the plans of compute calls by their keys (call_key.h), of one session. Shared by the
// session's handles.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/legacy/plans/call_graph.h"
#include "api/lifecycle/handle.h"
#include "api/session/recent.h"
#include "api/session/session.h"

namespace kiln::api::legacy {

// The plan of a call, chosen, and made ready to run at its first run: clients ask for the workspace
// of many algorithms, and compilers take a thousand times as long as the choice.
class CallPlan {
 public:
  struct Built {
    std::shared_ptr<const Plan> plan;
    std::vector<int> slots;  // the operand of each of the plan's tensors
  };

  // Error: no configuration is as wished.
  static Result<std::shared_ptr<const CallPlan>> Make(std::shared_ptr<Session> session,
                                                      graph::Graph graph, const PlanWishes& wishes);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Seconds of a run, by the engines' models.
  double modelled_seconds() const { return modelled_seconds_; }
  // True if it needs no compiler.
  bool is_compiled() const;
  // Session::CompileBeside of it; without a state where it is built.
  std::shared_future<void> CompileBeside() const;
  // True if its engine is the one that was wished for; another may stand in.
  bool is_as_wished() const { return is_as_wished_; }

  // The plan made ready to run; a failure comes again at the next call. It needs workspace_bytes()
  // at most.
  Result<const Built*> Ready() const {
    if (const Built* const built = ready_.load(std::memory_order_acquire)) [[likely]]
      return built;
    return Build();
  }

 private:
  CallPlan(std::shared_ptr<Session> session, graph::Graph graph, const PlanWishes& wishes)
      : session_(std::move(session)), graph_(std::move(graph)), wishes_(wishes) {}

  Result<const Built*> Build() const;

  const std::shared_ptr<Session> session_;
  mutable graph::Graph graph_;  // nothing once the plan is there
  PlanWishes wishes_;
  EngineConfig config_;
  int64_t workspace_bytes_ = 0;
  double modelled_seconds_ = 0;
  bool is_as_wished_ = true;
  mutable std::mutex mutex_;  // guards graph_ and built_
  mutable std::optional<Built> built_;
  mutable std::atomic<const Built*> ready_ = nullptr;
};

class CallPlans {
 public:
  std::shared_ptr<const CallPlan> Find(std::string_view key) { return plans_.Find(key); }
  void Insert(std::string_view key, std::shared_ptr<const CallPlan> plan) {
    plans_.Insert(std::string(key), std::move(plan));
  }

  // Makes room for better plans under the keys that begin so. What these plans needed is
  // remembered: clients may go by it.
  void Forget(std::string_view prefix);
  // The least workspace of any plan that was forgotten under the key; INT64_MAX for none.
  int64_t MinForgottenWorkspace(std::string_view key);

  // The one of the session, which stays as long as the process: so do sessions.
  static CallPlans& Of(const Session& session);

 private:
  Recent<CallPlan> plans_{4096};
  std::mutex mutex_;  // guards what follows
  std::map<std::string, int64_t, std::less<>> forgotten_;
};

// A handle for one call of a function that takes a stream and none: with the session of the calling
// thread's device. It is no object of the client's, and lives as long as the call.
Result<Handle> HandleOn(void* stream);

// A configuration that is as wished, the fastest by the model and the records.
Result<EngineConfig> ConfigWithin(const Session& session, const graph::Graph& graph,
                                  const PlanWishes& wishes);

}  // namespace kiln::api::legacy
