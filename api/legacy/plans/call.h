// Call: the route of a compute call. Operands and descriptors are added, which makes its key; Run
// looks for the key's plan, makes it where there is none, and launches it.
//
//   Call call(*handle, "cudnnActivationForward");
//   call.Add(*activation);
//   const Operand x = call.Memory(*x_desc, x_data), y = call.Memory(*y_desc, y_data);
//   ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, y));
//   return call.Run({}, [&](CallGraph& g) -> Status { … });
//
// The function that makes the graph runs where the key is new, and there alone: it is the place for
// checks of what the key says. A repeated call is a look-up and a launch, without an allocation.
#pragma once

#include <algorithm>
#include <functional>

#include "api/legacy/plans/call_graph.h"
#include "api/legacy/plans/call_key.h"
#include "api/legacy/plans/call_plans.h"
#include "api/lifecycle/handle.h"

namespace kiln::api::legacy {

// The workspace that the client gives for the call. Functions without such a parameter have none:
// their plans need none on a GPU, unless it shall come from the session
// (Session::AllocateOnStream); on the CPU scratch is the library's.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
  bool is_parameter = false;
  bool is_from_session =
      false;  // by the session, where the client's does not hold what the plan needs
};

using MakeGraph = std::function<Status(CallGraph&)>;
// The workspace that a Get function has told the client to give; an empty function: none has.
using ReportedWorkspace = std::function<Result<int64_t>()>;

class Call {
 public:
  static constexpr size_t kMostOperands = 64;

  Call(Handle& handle, const char* function);

  template <class D>
  void Add(const D& descriptor_or_mode) {
    key_.Add(descriptor_or_mode);
  }
  // Tensors on the device. A Get function, which has descriptors alone, takes the pointers for
  // aligned.
  Operand Memory(const TensorDesc& desc, const void* data);
  Operand Memory(const TensorDesc& desc) { return Memory(desc, nullptr); }
  // A tensor for whose pointer the client has promised an alignment, however the pointer is.
  Operand Memory(const TensorDesc& desc, const void* data, int alignment);
  // A tensor whose descriptor follows from what was added before, so that it is no part of the key.
  Operand Derived(const TensorDesc& desc, const void* data);
  // The factors of a result in y, floats, or doubles where y is of doubles. A beta of 0 means that
  // y is not read.
  Result<Blend> Scaling(const void* alpha, const void* beta, const Operand& y);
  // One factor by itself; without a slot where it is `neutral`, which need not be computed with.
  Result<Scalar> Factor(const void* factor, const TensorDesc& type_of, double neutral,
                        std::string_view name);
  // A parameter of the call; its value is no part of the key.
  Scalar Double(const double* value) { return {.slot = NextSlot(value), .type = DType::kF64}; }
  // A parameter of 64 bits, a whole number.
  Scalar Whole(const void* value) { return {.slot = NextSlot(value), .type = DType::kI64}; }
  // A host value that a tensor is filled with. The reference has it in the tensor's own type; 9.19
  // reads a float for half, bfloat16 and int8 too, and so do we.
  Result<Scalar> Value(const void* value, const TensorDesc& type_of);

  // Less workspace than was told fails; less than is best for this very call does not.
  template <class Make, class Reported = std::nullptr_t>
  Status Run(const Workspace& workspace, Make&& make, Reported&& reported = nullptr) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const CallPlan> plan,
                     PlanFor(workspace, make, reported));
    return Launch(*plan, workspace);
  }
  // Seconds of such a Run, by the clock; waits for the device.
  template <class Make>
  Result<double> Time(const Workspace& workspace, Make&& make) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const CallPlan> plan, PlanFor(workspace, make, nullptr));
    return TimePlan(*plan, workspace);
  }
  // The plan of a Run with as much workspace as it wants.
  template <class Make>
  Result<std::shared_ptr<const CallPlan>> BestPlan(Make&& make) {
    return PlanFor({.bytes = INT64_MAX, .is_parameter = true}, make, nullptr);
  }
  // The workspace that Run wants at best.
  template <class Make>
  Result<int64_t> WorkspaceBytes(Make&& make) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const CallPlan> plan, BestPlan(make));
    return plan->workspace_bytes();
  }
  // Compiles it too.
  template <class Make>
  Status Prepare(Make&& make) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const CallPlan> plan, BestPlan(make));
    return plan->Ready().status();
  }
  // The least workspace that a client may have been told, whenever it asked.
  template <class Make>
  Result<int64_t> MinReportedWorkspace(Make&& make) {
    ASSIGN_OR_RETURN(const int64_t now, WorkspaceBytes(make));
    return std::min(now, plans_.MinForgottenWorkspace(key_.text()));
  }
  // Session::Explore of what such a Run computes.
  Result<bool> Explore(const MakeGraph& make);
  // Plans of which the first `bytes` bytes of the key are as this call's are made anew.
  void Forget(size_t bytes) { plans_.Forget(key_.text().substr(0, bytes)); }

 private:
  template <class Make, class Reported>
  Result<std::shared_ptr<const CallPlan>> PlanFor(const Workspace& workspace, Make&& make,
                                                  Reported&& reported) {
    std::shared_ptr<const CallPlan> plan = plans_.Find(key_.text());
    if (plan != nullptr && Fits(*plan, workspace)) [[likely]]
      return plan;
    return MakePlan(workspace, make, reported);
  }
  // The plan's pointers; `places` holds them.
  using Places = std::array<void*, kMostOperands>;
  std::span<void* const> PointersOf(const CallPlan::Built& built, Places& places) const;
  int NextSlot(const void* pointer);
  bool Fits(const CallPlan& plan, const Workspace& workspace) const;
  Result<std::shared_ptr<const CallPlan>> MakePlan(const Workspace& workspace,
                                                   const MakeGraph& make,
                                                   const ReportedWorkspace& reported);
  static Status CheckWorkspace(const CallPlan& plan, const Workspace& workspace);
  Status Launch(const CallPlan& plan, const Workspace& workspace) const;
  Result<double> TimePlan(const CallPlan& plan, const Workspace& workspace) const;

  Handle& handle_;
  CallPlans& plans_;
  const char* function_;
  CallKey key_;
  std::array<const void*, kMostOperands> pointers_;
  int slots_ = 0;
};

}  // namespace kiln::api::legacy
