#include "api/backend/engine.h"

#include <map>

namespace kiln::api {
namespace {

// Engines that the heuristics name have an index, too: it is looked for when a client asks.
Result<int64_t> IndexOf(const EngineDesc& d) {
  if (d.index >= 0) return d.index;
  const std::vector<int64_t> engines = d.session->EnginesOf(d.operation_graph->graph);
  const auto at = std::ranges::find(engines, d.engine);
  CHECK(at != engines.end(), "engine {} describes a graph that it does not take", d.engine);
  return at - engines.begin();
}

constexpr AttrRow kKnobInfoRows[] = {
    Attr<&KnobInfoDesc::knob>(CUDNN_ATTR_KNOB_INFO_TYPE, Use::kReadOnly),
    Attr<&KnobInfoDesc::maximum>(CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, Use::kReadOnly),
    Attr<&KnobInfoDesc::minimum>(CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE, Use::kReadOnly),
    Attr<&KnobInfoDesc::stride>(CUDNN_ATTR_KNOB_INFO_STRIDE, Use::kReadOnly),
};

constexpr AttrRow kLayoutInfoRows[] = {
    Attr<&LayoutInfoDesc::uid>(CUDNN_ATTR_LAYOUT_INFO_TENSOR_UID, Use::kReadOnly),
    Attr<&LayoutInfoDesc::types>(CUDNN_ATTR_LAYOUT_INFO_TYPES, Use::kReadOnly),
};

constexpr AttrRow kIntermediateInfoRows[] = {
    Attr<&IntermediateInfoDesc::uid>(CUDNN_ATTR_INTERMEDIATE_INFO_UNIQUE_ID, Use::kReadOnly),
    Attr<&IntermediateInfoDesc::size>(CUDNN_ATTR_INTERMEDIATE_INFO_SIZE, Use::kReadOnly),
    Attr<&IntermediateInfoDesc::dependent_uids>(CUDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_DATA_UIDS,
                                                Use::kReadOnly),
    Attr<&IntermediateInfoDesc::dependent_attributes>(
        CUDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_ATTRIBUTES, Use::kReadOnly),
};

constexpr AttrRow kKnobChoiceRows[] = {
    Attr<&KnobChoiceDesc::knob>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE),
    Attr<&KnobChoiceDesc::value>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE),
};

// Set as it comes, read back of the finalised engine.
constexpr AttrRow IndexRow() {
  AttrRow row = Attr<&EngineDesc::index>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  row.get = Computed<EngineDesc, int64_t, IndexOf>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX).get;
  return row;
}

constexpr AttrRow kEngineRows[] = {
    Attr<&EngineDesc::operation_graph>(CUDNN_ATTR_ENGINE_OPERATION_GRAPH),
    IndexRow(),
    Attr<&EngineDesc::knobs>(CUDNN_ATTR_ENGINE_KNOB_INFO, Use::kReadOnly),
    Attr<&EngineDesc::numerical_notes>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Use::kReadOnly),
    Attr<&EngineDesc::layouts>(CUDNN_ATTR_ENGINE_LAYOUT_INFO, Use::kReadOnly),
    Attr<&EngineDesc::behavior_notes>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, Use::kReadOnly),
    Attr<&EngineDesc::sm_count_target>(CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, Use::kOptional),
    Attr<&EngineDesc::device>(CUDNN_ATTR_ENGINE_DEVICEPROP, Use::kOptional),
    Attr<&EngineDesc::disable_cluster_cooperative>(CUDNN_ATTR_ENGINE_DISABLE_CLUSTER_COOPERATIVE,
                                                   Use::kOptional),
    Attr<&EngineDesc::shared_memory_limit>(CUDNN_ATTR_ENGINE_SHARED_MEMORY_LIMIT, Use::kOptional),
};

Result<int64_t> WorkspaceOf(const EngineConfigDesc& d) {
  ASSIGN_OR_RETURN(Footprint needs, d.NeedsOf());
  return needs.workspace_bytes;
}
Result<int32_t> SharedMemoryOf(const EngineConfigDesc& d) {
  ASSIGN_OR_RETURN(Footprint needs, d.NeedsOf());
  return needs.shared_memory_bytes;
}
Result<std::vector<Ref<IntermediateInfoDesc>>> IntermediatesOf(const EngineConfigDesc&) {
  return std::vector<Ref<IntermediateInfoDesc>>{};
}

