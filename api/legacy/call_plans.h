// CallPlans: the plans of compute calls by their keys (call_key.h), of one session. Shared by the
// session's handles.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "api/legacy/call_graph.h"
#include "api/recent.h"
#include "api/session.h"

namespace kiln::api::legacy {

struct CallPlan {
  std::shared_ptr<const Plan> plan;
  std::vector<int> slots;  // the operand of each of the plan's tensors
};

class CallPlans {
 public:
  std::shared_ptr<const CallPlan> Find(std::string_view key) { return plans_.Find(key); }
  void Insert(std::string_view key, std::shared_ptr<const CallPlan> plan) {
    plans_.Insert(std::string(key), std::move(plan));
  }

  // The one of the session, which stays as long as the process: so do sessions.
  static CallPlans& Of(const Session& session);

 private:
  Recent<CallPlan> plans_{4096};
};

// The fastest plan, by the model and the records, that is what was wished for.
Result<std::shared_ptr<const Plan>> PlanWithin(Session& session, const graph::Graph& graph,
                                               const PlanWishes& wishes);

}  // namespace kiln::api::legacy
