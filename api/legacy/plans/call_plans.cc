#include "api/legacy/plans/call_plans.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "api/spec/cudnn_types.h"
#include "ir/base/threads.h"

namespace kiln::api::legacy {
namespace {

// True if the engine's notes are such that the wishes allow for it.
bool IsWished(const Session& session, const graph::Graph& graph, int64_t engine,
              const PlanWishes& wishes) {
  if (!wishes.only_fma && !wishes.keeps_bits && !wishes.winograd) return true;
  const Result<EngineFacts> facts = session.Describe(graph, engine);
  if (!facts.ok()) return false;
  const auto has = [&](int32_t note) {
    return std::ranges::find(facts->numerical_notes, note) != facts->numerical_notes.end();
  };
  if (wishes.winograd && !has(CUDNN_NUMERICAL_NOTE_WINOGRAD)) return false;
  if (wishes.only_fma && has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return false;
  return !(wishes.only_fma || wishes.keeps_bits) || !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
}

// Configurations of the engine, as it likes and with little workspace: it may be none that leads a
// ranking's plans. None of engines that add in any order.
std::vector<EngineConfig> PlansOf(const Session& session, const graph::Graph& graph,
                                  int64_t engine) {
  const Result<EngineFacts> facts = session.Describe(graph, engine);
  if (!facts.ok() ||
      std::ranges::count(facts->numerical_notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) > 0)
    return {};
  constexpr KnobValue kLittle = {.type = CUDNN_KNOB_TYPE_WORKSPACE, .value = 1};
  std::vector<EngineConfig> configs = {{.engine = engine}, {.engine = engine, .knobs = {kLittle}}};
  for (const KnobRange& knob : facts->knobs) {
    if (knob.type != CUDNN_KNOB_TYPE_SPLIT_K_SLC) continue;
    for (int64_t value = knob.minimum; value <= knob.maximum; value += knob.stride)
      configs.push_back(
          {.engine = engine, .knobs = {{.type = knob.type, .value = value}, kLittle}});
  }
  return configs;
}

// True if the configuration takes the graph and is as wished; `least` is lowered to the workspace
// that it needs.
bool Takes(const Session& session, const graph::Graph& graph, const EngineConfig& config,
           const PlanWishes& wishes, int64_t& least) {
  if (!IsWished(session, graph, config.engine, wishes)) return false;
  const Result<Footprint> footprint = session.Measure(graph, config);
  if (!footprint.ok()) return false;
  least = std::min(least, footprint->workspace_bytes);
  return footprint->workspace_bytes <= wishes.workspace_bytes;
}

// The first of a ranking that is as wished; `least` is lowered to the workspace that any needs.
Result<std::optional<EngineConfig>> FirstOf(const Session& session, const graph::Graph& graph,
                                            RankMode mode, const PlanWishes& wishes,
                                            int64_t& least) {
  ASSIGN_OR_RETURN(const std::vector<EngineConfig> ranked, session.Rank(graph, {.mode = mode}));
  // The need of a configuration is known once it is lowered: behind the first, which mostly serves,
  // some are lowered side by side.
  struct Answer {
    bool takes = false;
    int64_t least = INT64_MAX;
  };
  for (size_t begin = 0, count = 1; begin < ranked.size(); begin += count) {
    count = begin == 0 ? 1 : std::min(static_cast<size_t>(Cores()), ranked.size() - begin);
    std::vector<Answer> answers(count);
    ForEachTogether(count, Cores(), [&](size_t i) {
      answers[i].takes = Takes(session, graph, ranked[begin + i], wishes, answers[i].least);
    });
    for (size_t i = 0; i < count; ++i) {
      least = std::min(least, answers[i].least);
      if (answers[i].takes) return std::optional(ranked[begin + i]);
    }
  }
  return std::optional<EngineConfig>();
}

// A configuration that is as wished; `least` is lowered to the workspace that any needs.
Result<EngineConfig> Search(const Session& session, const graph::Graph& graph,
                            const PlanWishes& wishes, int64_t& least) {
  // The wide ranking asks every engine for every configuration: only where the short ones have
  // none. The generic engines take everything.
  for (const RankMode mode : {RankMode::kInstant, RankMode::kFallback, RankMode::kA}) {
    ASSIGN_OR_RETURN(std::optional<EngineConfig> config,
                     FirstOf(session, graph, mode, wishes, least));
    if (config) return *std::move(config);
  }
  for (const int64_t engine : session.EnginesOf(graph)) {
    for (const EngineConfig& config : PlansOf(session, graph, engine))
      if (Takes(session, graph, config, wishes, least)) return config;
  }
  if (least == INT64_MAX) return Status::Text(Code::kNotSupported, "no engine takes the operation");
  return Status::Error(Code::kSizeInsufficient, "{} bytes of workspace; at least {} are needed",
                       wishes.workspace_bytes, least);
}

}  // namespace

Result<std::shared_ptr<const CallPlan>> CallPlan::Make(std::shared_ptr<Session> session,
                                                       graph::Graph graph,
                                                       const PlanWishes& wishes) {
  std::shared_ptr<CallPlan> made(new CallPlan(std::move(session), std::move(graph), wishes));
  ASSIGN_OR_RETURN(made->config_, ConfigWithin(*made->session_, made->graph_, wishes));
  ASSIGN_OR_RETURN(const Footprint footprint, made->session_->Measure(made->graph_, made->config_));
  made->workspace_bytes_ = footprint.workspace_bytes;
  made->modelled_seconds_ = footprint.seconds;
  made->is_as_wished_ =
      IsWished(*made->session_, made->graph_, made->config_.engine, made->wishes_);
  return std::shared_ptr<const CallPlan>(std::move(made));
}

bool CallPlan::is_compiled() const {
  const std::lock_guard lock(mutex_);
  return built_ || session_->IsReady(graph_, config_);
}

std::shared_future<void> CallPlan::CompileBeside() const {
  const std::lock_guard lock(mutex_);
  if (built_) return {};
  return session_->CompileBeside(graph_, config_);
}

Result<const CallPlan::Built*> CallPlan::Build() const {
  const std::lock_guard lock(mutex_);
  if (built_) return &*built_;
  ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, session_->Build(graph_, config_, {}));
  // Records that came since may have changed what stands beside the configuration's own kernel.
  if (plan->workspace_bytes() > workspace_bytes_) {
    PlanWishes wishes = wishes_;
    wishes.workspace_bytes = workspace_bytes_;
    ASSIGN_OR_RETURN(const EngineConfig config, ConfigWithin(*session_, graph_, wishes));
    ASSIGN_OR_RETURN(plan, session_->Build(graph_, config, {}));
  }
  built_.emplace(Built{.plan = std::move(plan), .slots = {}});
  for (const ProgramTensor& tensor : built_->plan->tensors())
    built_->slots.push_back(static_cast<int>(tensor.uid));
  graph_ = {};
  ready_.store(&*built_, std::memory_order_release);
  return &*built_;
}

CallPlans& CallPlans::Of(const Session& session) {
  // Leaked, as sessions are.
  static auto* const mutex = new std::mutex;
  static auto* const plans = new std::map<const Session*, std::unique_ptr<CallPlans>>;
  const std::lock_guard lock(*mutex);
  std::unique_ptr<CallPlans>& own = (*plans)[&session];
  if (own == nullptr) own = std::make_unique<CallPlans>();
  return *own;
}

Result<Handle> HandleOn(void* stream) {
  ASSIGN_OR_RETURN(std::shared_ptr<Session> session, OpenSession());
  Handle handle;
  handle.plans = &CallPlans::Of(*session);
  handle.session = std::move(session);
  handle.stream = stream;
  return handle;
}

void CallPlans::Forget(std::string_view prefix) {
  plans_.Erase(prefix, [this](const auto& entry) {
    const auto& [key, plan] = entry;
    const std::lock_guard lock(mutex_);
    const auto known = forgotten_.try_emplace(key, INT64_MAX).first;
    known->second = std::min(known->second, plan->workspace_bytes());
  });
}

int64_t CallPlans::MinForgottenWorkspace(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto known = forgotten_.find(key);
  return known == forgotten_.end() ? INT64_MAX : known->second;
}

Result<EngineConfig> ConfigWithin(const Session& session, const graph::Graph& graph,
                                  const PlanWishes& wishes) {
  PlanWishes strict = wishes;
  if (wishes.least_workspace) strict.workspace_bytes = 0;
  int64_t least = INT64_MAX;
  Result<EngineConfig> config = Search(session, graph, strict, least);
  if (!config.ok() && wishes.least_workspace && least <= wishes.workspace_bytes &&
      least < INT64_MAX) {
    strict.workspace_bytes = least;
    config = Search(session, graph, strict, least);
  }
  if (config.ok() || !wishes.winograd) return config;
  PlanWishes others = wishes;
  others.winograd = false;
  return ConfigWithin(session, graph, others);
}

}  // namespace kiln::api::legacy
