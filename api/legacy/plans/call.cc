#include "api/legacy/plans/call.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kiln::api::legacy {
namespace {

constexpr uintptr_t kWidestAccess = 16;

int AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | kWidestAccess;
  return 1 << std::countr_zero(address);
}

double LoadFactor(const void* factor, DType type) {
  if (type == DType::kF64) {
    double value;
    std::memcpy(&value, factor, sizeof value);
    return value;
  }
  float value;
  std::memcpy(&value, factor, sizeof value);
  return value;
}

Status CheckReportedWorkspace(int64_t bytes, const Result<int64_t>& reported) {
  RETURN_IF_ERROR(reported.status());
  if (bytes >= *reported) return {};
  return Status::Error(Code::kSizeInsufficient, "{} bytes of workspace; {} were asked for", bytes,
                       *reported);
}

// Scratch of the CPU, where memory is the host's and a launch is over when it returns.
void* Scratch(int64_t bytes) {
  static thread_local std::vector<std::byte> scratch;
  if (static_cast<int64_t>(scratch.size()) < bytes) scratch.resize(static_cast<size_t>(bytes));
  return scratch.data();
}

}  // namespace

Call::Call(Handle& handle, const char* function)
    : handle_(handle), plans_(*handle.plans), function_(function) {
  key_.Add(reinterpret_cast<uintptr_t>(function));  // a literal: one address, one function
}

int Call::NextSlot(const void* pointer) {
  CHECK(static_cast<size_t>(slots_) < kMostOperands, "a call has more than {} operands",
        kMostOperands);
  pointers_[static_cast<size_t>(slots_)] = pointer;
  return slots_++;
}

Operand Call::Memory(const TensorDesc& desc, const void* data) {
  return Memory(desc, data, AlignmentOf(data));
}

Operand Call::Derived(const TensorDesc& desc, const void* data) {
  const Operand operand = {.slot = NextSlot(data), .desc = &desc, .alignment = AlignmentOf(data)};
  key_.Add(static_cast<char>(operand.alignment));
  return operand;
}

Operand Call::Memory(const TensorDesc& desc, const void* data, int alignment) {
  const Operand operand = {.slot = NextSlot(data), .desc = &desc, .alignment = alignment};
  key_.Add(desc);
  key_.Add(static_cast<char>(operand.alignment));
  return operand;
}

Result<Scalar> Call::Factor(const void* factor, const TensorDesc& type_of, double neutral,
                            std::string_view name) {
  RETURN_IF_ERROR(NotNull(factor, name));
  Scalar scalar = {.slot = -1, .type = ComputeType(type_of)};
  const bool is_neutral = LoadFactor(factor, scalar.type) == neutral;
  if (!is_neutral) scalar.slot = NextSlot(factor);
  key_.Add(static_cast<char>(is_neutral));
  return scalar;
}

Result<Scalar> Call::Value(const void* value, const TensorDesc& type_of) {
  RETURN_IF_ERROR(NotNull(value, "the value"));
  const bool whole = type_of.type == CUDNN_DATA_INT32;
  return Scalar{.slot = NextSlot(value), .type = whole ? DType::kI32 : ComputeType(type_of)};
}

Result<Blend> Call::Scaling(const void* alpha, const void* beta, const Operand& y) {
  Blend blend;
  ASSIGN_OR_RETURN(blend.alpha, Factor(alpha, *y.desc, 1, "alpha"));
  ASSIGN_OR_RETURN(blend.beta, Factor(beta, *y.desc, 0, "beta"));
  if (blend.beta.slot >= 0) {
    blend.prior = y;
    blend.prior.slot = NextSlot(pointers_[static_cast<size_t>(y.slot)]);
  }
  return blend;
}

bool Call::Fits(const CallPlan& plan, const Workspace& workspace) const {
  return !workspace.is_parameter || plan.workspace_bytes() <= workspace.bytes;
}

