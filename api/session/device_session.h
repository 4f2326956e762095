// DeviceSession: the session over compiler and runtime. It composes the parts that know how, and
// decides nothing itself but their order:
//
//   knobs             configurations of the API to choices of the compiler, and back
//   leading_groups    the group of a graph that engines are asked about
//   engine_catalog    which engines take a graph, and their facts
//   tuning_policy     what KILN_TUNE means
//   plan_compiler     programs, by the policy's records and the limit of the workspace
//   ranking           the lists of heuristics
//   readiness         which kernels are there, and lists with these first
//   kernel_prefetch   kernels that are compiled before anybody waits for them
//
// Made by registry.cc alone. A session with a device is kept to the end of the process: tearing
// CUDA down is not ours, and work in the background refers to it.
#pragma once

#include <map>
#include <mutex>

#include "api/prefetch/next_plans.h"
#include "api/session/engine_catalog.h"
#include "api/session/kernel_prefetch.h"
#include "api/session/leading_groups.h"
#include "api/session/plan_compiler.h"
#include "api/session/ranking.h"
#include "api/session/readiness.h"
#include "api/session/session.h"
#include "api/session/tuning_policy.h"

namespace kiln::api {

class DeviceSession final : public Session {
 public:
  // `device`: null for a described device that is not here.
  DeviceSession(const Target& target, runtime::Device* device);

  const Target& target() const override { return target_; }
  std::shared_ptr<Session> Limited(int sm_count) override;

  std::vector<int64_t> EnginesOf(const graph::Graph& graph) const override;
  Result<EngineFacts> Describe(const graph::Graph& graph, int64_t engine) const override;
  Result<std::vector<EngineConfig>> Rank(const graph::Graph& graph,
                                         const RankOptions& options) const override;
  void Remember(const EngineConfig& config) override;
  bool IsReady(const graph::Graph& graph, const EngineConfig& config) const override;
  std::shared_future<void> CompileBeside(const graph::Graph& graph,
                                         const EngineConfig& config) override;
  Result<Footprint> Measure(const graph::Graph& graph, const EngineConfig& config) const override;
  Result<std::shared_ptr<const Plan>> Build(const graph::Graph& graph, const EngineConfig& config,
                                            const BuildOptions& options) override;

  Status Execute(const Plan& plan, std::span<void* const> pointers, void* workspace,
                 void* stream) override;
  Status FillGraph(const Plan& plan, std::span<void* const> pointers, void* workspace,
                   void* cuda_graph, GraphUse use) override;
  bool Explore(const graph::Graph& graph, const EngineConfig& config, void* stream) override;
  Result<double> Time(const Plan& plan, std::span<void* const> pointers, void* workspace,
                      void* stream) override;
  Result<std::shared_ptr<void>> AllocateForTiming(int64_t bytes) override;
  Result<std::shared_ptr<void>> AllocateOnStream(int64_t bytes, void* stream) override;
  bool BelongsToOtherDevice(const void* pointer) const override;
  Status TakeFault() override;

 private:
  bool HasGpu() const { return device_ != nullptr && target_.is_cuda(); }
  Status NotHere() const;

  const Target target_;
  runtime::Device* const device_;
  // Each part refers to those above it.
  TuningPolicy policy_{target_, device_};
  PlanCompiler compiler_{target_, policy_};
  LeadingGroups groups_{target_};
  EngineCatalog catalog_{target_, device_, groups_};
  NextPlans next_plans_;
  Ranking ranking_;
  Readiness readiness_{device_, compiler_};
  KernelPrefetch prefetch_;
  std::mutex mutex_;  // guards the next
  std::map<int, std::shared_ptr<Session>> limited_;
};

}  // namespace kiln::api
