// CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: a configuration compiled and loaded, and its execution.
// Reference 9.2.5. The JSON representation holds the graph's text, the engine and its knobs;
// restoring it compiles again, which the kernel cache makes a matter of loading.
#pragma once

#include <atomic>
#include <mutex>

#include "api/backend/engine.h"
#include "api/backend/variant_pack.h"

namespace kiln::api {

struct ExecutionPlanDesc : DescriptorOf<CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR> {
  HandleRef handle;  // absent for plans of a described device
  Ref<EngineConfigDesc> engine_config;
  std::vector<int64_t> computed_intermediates, run_only_intermediates;
  Ref<KernelCacheDesc> kernel_cache;
  Ref<DevicePropDesc> device;
  std::string json;  // as set; finalize restores the rest from it
  // Kernels stay loaded while the process lives, so that graphs outlive their plan either way.
  cudnnCudaGraphRetention_t graph_retention = CUDNN_CUDA_GRAPH_RETENTION_PER_GRAPH;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Run(const Handle& handle, const VariantPackDesc& pack) const;
  // The workspace of a run with the pack's shapes. A client that asks sizes its workspace by the
  // answer, so that later runs may need more than the plan's own shapes do.
  Result<int64_t> WorkspaceFor(const Handle& handle, const VariantPackDesc& pack) const;
  Status FillGraph(const Handle& handle, const VariantPackDesc& pack, void* cuda_graph,
                   Session::GraphUse use) const;

  Result<int64_t> WorkspaceSize() const;
  Result<std::string> Json() const;

 private:
  // A compiled plan with the alignment that each of its tensors promises.
  struct Built {
    std::shared_ptr<Session> session;
    std::shared_ptr<const Plan> plan;
    std::vector<int64_t> alignments;
    std::vector<int64_t> lone_peers;  // buffers of batch norms that have one each
  };

  Status RestoreFromJson();
  // The session of the handle's device with the engine's settings.
  std::shared_ptr<Session> SessionOn(const Handle& with) const;
  Result<std::shared_ptr<Session>> ChooseSession() const;
  Result<Built> BuildOn(const std::shared_ptr<Session>& session, const graph::Graph& graph,
                        const BuildOptions& options = {}) const;
  // Calls use(built, pointers) with the plan for the handle and the pack.
  template <class Use>
  Status WithPointers(const Handle& handle, const VariantPackDesc& pack, Use&& use) const;
  template <class Use>
  Status Launch(const Built& built, const VariantPackDesc& pack, Use&& use) const;
  // The plan on the session of the handle: a plan made for a described device is compiled for the
  // real one when it first runs.
  Result<const Built*> BuiltFor(const Handle& handle) const;
  Result<std::shared_ptr<const Built>> Overridden(const Handle& handle,
                                                  const VariantPackDesc& pack) const;
  Status CheckWorkspace(const Built& built) const;
  Result<Built> BuildOverridden(const Handle& handle, const VariantPackDesc& pack) const;

  // A plan for other shapes than its own that was executed; overrides_ has the newest first.
  struct Override {
    std::shared_ptr<Session> session;
    std::vector<int64_t> uids;
    OverrideLists shapes, strides;
    std::shared_ptr<const Built> built;
  };

  std::shared_ptr<Session> home_;  // of the handle that the plan was made with
  Built built_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Built>>
      elsewhere_;  // further sessions; entries are never removed
  mutable std::vector<Override> overrides_;
  mutable std::atomic<bool> sizes_by_shapes_{false};  // a client asked WorkspaceFor
};

}  // namespace kiln::api
