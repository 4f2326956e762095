// A session that takes every graph and computes nothing: the C interface can be driven with
// pointers to memory of any size. Linked instead of //api:session.
#include <vector>

#include "api/session/session.h"
#include "api/spec/cudnn_types.h"

namespace kiln::api {
namespace {

constexpr int64_t kEngines = 3;
constexpr int64_t kWorkspace = 64;

int64_t WorkspaceOf(const EngineConfig& config) { return config.engine == 2 ? 0 : kWorkspace; }

class NullPlan final : public Plan {
 public:
  NullPlan(const graph::Graph& graph, EngineConfig config) : config_(std::move(config)) {
    for (const graph::Tensor& tensor : graph.tensors) {
      if (tensor.is_virtual || tensor.value) continue;
      tensors_.push_back({.uid = tensor.uid,
                          .dtype = static_cast<uint8_t>(tensor.dtype),
                          .by_value = tensor.by_value});
    }
  }
  const EngineConfig& config() const override { return config_; }
  int64_t workspace_bytes() const override { return WorkspaceOf(config_); }
  std::span<const ProgramTensor> tensors() const override { return tensors_; }

 private:
  EngineConfig config_;
  std::vector<ProgramTensor> tensors_;
};

// Engine 0 has knobs, engine 1 takes graphs of one node alone, engine 2 needs no workspace.
class NullSession final : public Session {
 public:
  explicit NullSession(Target target) : target_(std::move(target)) {}

  const Target& target() const override { return target_; }
  std::vector<int64_t> EnginesOf(const graph::Graph& graph) const override {
    return graph.nodes.size() == 1 ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 2};
  }

  Result<EngineFacts> Describe(const graph::Graph& graph, int64_t engine) const override {
    if (engine < 0 || engine >= kEngines)
      return Status::Error(Code::kInvalidValue, "no engine {}", engine);
    if (engine == 1 && graph.nodes.size() != 1)
      return Status::Text(Code::kUnsupportedGraphPattern, "engine 1 takes one node");
    EngineFacts facts{.name = "null",
                      .knobs = {},
                      .numerical_notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
                      .behavior_notes = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
                      .layouts = {}};
    if (engine == 0) {
      facts.knobs = {{.type = CUDNN_KNOB_TYPE_TILE_SIZE, .maximum = 7},
                     {.type = CUDNN_KNOB_TYPE_STAGES, .maximum = 3}};
      facts.layouts = {{.uid = 1, .types = {CUDNN_LAYOUT_TYPE_PREFERRED_NHWC}}};
    }
    return facts;
  }
  Result<std::vector<EngineConfig>> Rank(const graph::Graph& graph,
                                         const RankOptions&) const override {
    std::vector<EngineConfig> configs;
    if (graph.nodes.size() == 1) configs.push_back({.engine = 1, .knobs = {}});
    configs.push_back({.engine = 0, .knobs = {{.type = CUDNN_KNOB_TYPE_STAGES, .value = 1}}});
    configs.push_back({.engine = 2, .knobs = {}});
    return configs;
  }
  std::shared_ptr<Session> Limited(int) override { return shared_from_this(); }
  void Remember(const EngineConfig&) override {}
  bool IsReady(const graph::Graph&, const EngineConfig&) const override { return false; }
  Result<Footprint> Measure(const graph::Graph& graph, const EngineConfig& config) const override {
    RETURN_IF_ERROR(Describe(graph, config.engine).status());
    return Footprint{.workspace_bytes = WorkspaceOf(config), .shared_memory_bytes = 0};
  }
  Result<std::shared_ptr<const Plan>> Build(const graph::Graph& graph, const EngineConfig& config,
                                            const BuildOptions&) override {
    RETURN_IF_ERROR(Describe(graph, config.engine).status());
    return std::shared_ptr<const Plan>(std::make_shared<NullPlan>(graph, config));
  }
  Status Execute(const Plan&, std::span<void* const>, void*, void*) override { return {}; }
  Status FillGraph(const Plan&, std::span<void* const>, void*, void*, GraphUse) override {
    return {};
  }

 private:
  Target target_;
};

std::shared_ptr<Session> NewSession(const Target& target) {
  return std::make_shared<NullSession>(target);
}

}  // namespace

Result<std::shared_ptr<Session>> OpenSession() {
  static const std::shared_ptr<Session> session = NewSession(*TargetFromArch("sm_90a"));
  return session;
}

Result<std::shared_ptr<Session>> OpenSessionFor(const Target& target) { return NewSession(target); }

int64_t CudaRuntimeVersion() { return 13000; }

}  // namespace kiln::api
