#include "tests/api/fake_session.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "api/spec/cudnn_types.h"
#include "ir/graph/eval.h"

namespace kiln::api {
namespace {

std::atomic<void*> last_stream = nullptr;
const void* elsewhere = nullptr;
Status fault_of_kernels;
RankOptions last_rank;
Target last_rank_target;
std::atomic<int> builds = 0;
int64_t workspace_of_plans = kFakeWorkspace, discovery = -1;

class FakePlan : public Plan {
 public:
  FakePlan(graph::Graph graph, EngineConfig config)
      : graph_(std::move(graph)), config_(std::move(config)) {
    for (auto ids : {graph::Inputs(graph_), graph::Outputs(graph_)}) {
      for (graph::TensorId id : ids) Add(id);
    }
  }
  const EngineConfig& config() const override { return config_; }
  int64_t workspace_bytes() const override { return workspace_bytes_; }
  std::span<const ProgramTensor> tensors() const override { return tensors_; }

  Status Run(std::span<void* const> pointers, void* workspace) const {
    if (workspace_bytes_ > 0) *static_cast<char*>(workspace) = 1;
    graph::TensorValues values;
    for (graph::TensorId id : graph::Inputs(graph_)) {
      values[id] =
          graph::Unpack(graph_[id], static_cast<const std::byte*>(pointers[Slot(graph_[id].uid)]));
    }
    RETURN_IF_ERROR(graph::Evaluate(graph_, values));
    for (graph::TensorId id : graph::Outputs(graph_)) {
      const graph::Tensor& tensor = graph_[id];
      auto* out = static_cast<std::byte*>(pointers[Slot(tensor.uid)]);
      std::vector<std::byte> memory(static_cast<size_t>(graph::MemoryBytes(tensor)));
      std::copy_n(out, memory.size(), memory.data());
      graph::Pack(tensor, values[id], memory);
      std::copy(memory.begin(), memory.end(), out);
    }
    return {};
  }

 private:
  void Add(graph::TensorId id) {
    const graph::Tensor& t = graph_[id];
    for (const ProgramTensor& known : tensors_) {
      if (known.uid == t.uid) return;
    }
    tensors_.push_back({.uid = t.uid,
                        .dtype = static_cast<uint8_t>(t.dtype),
                        .by_value = t.by_value,
                        .is_output = false});
  }
  size_t Slot(int64_t uid) const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].uid == uid) return i;
    }
    CHECK(false, "no tensor {}", uid);
  }

  graph::Graph graph_;
  EngineConfig config_;
  std::vector<ProgramTensor> tensors_;
  const int64_t workspace_bytes_ = workspace_of_plans;
};

class FakeSession : public Session {
 public:
  explicit FakeSession(Target target) : target_(std::move(target)) {}

  const Target& target() const override { return target_; }
  std::shared_ptr<Session> Limited(int sm_count) override {
    if (sm_count <= 0 || sm_count >= target_.multiprocessors) return shared_from_this();
    std::shared_ptr<Session>& session = limited_[sm_count];
    if (session == nullptr) {
      Target target = target_;
      target.multiprocessors = sm_count;
      session = std::make_shared<FakeSession>(std::move(target));
    }
    return session;
  }
  std::vector<int64_t> EnginesOf(const graph::Graph&) const override {
    std::vector<int64_t> engines(kFakeEngines);
    std::iota(engines.begin(), engines.end(), 0);
    return engines;
  }

