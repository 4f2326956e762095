#include "api/session/device_session.h"

#include <algorithm>

#include "api/session/capture.h"
#include "api/session/compile_notice.h"
#include "api/session/device_plan.h"
#include "api/session/knobs.h"
#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/peers.h"

namespace kiln::api {
namespace {

// Runs behind one time: as many as fit into the seconds, and no more than the most.
constexpr double kSecondsTimed = 0.005, kMostRuns = 20;

const runtime::Executable* ExecutableOf(const Plan& plan) {
  return static_cast<const DevicePlan&>(plan).executable();
}

}  // namespace

DeviceSession::DeviceSession(const Target& target, runtime::Device* device)
    : target_(target),
      device_(device),
      ranking_(target_, {.policy = policy_,
                         .compiler = compiler_,
                         .groups = groups_,
                         .catalog = catalog_,
                         .next_plans = HasGpu() ? &next_plans_ : nullptr}),
      prefetch_(device_, {.policy = policy_,
                          .compiler = compiler_,
                          .ranking = ranking_,
                          .next_plans = next_plans_}) {}

std::shared_ptr<Session> DeviceSession::Limited(int sm_count) {
  if (sm_count <= 0 || sm_count >= target_.multiprocessors || !target_.is_cuda())
    return shared_from_this();
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Session>& session = limited_[sm_count];
  if (session == nullptr) {
    Target target = target_;
    target.multiprocessors = sm_count;
    session = std::make_shared<DeviceSession>(target, device_);
  }
  return session;
}

std::vector<int64_t> DeviceSession::EnginesOf(const graph::Graph& graph) const {
  return catalog_.EnginesOf(graph);
}

Result<EngineFacts> DeviceSession::Describe(const graph::Graph& graph, int64_t engine) const {
  return catalog_.Describe(graph, engine);
}

Result<std::vector<EngineConfig>> DeviceSession::Rank(const graph::Graph& graph,
                                                      const RankOptions& options) const {
  ASSIGN_OR_RETURN(std::vector<EngineConfig> ranked, ranking_.Get(graph, options.mode));
  if (options.prefers_ready) readiness_.PutReadyFirst(ranking_, graph, options.mode, ranked);
  return ranked;
}

void DeviceSession::Remember(const EngineConfig& config) { readiness_.Remember(config); }

bool DeviceSession::IsReady(const graph::Graph& graph, const EngineConfig& config) const {
  return readiness_.IsReady(graph, config);
}

std::shared_future<void> DeviceSession::CompileBeside(const graph::Graph& graph,
                                                      const EngineConfig& config) {
  return prefetch_.CompileBeside(graph, config);
}

Result<Footprint> DeviceSession::Measure(const graph::Graph& graph,
                                         const EngineConfig& config) const {
  return compiler_.Measure(graph, config);
}

Result<std::shared_ptr<const Plan>> DeviceSession::Build(const graph::Graph& graph,
                                                         const EngineConfig& config,
                                                         const BuildOptions& options) {
  if (const std::string& folder = GetEnv(Env::kCapture); !folder.empty())
    CaptureGraph(folder, graph);
  ASSIGN_OR_RETURN(compiler::EngineChoice choice, ChoiceOf(config));
  if (options.may_measure && policy_.MeasuresPlans() && !choice.least_workspace &&
      !compiler_.has_limit())
    RETURN_IF_ERROR(policy_.TuneForPlan(graph, options.stream, choice));
  ASSIGN_OR_RETURN(compiler::CompiledPlan compiled, compiler_.Get(graph, choice));
  const size_t missing = HasGpu() ? readiness_.MissingKernels(compiled.program) : 0;
  const bool waits = missing > 0, is_first = waits && prefetch_.is_first();
  const CompileNotice notice(graph, missing);
  if (waits) prefetch_.BeforeWait(graph, config, compiled.program, is_first);
  EngineConfig complete = compiled.engine < 0 || choice.engine < 0
                              ? config
                              : ConfigOf(compiled.engine, compiled.knobs, choice.least_workspace);
  auto plan = std::make_shared<DevicePlan>(std::move(complete), std::move(compiled));
  RETURN_IF_ERROR(device_ != nullptr ? plan->LoadOn(*device_)
                                     : CompileAhead(target_, plan->program()));
  LOG(kDebug, "built a plan of {} kernels", plan->program().kernels.size());
  if (is_first) prefetch_.AfterFirstWait(graph);
  return std::shared_ptr<const Plan>(std::move(plan));
}

Status DeviceSession::Execute(const Plan& plan, std::span<void* const> pointers, void* workspace,
                              void* stream) {
  const runtime::Executable* executable = ExecutableOf(plan);
  if (executable == nullptr) [[unlikely]]
    return NotHere();
  RETURN_IF_ERROR(TakeFault());
  return executable->Execute(pointers, workspace, stream);
}

Status DeviceSession::FillGraph(const Plan& plan, std::span<void* const> pointers, void* workspace,
                                void* cuda_graph, GraphUse use) {
  const runtime::Executable* executable = ExecutableOf(plan);
  if (executable == nullptr) return NotHere();
  return use == GraphUse::kPopulate ? executable->Populate(pointers, workspace, cuda_graph)
                                    : executable->Update(pointers, workspace, cuda_graph);
}

bool DeviceSession::Explore(const graph::Graph& graph, const EngineConfig& config, void* stream) {
  return !compiler_.has_limit() && policy_.Explore(graph, config, stream);
}

Result<double> DeviceSession::Time(const Plan& plan, std::span<void* const> pointers,
                                   void* workspace, void* stream) {
  if (device_ == nullptr) return NotHere();
  if (!device_->CanMeasure(stream))
    return Status::Text(Code::kNotSupported, "nothing is measured while the stream is captured");
  const auto run = [&] { return Execute(plan, pointers, workspace, stream); };
  // Measure runs it before, for what happens the first time.
  ASSIGN_OR_RETURN(const double once, device_->Measure(run, 1, stream));
  const double repeats = std::clamp(kSecondsTimed / std::max(once, 1e-9), 1.0, kMostRuns);
  return device_->Measure(run, static_cast<int>(repeats), stream);
}

Result<std::shared_ptr<void>> DeviceSession::AllocateForTiming(int64_t bytes) {
  if (device_ == nullptr) return NotHere();
  ASSIGN_OR_RETURN(void* const memory, device_->Allocate(bytes));
  return std::shared_ptr<void>(memory, [device = device_](void* m) { device->Free(m); });
}

Result<std::shared_ptr<void>> DeviceSession::AllocateOnStream(int64_t bytes, void* stream) {
  if (device_ == nullptr) return NotHere();
  ASSIGN_OR_RETURN(void* const memory, device_->AllocateOn(bytes, stream));
  return std::shared_ptr<void>(memory,
                               [device = device_, stream](void* m) { device->FreeOn(m, stream); });
}

bool DeviceSession::BelongsToOtherDevice(const void* pointer) const {
  return device_ != nullptr && device_->OwnerOf(pointer) == runtime::Owner::kOtherDevice;
}

Status DeviceSession::TakeFault() {
  return device_ == nullptr ? Status() : runtime::StatusOfFault(device_->TakeFault());
}

Status DeviceSession::NotHere() const {
  return Status::Error(Code::kArchMismatch,
                       "the plan was compiled for {} ({}), without a device to run on",
                       target_.arch, target_.name);
}

}  // namespace kiln::api
