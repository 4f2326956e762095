#include "api/backend/execution_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "api/backend/config_json.h"
#include "ir/graph/builder.h"
#include "ir/graph/peers.h"

namespace kiln::api {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kFormat = "kiln-plan-1";
constexpr size_t kInlinePointers = 32;
constexpr size_t kOverridesKept = 16;

Result<int64_t> WorkspaceOf(const ExecutionPlanDesc& d) { return d.WorkspaceSize(); }
Result<std::string> JsonOf(const ExecutionPlanDesc& d) { return d.Json(); }

using P = ExecutionPlanDesc;

// Set as text, read back as what the finalised plan is.
constexpr AttrRow JsonRow() {
  AttrRow row = Attr<&P::json>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, Use::kOptional,
                               int64_t{1} << 28);
  row.get = Computed<P, std::string, JsonOf>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION).get;
  return row;
}

constexpr AttrRow kRows[] = {
    Attr<&P::handle>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Use::kOptional),
    Attr<&P::engine_config>(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, Use::kOptional),
    Computed<P, int64_t, WorkspaceOf>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE),
    Attr<&P::computed_intermediates>(CUDNN_ATTR_EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS,
                                     Use::kOptional),
    Attr<&P::run_only_intermediates>(CUDNN_ATTR_EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS,
                                     Use::kOptional),
    JsonRow(),
    Attr<&P::kernel_cache>(CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE, Use::kOptional),
    Attr<&P::device>(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, Use::kOptional),
    Attr<&P::graph_retention>(CUDNN_ATTR_EXECUTION_PLAN_CUDA_GRAPH_RETENTION, Use::kOptional),
};

// The alignment that each tensor's pointer is promised to have.
std::vector<int64_t> AlignmentsOf(const graph::Graph& graph,
                                  std::span<const ProgramTensor> tensors) {
  std::unordered_map<int64_t, int64_t> by_uid;
  for (const graph::Tensor& tensor : graph.tensors)
    by_uid.try_emplace(tensor.uid, tensor.alignment);
  std::vector<int64_t> alignments;
  for (const ProgramTensor& tensor : tensors) {
    const auto found = by_uid.find(tensor.uid);
    alignments.push_back(found == by_uid.end() ? 1 : found->second);
  }
  return alignments;
}

Status CheckPointer(const void* pointer, const ProgramTensor& tensor, int64_t alignment) {
  if (pointer == nullptr) {
    return Status::Error(Code::kNullPointer, "the data pointer of tensor {} is NULL", tensor.uid);
  }
  if (tensor.by_value ||
      reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) == 0)
    return {};
  return Status::Error(Code::kMisalignedPointer,
                       "the data pointer {} of tensor {} is not aligned to the promised {} bytes",
                       fmt::ptr(pointer), tensor.uid, alignment);
}

// The buffers of norms that have one each.
std::vector<int64_t> LonePeersOf(const graph::Graph& graph) {
  std::vector<int64_t> uids;
  for (const graph::Node& node : graph.nodes) {
    const std::span<const graph::TensorId> peers = graph::PeersOf(node);
    if (peers.size() == 1) uids.push_back(graph[peers[0]].uid);
  }
  return uids;
}

// A norm with one buffer is a group of one GPU, this one.
Status CheckPeers(const Session& session, std::span<const int64_t> peers,
                  const VariantPackDesc& pack) {
  for (size_t i = 0; i < pack.uids.size(); ++i) {
    if (std::ranges::find(peers, pack.uids[i]) == peers.end()) continue;
    if (!session.BelongsToOtherDevice(pack.pointers[i])) continue;
    return Status::Error(Code::kNotSupported,
                         "the peers' buffer {} is memory of another GPU, and this one has none: "
                         "a norm over several GPUs has a buffer of each",
                         pack.uids[i]);
  }
  return {};
}

