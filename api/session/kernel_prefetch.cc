#include "api/session/kernel_prefetch.h"

#include "api/prefetch/background.h"
#include "ir/base/log.h"
#include "ir/graph/ops.h"
#include "runtime/cache/record_files.h"
#include "runtime/cuda/cuda_compiler.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/prepare.h"

namespace kiln::api {

KernelPrefetch::KernelPrefetch(runtime::Device* device, const PrefetchParts& parts)
    : device_(device), parts_(parts), networks_(runtime::NetworkFiles()) {}

std::shared_future<void> KernelPrefetch::CompileBeside(const graph::Graph& graph,
                                                       const EngineConfig& config) {
  struct Work {
    std::promise<void> done;
    ~Work() { done.set_value(); }  // when the last piece is done, or was dropped
  };
  const auto work = std::make_shared<Work>();
  std::shared_future<void> done = work->done.get_future().share();
  if (device_ == nullptr || !device_->target().is_cuda()) return done;
  bool waits = false;
  for (const KernelSource& kernel : parts_.compiler.SourcesOf(graph, {&config, 1})) {
    if (device_->IsReady(kernel)) continue;
    waits = true;
    runtime::ProcessCudaCompiler().Start(device_->target().arch);
    Background::OfProcess().AddFirst([device = device_, kernel, work] {
      try {
        device->Prepare(kernel);
      } catch (...) {  // a failed CHECK of the compiler, which Load meets again
      }
    });
  }
  if (!waits) return done;
  has_compiled_ = true;
  PrepareBeside(graph);
  return done;
}

void KernelPrefetch::BeforeWait(const graph::Graph& graph, const EngineConfig& config,
                                const Program& program, bool is_first) {
  if (!is_first) PrepareBeside(graph);
  const std::vector<EngineConfig> next =
      parts_.next_plans.After(graph::CanonicalText(graph), config);
  if (next.empty()) return;
  std::vector<KernelSource> sources = parts_.compiler.SourcesOf(graph, next);
  sources.insert(sources.begin(), program.kernels.begin(), program.kernels.end());
  runtime::PrepareTogether(*device_, sources);
}

void KernelPrefetch::AfterFirstWait(const graph::Graph& graph) {
  if (!has_compiled_.exchange(true)) PrepareBeside(graph);
}

// While the client waits for the kernels of `graph`, or goes on with them: those of the graphs that
// it will ask for next.
void KernelPrefetch::PrepareBeside(const graph::Graph& graph) const {
  if (parts_.policy.is_off() || networks_.empty()) return;
  Background::OfProcess().Add([this, graph] {
    std::vector<graph::Graph> beside = networks_.Beside(graph);
    if (!beside.empty())
      LOG(kDebug, "kernels of {} more graphs are compiled in the background", beside.size());
    for (graph::Graph& next : beside)
      Background::OfProcess().Add([this, next = std::move(next)] { PrepareListed(next); });
  });
}

void KernelPrefetch::PrepareListed(const graph::Graph& graph) const {
  const auto listed = parts_.ranking.Get(graph, RankMode::kInstant);
  if (!listed.ok()) return;
  for (const KernelSource& source : parts_.compiler.SourcesOf(graph, *listed))
    device_->Prepare(source);
}

Status CompileAhead(const Target& target, const Program& program) {
  if (!target.is_cuda()) return {};
  if (const auto nvrtc = runtime::ProcessNvrtc(); !nvrtc.ok()) {
    LOG(kInfo, "a plan for {} is made without its kernels: {}", target.name,
        nvrtc.status().message());
    return {};
  }
  for (const KernelSource& kernel : program.kernels)
    RETURN_IF_ERROR(runtime::CompileOnly(kernel).status());
  return {};
}

}  // namespace kiln::api