using Cfg = EngineConfigDesc;
constexpr AttrRow kEngineConfigRows[] = {
    Attr<&Cfg::engine>(CUDNN_ATTR_ENGINECFG_ENGINE),
    Computed<Cfg, std::vector<Ref<IntermediateInfoDesc>>, IntermediatesOf>(
        CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO),
    Attr<&Cfg::choices>(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, Use::kOptional, CUDNN_KNOB_TYPE_COUNTS),
    Computed<Cfg, int64_t, WorkspaceOf>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE),
    Computed<Cfg, int32_t, SharedMemoryOf>(CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED),
};

constexpr AttrRow kEngineHeurRows[] = {
    Attr<&EngineHeurDesc::mode>(CUDNN_ATTR_ENGINEHEUR_MODE),
    Attr<&EngineHeurDesc::operation_graph>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH),
    Attr<&EngineHeurDesc::results>(CUDNN_ATTR_ENGINEHEUR_RESULTS, Use::kReadOnly),
    Attr<&EngineHeurDesc::sm_count_target>(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, Use::kOptional),
    Attr<&EngineHeurDesc::device>(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, Use::kOptional),
    Attr<&EngineHeurDesc::shared_memory_limit>(CUDNN_ATTR_ENGINEHEUR_SHARED_MEMORY_LIMIT,
                                               Use::kOptional),
};

const KnobInfoDesc* FindKnob(const EngineDesc& engine, cudnnBackendKnobType_t type) {
  for (const Ref<KnobInfoDesc>& knob : engine.knobs) {
    if (knob->knob == type) return knob.get();
  }
  return nullptr;
}

Status CheckChoice(const EngineDesc& engine, const KnobChoiceDesc& choice) {
  const KnobInfoDesc* knob = FindKnob(engine, choice.knob);
  if (knob == nullptr) {
    return Status::Error(Code::kNotSupported, "engine {} has no knob {}", engine.name,
                         NameOf(choice.knob));
  }
  bool legal = choice.value >= knob->minimum && choice.value <= knob->maximum &&
               (choice.value - knob->minimum) % std::max<int64_t>(1, knob->stride) == 0;
  if (legal) return {};
  return Status::Error(
      Code::kNotSupported, "engine {}: {} is {}; legal are {} to {} in steps of {}", engine.name,
      NameOf(choice.knob), choice.value, knob->minimum, knob->maximum, knob->stride);
}

}  // namespace

std::span<const AttrRow> KnobInfoDesc::Rows() { return kKnobInfoRows; }
std::span<const AttrRow> LayoutInfoDesc::Rows() { return kLayoutInfoRows; }
std::span<const AttrRow> IntermediateInfoDesc::Rows() { return kIntermediateInfoRows; }
std::span<const AttrRow> KnobChoiceDesc::Rows() { return kKnobChoiceRows; }
std::span<const AttrRow> EngineDesc::Rows() { return kEngineRows; }
std::span<const AttrRow> EngineConfigDesc::Rows() { return kEngineConfigRows; }
std::span<const AttrRow> EngineHeurDesc::Rows() { return kEngineHeurRows; }

Status EngineDesc::Finalize() {
  ASSIGN_OR_RETURN(session, SessionOf({operation_graph, device, sm_count_target}));
  const std::vector<int64_t> engines = session->EnginesOf(operation_graph->graph);
  if (index < 0 || index >= std::ssize(engines)) {
    return Status::Error(Code::kNotSupported, "engine {}: the graph has engines 0 to {}", index,
                         engines.size() - 1);
  }
  return Describe(engines[static_cast<size_t>(index)]);
}

Status EngineDesc::Describe(int64_t engine_row) {
  // A client may finalise again after a failure.
  knobs.clear();
  layouts.clear();
  numerical_notes.clear();
  behavior_notes.clear();
  engine = engine_row;
  ASSIGN_OR_RETURN(session, SessionOf({operation_graph, device, sm_count_target}));
  ASSIGN_OR_RETURN(EngineFacts facts, session->Describe(operation_graph->graph, engine));
  name = std::move(facts.name);
  for (const KnobRange& range : facts.knobs) {
    auto knob = std::make_shared<KnobInfoDesc>();
    knob->knob = static_cast<cudnnBackendKnobType_t>(range.type);
    knob->maximum = range.maximum;
    knob->minimum = range.minimum;
    knob->stride = range.stride;
    knobs.push_back(std::move(knob));
  }
  for (const LayoutPreference& preference : facts.layouts) {
    auto layout = std::make_shared<LayoutInfoDesc>();
    layout->uid = preference.uid;
    for (int32_t type : preference.types)
      layout->types.push_back(static_cast<cudnnBackendLayoutType_t>(type));
    layouts.push_back(std::move(layout));
  }
  for (int32_t note : facts.numerical_notes) {
    numerical_notes.push_back(static_cast<cudnnBackendNumericalNote_t>(note));
  }
  for (int32_t note : facts.behavior_notes) {
    behavior_notes.push_back(static_cast<cudnnBackendBehaviorNote_t>(note));
  }
  return {};
}