Status Override(graph::Tensor& tensor, const std::vector<int64_t>& dims,
                const std::vector<int64_t>& strides) {
  if (dims.size() != tensor.dims.size() || strides.size() != tensor.dims.size()) {
    return Status::Error(Code::kShapeMismatch,
                         "tensor {} has {} dimensions; the override has {} and {} strides",
                         tensor.uid, tensor.dims.size(), dims.size(), strides.size());
  }
  tensor.dims = dims;
  tensor.strides = strides;
  return {};
}

// Virtual tensors that are not among those overridden follow from the others.
Result<graph::Graph> WithShapes(graph::Graph graph, const VariantPackDesc& pack) {
  std::vector<bool> given(graph.tensors.size(), false);
  std::multimap<int64_t, size_t> by_uid;  // in-place graphs have two tensors of one uid
  for (size_t t = 0; t < graph.tensors.size(); ++t) by_uid.emplace(graph.tensors[t].uid, t);
  for (size_t i = 0; i < pack.override_uids.size(); ++i) {
    const auto [begin, end] = by_uid.equal_range(pack.override_uids[i]);
    for (auto at = begin; at != end; ++at) {
      RETURN_IF_ERROR(
          Override(graph.tensors[at->second], pack.override_shapes[i], pack.override_strides[i]));
      given[at->second] = true;
    }
    if (begin == end)
      return Status::Error(Code::kBadParam, "the graph has no tensor {} to override",
                           pack.override_uids[i]);
  }
  if (graph::Verify(graph).ok()) return graph;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    graph::Tensor& tensor = graph.tensors[i];
    if (given[i] || !tensor.is_virtual) continue;
    tensor.dims.clear();
    tensor.strides.clear();
  }
  RETURN_IF_ERROR(graph::Legalize(graph));
  return graph;
}

}  // namespace

std::span<const AttrRow> ExecutionPlanDesc::Rows() { return kRows; }

Status ExecutionPlanDesc::Finalize() {
  if (!computed_intermediates.empty() || !run_only_intermediates.empty()) {
    return Status::Text(Code::kNotSupported,
                        "no engine has intermediates that outlive an execution");
  }
  if (engine_config == nullptr) {
    if (json.empty()) {
      return Status::Text(Code::kNotFinalized,
                          "CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG is required and was not set");
    }
    Status restored = RestoreFromJson();
    if (!restored.ok()) return std::move(restored).Within("plan from JSON");
  }
  home_ = handle.session;
  ASSIGN_OR_RETURN(std::shared_ptr<Session> session, ChooseSession());
  BuildOptions options{.may_measure = true};
  if (handle.address != nullptr) {
    ASSIGN_OR_RETURN(const Handle* const with, HandleFrom(handle.address));
    options.stream = with->stream;
  }
  ASSIGN_OR_RETURN(built_,
                   BuildOn(session, engine_config->engine->operation_graph->graph, options));
  if (kernel_cache != nullptr) kernel_cache->Add(*built_.session, built_.plan->config());
  return {};
}

Result<std::shared_ptr<Session>> ExecutionPlanDesc::ChooseSession() const {
  const EngineDesc& engine = *engine_config->engine;
  if (handle.session != nullptr) return handle.session->Limited(engine.sm_count_target);
  if (device == nullptr) return engine.session;
  return SessionOf({engine.operation_graph, device, engine.sm_count_target});
}

std::shared_ptr<Session> ExecutionPlanDesc::SessionOn(const Handle& with) const {
  return with.session->Limited(engine_config->engine->sm_count_target);
}

Result<ExecutionPlanDesc::Built> ExecutionPlanDesc::BuildOn(const std::shared_ptr<Session>& session,
                                                            const graph::Graph& graph,
                                                            const BuildOptions& options) const {
  Built built{
      .session = session, .plan = nullptr, .alignments = {}, .lone_peers = LonePeersOf(graph)};
  ASSIGN_OR_RETURN(built.plan, session->Build(graph, engine_config->Config(), options));
  built.alignments = AlignmentsOf(graph, built.plan->tensors());
  return built;
}

Result<int64_t> ExecutionPlanDesc::WorkspaceSize() const { return built_.plan->workspace_bytes(); }