  Result<EngineFacts> Describe(const graph::Graph&, int64_t engine) const override {
    if (engine < 0 || engine >= kFakeEngines)
      return Status::Error(Code::kUnsupportedGraphPattern, "engine {} takes nothing", engine);
    EngineFacts facts{.name = "interpreter",
                      .knobs = {},
                      .numerical_notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
                      .behavior_notes = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION,
                                         CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API},
                      .layouts = {}};
    if (engine == 1) {
      facts.knobs = {{.type = CUDNN_KNOB_TYPE_TILE_M, .minimum = 0, .maximum = 3, .stride = 1},
                     {.type = CUDNN_KNOB_TYPE_SPLIT_K, .minimum = 0, .maximum = 8, .stride = 2}};
      facts.layouts = {{.uid = 1, .types = {CUDNN_LAYOUT_TYPE_PREFERRED_NHWC}}};
    }
    return facts;
  }
  void Remember(const EngineConfig& config) override { remembered_.push_back(config); }
  bool IsReady(const graph::Graph&, const EngineConfig& config) const override {
    return std::ranges::find(remembered_, config) != remembered_.end();
  }
  Result<std::vector<EngineConfig>> Rank(const graph::Graph&,
                                         const RankOptions& options) const override {
    last_rank = options;
    last_rank_target = target_;
    EngineConfig plain{.engine = 2, .knobs = {}};
    if (options.mode == RankMode::kFallback) return std::vector{plain};
    EngineConfig tuned{.engine = 1, .knobs = {{.type = CUDNN_KNOB_TYPE_TILE_M, .value = 2}}};
    return std::vector{tuned, plain};
  }
  Result<Footprint> Measure(const graph::Graph&, const EngineConfig&) const override {
    return Footprint{.workspace_bytes = workspace_of_plans, .shared_memory_bytes = 1024};
  }
  Result<std::shared_ptr<const Plan>> Build(const graph::Graph& graph, const EngineConfig& config,
                                            const BuildOptions&) override {
    ++builds;
    return std::shared_ptr<const Plan>(std::make_shared<FakePlan>(graph, config));
  }
  Status Execute(const Plan& plan, std::span<void* const> pointers, void* workspace,
                 void* stream) override {
    last_stream = stream;
    return static_cast<const FakePlan&>(plan).Run(pointers, workspace);
  }
  Status FillGraph(const Plan& plan, std::span<void* const> pointers, void* workspace,
                   void* cuda_graph, GraphUse use) override {
    auto& graph = *static_cast<FakeCudaGraph*>(cuda_graph);
    if (graph.plan != (use == GraphUse::kPopulate ? nullptr : &plan))
      return Status::Text(Code::kCudaGraphMismatch, "the graph is another plan's");
    graph = {.plan = &plan,
             .pointers = {pointers.begin(), pointers.end()},
             .workspace = workspace,
             .updates = graph.updates + (use == GraphUse::kUpdate)};
    return {};
  }
  bool Explore(const graph::Graph&, const EngineConfig&, void*) override {
    if (discovery < 0) return false;
    workspace_of_plans = std::exchange(discovery, -1);
    return true;
  }
  Result<double> Time(const Plan& plan, std::span<void* const> pointers, void* workspace,
                      void*) override {
    RETURN_IF_ERROR(static_cast<const FakePlan&>(plan).Run(pointers, workspace));
    return 1e-3;
  }
  Result<std::shared_ptr<void>> AllocateForTiming(int64_t bytes) override {
    return std::shared_ptr<void>(std::calloc(1, static_cast<size_t>(bytes)), std::free);
  }
  Status TakeFault() override { return std::exchange(fault_of_kernels, {}); }
  bool BelongsToOtherDevice(const void* pointer) const override { return pointer == elsewhere; }

 private:
  Target target_;
  std::map<int, std::shared_ptr<Session>> limited_;
  std::vector<EngineConfig> remembered_;
};

}  // namespace

void* LastFakeStream() { return last_stream; }
RankOptions LastFakeRank() { return last_rank; }
Target LastFakeRankTarget() { return last_rank_target; }
void SetFakeElsewhere(const void* pointer) { elsewhere = pointer; }
void SetFakeFault(Status fault) { fault_of_kernels = std::move(fault); }
int FakeBuilds() { return builds; }
void SetFakeWorkspace(int64_t bytes) { workspace_of_plans = bytes; }
void SetFakeDiscovery(int64_t bytes) { discovery = bytes; }

Result<std::shared_ptr<Session>> OpenSession() {
  static const std::shared_ptr<Session> session =
      std::make_shared<FakeSession>(*TargetFromArch("sm_90a"));
  return session;
}

Result<std::shared_ptr<Session>> OpenSessionFor(const Target& target) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Session>> sessions;
  std::lock_guard lock(mutex);
  std::shared_ptr<Session>& session = sessions[target.arch];
  if (session == nullptr) session = std::make_shared<FakeSession>(target);
  return session;
}

int64_t CudaRuntimeVersion() { return 13000; }

}  // namespace kiln::api