Status EngineConfigDesc::Finalize() {
  uint64_t seen = 0;
  for (const Ref<KnobChoiceDesc>& choice : choices) {
    RETURN_IF_ERROR(CheckChoice(*engine, *choice));
    if ((seen >> choice->knob & 1) != 0) {
      return Status::Error(Code::kDuplicatedEntries, "{} is chosen twice", NameOf(choice->knob));
    }
    seen |= uint64_t{1} << choice->knob;
  }
  return {};
}

EngineConfig EngineConfigDesc::Config() const {
  EngineConfig config{.engine = engine->engine, .knobs = {}};
  for (const Ref<KnobChoiceDesc>& choice : choices) {
    // As the ranking has it, so that one configuration is one plan however it is spelled.
    if (choice->knob == CUDNN_KNOB_TYPE_WORKSPACE && choice->value == 0) continue;
    config.knobs.push_back({.type = choice->knob, .value = choice->value});
  }
  return config;
}

Result<Footprint> EngineConfigDesc::NeedsOf() const {
  std::lock_guard lock(mutex_);
  if (!needs_) needs_ = engine->session->Measure(engine->operation_graph->graph, Config());
  return *needs_;
}

// A described device wins over the handle's: the client compiles for elsewhere.
Result<std::shared_ptr<Session>> SessionOf(const EngineSettings& settings) {
  RETURN_IF_ERROR(settings.operation_graph->by_itself);
  ASSIGN_OR_RETURN(std::shared_ptr<Session> session, settings.device != nullptr
                                                         ? OpenSessionFor(settings.device->target)
                                                         : settings.operation_graph->SessionFor());
  return session->Limited(settings.sm_count_target);
}

Result<Ref<EngineDesc>> MakeEngine(const EngineSettings& settings, int64_t engine) {
  auto desc = std::make_shared<EngineDesc>();
  desc->operation_graph = settings.operation_graph;
  desc->device = settings.device;
  desc->sm_count_target = settings.sm_count_target;
  desc->shared_memory_limit = settings.shared_memory_limit;
  RETURN_IF_ERROR(desc->Describe(engine));
  return Ref<EngineDesc>(std::move(desc));
}

Result<Ref<EngineConfigDesc>> MakeConfig(const Ref<EngineDesc>& engine,
                                         const EngineConfig& config) {
  auto desc = std::make_shared<EngineConfigDesc>();
  desc->engine = engine;
  const auto choose = [&](cudnnBackendKnobType_t type, int64_t value) {
    auto choice = std::make_shared<KnobChoiceDesc>();
    choice->knob = type;
    choice->value = value;
    desc->choices.push_back(std::move(choice));
  };
  for (const KnobValue& knob : config.knobs)
    choose(static_cast<cudnnBackendKnobType_t>(knob.type), knob.value);
  // All of them, since clients (XLA) keep a configuration as its engine's index and its choices,
  // and give each knob of the engine that those do not name the value -1.
  for (const Ref<KnobInfoDesc>& knob : engine->knobs) {
    if (std::ranges::find(config.knobs, knob->knob, &KnobValue::type) == config.knobs.end())
      choose(knob->knob, knob->minimum);
  }
  RETURN_IF_ERROR(desc->Finalize());
  return Ref<EngineConfigDesc>(std::move(desc));
}

Status EngineHeurDesc::Finalize() {
  results.clear();
  const EngineSettings settings{operation_graph, device, sm_count_target, shared_memory_limit};
  ASSIGN_OR_RETURN(std::shared_ptr<Session> session, SessionOf(settings));
  // The enumerators of RankMode have cudnnBackendHeurMode_t's values.
  ASSIGN_OR_RETURN(
      std::vector<EngineConfig> ranked,
      session->Rank(operation_graph->graph, {.mode = static_cast<RankMode>(mode),
                                             .prefers_ready = operation_graph->dynamic_shape}));
  std::map<int64_t, Ref<EngineDesc>> engines;
  for (const EngineConfig& config : ranked) {
    Ref<EngineDesc>& engine = engines[config.engine];
    if (engine == nullptr) {
      ASSIGN_OR_RETURN(engine, MakeEngine(settings, config.engine));
    }
    ASSIGN_OR_RETURN(Ref<EngineConfigDesc> desc, MakeConfig(engine, config));
    results.push_back(std::move(desc));
  }
  if (!results.empty()) return {};
  return Status::Error(Code::kUnsupportedGraphPattern, "no engine takes the graph in mode {}",
                       NameOf(mode));
}

}  // namespace kiln::api