Result<std::string> ExecutionPlanDesc::Json() const {
  OrderedJson out{{"format", kFormat}};
  WriteConfig(built_.plan->config(), out);
  out["smCount"] = engine_config->engine->sm_count_target;
  out["workspace"] = built_.plan->workspace_bytes();
  out["graph"] = graph::Print(engine_config->engine->operation_graph->graph);
  return out.dump();
}

Status ExecutionPlanDesc::RestoreFromJson() {
  ASSIGN_OR_RETURN(const OrderedJson in, ParseRepresentation(json));
  if (in.value("format", OrderedJson()) != kFormat) {
    return Status::Error(Code::kSerializationVersionMismatch, "the plan was not written as {}",
                         kFormat);
  }
  ASSIGN_OR_RETURN(const EngineConfig config, ReadConfig(in));
  const OrderedJson text = in.value("graph", OrderedJson());
  if (!text.is_string()) return Status::Text(Code::kBadParam, "the graph is missing");
  // Plans from before smCount have none.
  const OrderedJson sm_count = in.value("smCount", OrderedJson(-1));
  if (!sm_count.is_number_integer())
    return Status::Error(Code::kBadParam, "{} is no number of multiprocessors", sm_count.dump());
  auto graph_desc = std::make_shared<OperationGraphDesc>();
  graph_desc->handle = handle;
  ASSIGN_OR_RETURN(graph_desc->graph, graph::Parse(text.get<std::string>()));
  RETURN_IF_ERROR(graph::Normalize(graph_desc->graph));
  RETURN_IF_ERROR(graph::Verify(graph_desc->graph));
  ASSIGN_OR_RETURN(Ref<EngineDesc> engine,
                   MakeEngine({graph_desc, device, sm_count.get<int32_t>()}, config.engine));
  ASSIGN_OR_RETURN(engine_config, MakeConfig(engine, config));
  return {};
}

// ---- execution

template <class Use>
Status ExecutionPlanDesc::WithPointers(const Handle& with, const VariantPackDesc& pack,
                                       Use&& use) const {
  if (!pack.override_uids.empty()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const Built> built, Overridden(with, pack));
    if (!sizes_by_shapes_.load(std::memory_order_relaxed))
      RETURN_IF_ERROR(CheckWorkspace(*built).Within("with these shapes"));
    return Launch(*built, pack, use);
  }
  if (with.session == home_) [[likely]]
    return Launch(built_, pack, use);
  ASSIGN_OR_RETURN(const Built* built, BuiltFor(with));
  return Launch(*built, pack, use);
}

Status ExecutionPlanDesc::Run(const Handle& with, const VariantPackDesc& pack) const {
  return WithPointers(with, pack, [&](const Built& built, std::span<void* const> pointers) {
    return built.session->Execute(*built.plan, pointers, pack.workspace, with.stream);
  });
}

Result<int64_t> ExecutionPlanDesc::WorkspaceFor(const Handle& with,
                                                const VariantPackDesc& pack) const {
  if (pack.override_uids.empty()) {
    if (with.session == home_) return WorkspaceSize();
    ASSIGN_OR_RETURN(const Built* const built, BuiltFor(with));
    return built->plan->workspace_bytes();
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const Built> built, Overridden(with, pack));
  sizes_by_shapes_.store(true, std::memory_order_relaxed);
  return built->plan->workspace_bytes();
}

Status ExecutionPlanDesc::FillGraph(const Handle& with, const VariantPackDesc& pack,
                                    void* cuda_graph, Session::GraphUse use) const {
  return WithPointers(with, pack, [&](const Built& built, std::span<void* const> pointers) {
    return built.session->FillGraph(*built.plan, pointers, pack.workspace, cuda_graph, use);
  });
}