Result<std::shared_ptr<const CallPlan>> Call::MakePlan(const Workspace& workspace,
                                                       const MakeGraph& make,
                                                       const ReportedWorkspace& reported) {
  const bool is_best = !workspace.is_parameter || workspace.bytes == INT64_MAX;
  // A plan for less than the best wants has a key of its own.
  if (!is_best && plans_.Find(key_.text()) == nullptr) {
    ASSIGN_OR_RETURN(const auto best,
                     MakePlan({.bytes = INT64_MAX, .is_parameter = true}, make, {}));
    if (Fits(*best, workspace)) return best;
  }
  if (!is_best) {
    key_.Add(workspace.bytes);
    if (const auto known = plans_.Find(key_.text())) return known;
    if (reported) RETURN_IF_ERROR(CheckReportedWorkspace(workspace.bytes, reported()));
  }
  CallGraph building(function_);
  RETURN_IF_ERROR(make(building));
  ASSIGN_OR_RETURN(const graph::Graph graph, building.Finish());
  const bool on_device = handle_.session->target().is_cuda();
  const bool is_own = !workspace.is_parameter && (workspace.is_from_session || !on_device);
  const int64_t limit = is_own ? INT64_MAX : workspace.bytes;
  PlanWishes wishes = building.wishes;
  wishes.workspace_bytes = std::min(wishes.workspace_bytes, limit);
  auto made = CallPlan::Make(handle_.session, graph, wishes);
  // The client cannot give what the function has no parameter for.
  if (!workspace.is_parameter && made.status().code() == Code::kSizeInsufficient)
    return Status::Text(Code::kNotSupported, made.status().message());
  if (made.ok()) plans_.Insert(key_.text(), *made);
  return made;
}

Result<bool> Call::Explore(const MakeGraph& make) {
  CallGraph building(function_);
  RETURN_IF_ERROR(make(building));
  ASSIGN_OR_RETURN(const graph::Graph graph, building.Finish());
  ASSIGN_OR_RETURN(const EngineConfig config,
                   ConfigWithin(*handle_.session, graph, building.wishes));
  return handle_.session->Explore(graph, config, handle_.stream);
}

std::span<void* const> Call::PointersOf(const CallPlan::Built& built, Places& places) const {
  for (size_t i = 0; i < built.slots.size(); ++i)
    places[i] = const_cast<void*>(pointers_[static_cast<size_t>(built.slots[i])]);
  return std::span(places).first(built.slots.size());
}

// Its size was compared before, when the plan was chosen.
Status Call::CheckWorkspace(const CallPlan& plan, const Workspace& workspace) {
  if (!workspace.is_parameter || workspace.data != nullptr || plan.workspace_bytes() == 0)
      [[likely]]
    return {};
  return Status::Error(Code::kNullPointer, "the workspace is NULL; the call needs {} bytes of it",
                       plan.workspace_bytes());
}

Status Call::Launch(const CallPlan& plan, const Workspace& workspace) const {
  RETURN_IF_ERROR(CheckWorkspace(plan, workspace));
  ASSIGN_OR_RETURN(const CallPlan::Built* const built, plan.Ready());
  Places places;
  void* memory = workspace.data;
  std::shared_ptr<void> lent;  // until the launches are in the stream
  const bool is_given = workspace.data != nullptr && plan.workspace_bytes() <= workspace.bytes;
  if (!workspace.is_parameter && !is_given && plan.workspace_bytes() > 0) {
    if (handle_.session->target().is_cuda()) {
      ASSIGN_OR_RETURN(lent,
                       handle_.session->AllocateOnStream(plan.workspace_bytes(), handle_.stream));
      memory = lent.get();
    } else {
      memory = Scratch(plan.workspace_bytes());
    }
  }
  return handle_.session->Execute(*built->plan, PointersOf(*built, places), memory, handle_.stream);
}

Result<double> Call::TimePlan(const CallPlan& plan, const Workspace& workspace) const {
  RETURN_IF_ERROR(CheckWorkspace(plan, workspace));
  ASSIGN_OR_RETURN(const CallPlan::Built* const built, plan.Ready());
  Places places;
  return handle_.session->Time(*built->plan, PointersOf(*built, places), workspace.data,
                               handle_.stream);
}

}  // namespace kiln::api::legacy