// Uids that the plan does not know are the client's business: frontends pass tensors that only they
// use.
template <class Use>
Status ExecutionPlanDesc::Launch(const Built& built, const VariantPackDesc& pack, Use&& use) const {
  std::span<const ProgramTensor> tensors = built.plan->tensors();
  std::array<void*, kInlinePointers> few;
  std::vector<void*> many;
  if (tensors.size() > few.size()) many.resize(tensors.size());
  void** pointers = many.empty() ? few.data() : many.data();
  const size_t count = pack.uids.size();
  // Packs mostly come in the order of the tensors or against it, so that the next tensor is as far
  // from this one in the pack as this one was from the last.
  size_t place = count - 1, step = 1;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t last = place;
    place += place + step < count ? step : step - count;
    size_t tried = 0;
    while (tried < count && pack.uids[place] != tensors[i].uid) {
      place = place + 1 == count ? 0 : place + 1;
      ++tried;
    }
    if (tried == count) {
      return Status::Error(Code::kBadParam, "the variant pack has no pointer for tensor {}",
                           tensors[i].uid);
    }
    step = place >= last ? place - last : place + count - last;
    pointers[i] = pack.pointers[place];
    RETURN_IF_ERROR(CheckPointer(pointers[i], tensors[i], built.alignments[i]));
  }
  if (!built.lone_peers.empty())
    RETURN_IF_ERROR(CheckPeers(*built.session, built.lone_peers, pack));
  if (pack.workspace == nullptr && built.plan->workspace_bytes() > 0) {
    return Status::Error(Code::kNullPointer,
                         "the plan needs {} bytes of workspace and the pack has none",
                         built.plan->workspace_bytes());
  }
  return use(built, std::span<void* const>(pointers, tensors.size()));
}

Result<const ExecutionPlanDesc::Built*> ExecutionPlanDesc::BuiltFor(const Handle& with) const {
  const std::shared_ptr<Session> session = SessionOn(with);
  if (session == built_.session) return &built_;
  std::lock_guard lock(mutex_);
  for (const auto& built : elsewhere_) {
    if (built->session == session) return built.get();
  }
  ASSIGN_OR_RETURN(Built built, BuildOn(session, engine_config->engine->operation_graph->graph));
  RETURN_IF_ERROR(CheckWorkspace(built).Within("on this device"));
  elsewhere_.push_back(std::make_unique<Built>(std::move(built)));
  return elsewhere_.back().get();
}

// Clients size the workspace by what the plan said when it was made.
Status ExecutionPlanDesc::CheckWorkspace(const Built& built) const {
  if (built.plan->workspace_bytes() <= built_.plan->workspace_bytes()) return {};
  return Status::Error(Code::kSizeInsufficient, "the plan needs {} bytes of workspace, not {}",
                       built.plan->workspace_bytes(), built_.plan->workspace_bytes());
}

Result<std::shared_ptr<const ExecutionPlanDesc::Built>> ExecutionPlanDesc::Overridden(
    const Handle& with, const VariantPackDesc& pack) const {
  const auto is_this = [&](const Override& known) {
    return known.session == with.session && known.uids == pack.override_uids &&
           known.shapes == pack.override_shapes && known.strides == pack.override_strides;
  };
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find_if(overrides_, is_this);
    if (known != overrides_.end()) {
      std::rotate(overrides_.begin(), known, known + 1);
      return overrides_.front().built;
    }
  }
  ASSIGN_OR_RETURN(Built made, BuildOverridden(with, pack));
  auto built = std::make_shared<const Built>(std::move(made));
  const std::lock_guard lock(mutex_);
  overrides_.insert(overrides_.begin(), {.session = with.session,
                                         .uids = pack.override_uids,
                                         .shapes = pack.override_shapes,
                                         .strides = pack.override_strides,
                                         .built = built});
  if (overrides_.size() > kOverridesKept) overrides_.pop_back();
  return std::shared_ptr<const Built>(std::move(built));
}

// The plan for a graph with other extents for some tensors: a new program, mostly with the same
// kernels.
Result<ExecutionPlanDesc::Built> ExecutionPlanDesc::BuildOverridden(
    const Handle& with, const VariantPackDesc& pack) const {
  ASSIGN_OR_RETURN(const graph::Graph graph,
                   WithShapes(engine_config->engine->operation_graph->graph, pack));
  return BuildOn(SessionOn(with), graph);
}

}  // namespace kiln::api
