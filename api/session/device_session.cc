// The session over compiler and runtime. It asks the compiler's engines, keeps compiled plans, and
// hands programs to the device. One session a device and process, made at first use and kept:
// tearing CUDA down is not ours.
#include <algorithm>
#include <array>
#include <atomic>
#include <initializer_list>
#include <map>
#include <mutex>

#include "api/prefetch/background.h"
#include "api/prefetch/known_networks.h"
#include "api/prefetch/next_plans.h"
#include "api/session/capture.h"
#include "api/session/compile_notice.h"
#include "api/session/heuristic_list.h"
#include "api/session/plan_cache.h"
#include "api/session/session.h"
#include "api/spec/cudnn_types.h"
#include "api/tuning/tuner.h"
#include "compiler/compile.h"
#include "compiler/engines/candidates.h"
#include "compiler/engines/registry.h"
#include "ir/base/env.h"
#include "ir/base/log.h"
#include "ir/graph/ops.h"
#include "runtime/cache/record_files.h"
#include "runtime/cuda/cuda_compiler.h"
#include "runtime/cuda/l2_flush.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/device_select.h"
#include "runtime/executable.h"
#include "runtime/prepare.h"

namespace kiln::api {
namespace {

using compiler::CompiledPlan;
using compiler::Engine;
using compiler::EngineChoice;
using compiler::Group;
using compiler::Groups;
using compiler::KnobRow;

static_assert(BudgetRules().small_problem == kSmallProblem);

constexpr size_t kPlansKept = 512;
// Of configurations that the heuristics prefer where their kernels are there.
constexpr size_t kConfigsRemembered = 64, kConfigsTried = 4;
constexpr double kWorthWaitingFor = 2;
constexpr double kSecondsTimed = 0.005, kMostRuns = 20;  // behind one time
// Of workspace, that nobody falls back for.
constexpr int64_t kLent = int64_t{64} << 20;
// Of configurations whose workspace is compared with the limit, for which they are compiled.
constexpr size_t kMostAsked = 64;

// ---- knobs: the API shows the index into the legal values
// --------------------------------------------

// Null: the compiler's choice.
Result<const Engine*> EngineOf(const EngineConfig& config) {
  const auto engines = compiler::Engines();
  if (config.engine == kCompilersChoice) return nullptr;
  if (config.engine < 0 || config.engine >= static_cast<int64_t>(engines.size())) {
    return Status::Error(Code::kInvalidValue,
                         "row {} of the engines does not exist; there are rows 0 to {}, and {} for "
                         "the compiler's choice",
                         config.engine, engines.size() - 1, kCompilersChoice);
  }
  return &engines[static_cast<size_t>(config.engine)];
}

Result<EngineChoice> ChoiceOf(const EngineConfig& config) {
  ASSIGN_OR_RETURN(const Engine* const engine, EngineOf(config));
  EngineChoice choice{.engine = static_cast<int>(config.engine), .knobs = {}};
  for (const KnobValue& knob : config.knobs) {
    if (knob.type == CUDNN_KNOB_TYPE_WORKSPACE) {
      if (knob.value != 0 && knob.value != 1) {
        return Status::Error(Code::kBadParam,
                             "the workspace knob has value {}; legal are 0, as much as is fastest, "
                             "and 1, the least",
                             knob.value);
      }
      choice.least_workspace = knob.value == 1;
      continue;
    }
    if (engine == nullptr)
      return Status::Error(Code::kBadParam,
                           "where the compiler chooses the engines, there is no knob of type {}",
                           knob.type);
    const auto row = std::ranges::find(engine->knobs, knob.type, &KnobRow::cudnn_type);
    if (row == engine->knobs.end())
      return Status::Error(Code::kBadParam, "engine {} has no knob of type {}", engine->name,
                           knob.type);
    if (knob.value < 0 || knob.value >= static_cast<int64_t>(row->domain.size())) {
      return Status::Error(Code::kBadParam, "engine {}: knob {} has value {}; legal are 0 to {}",
                           engine->name, row->name, knob.value, row->domain.size() - 1);
    }
    choice.knobs.push_back({row->name, row->domain[static_cast<size_t>(knob.value)]});
  }
  return choice;
}

constexpr KnobValue kLeastWorkspace = {.type = CUDNN_KNOB_TYPE_WORKSPACE, .value = 1};

// CUDNN_KNOB_TYPE_WORKSPACE is every engine's, since it speaks of the whole plan; left out at 0.
EngineConfig ConfigOf(int engine_index, std::span<const int> values, bool least_workspace = false) {
  EngineConfig config{.engine = engine_index, .knobs = {}};
  const Engine& engine = compiler::Engines()[static_cast<size_t>(engine_index)];
  for (size_t i = 0; i < engine.knobs.size(); ++i) {
    const auto domain = engine.knobs[i].domain;
    config.knobs.push_back({.type = engine.knobs[i].cudnn_type,
                            .value = std::ranges::find(domain, values[i]) - domain.begin()});
  }
  if (least_workspace) config.knobs.push_back(kLeastWorkspace);
  return config;
}

// ---- plans
// -------------------------------------------------------------------------------------------

// What a client gives, wherever it begins.
int64_t WithAlignment(int64_t bytes) {
  return bytes == 0 ? 0 : bytes + runtime::kWorkspaceAlignment - 1;
}
// The most that a program may need where clients give so much; -1 stays.
int64_t WithoutAlignment(int64_t bytes) {
  return bytes < 0 ? -1 : std::max<int64_t>(0, bytes - runtime::kWorkspaceAlignment + 1);
}
int64_t WorkspaceBytes(const Program& program) { return WithAlignment(program.workspace_bytes); }

class PlanImpl final : public Plan {
 public:
  PlanImpl(EngineConfig config, CompiledPlan compiled)
      : config_(std::move(config)), program_(std::move(compiled.program)) {}

  Status LoadOn(runtime::Device& device) {
    ASSIGN_OR_RETURN(executable_, runtime::Executable::Create(device, program_));
    return {};
  }

  const EngineConfig& config() const override { return config_; }
  int64_t workspace_bytes() const override { return WorkspaceBytes(program_); }
  std::span<const ProgramTensor> tensors() const override { return program_.tensors; }
  const Program& program() const { return program_; }
  const runtime::Executable* executable() const { return executable_.get(); }

 private:
  EngineConfig config_;
  Program program_;
  std::unique_ptr<runtime::Executable> executable_;  // null: compiled for a device that is not here
};

class DeviceSession final : public Session {
 public:
  DeviceSession(Target target, runtime::Device* device)
      : target_(std::move(target)), device_(device) {
    if (device != nullptr) tuner_ = std::make_unique<PlanTuner>(*device, records_);
  }

  const Target& target() const override { return target_; }

  std::shared_ptr<Session> Limited(int sm_count) override {
    if (sm_count <= 0 || sm_count >= target_.multiprocessors || !target_.is_cuda())
      return shared_from_this();
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Session>& session = limited_[sm_count];
    if (session == nullptr) {
      Target target = target_;
      target.multiprocessors = sm_count;
      session = std::make_shared<DeviceSession>(std::move(target), device_);
    }
    return session;
  }

  std::vector<int64_t> EnginesOf(const graph::Graph& graph) const override {
    const std::string text = graph::CanonicalText(graph);
    if (const auto known = engines_of_.Find(text)) return *known;
    std::vector<int64_t> takers = {kCompilersChoice};
    for (int64_t e = 0; e < std::ssize(compiler::Engines()); ++e)
      if (Takes(graph, e).ok()) takers.push_back(e);
    engines_of_.Insert(text, std::make_shared<const std::vector<int64_t>>(takers));
    return takers;
  }

  Result<EngineFacts> Describe(const graph::Graph& graph, int64_t index) const override {
    EngineFacts facts;
    if (index == kCompilersChoice) {
      ASSIGN_OR_RETURN(facts, FactsOfCompilersChoice(graph));
    } else {
      RETURN_IF_ERROR(Takes(graph, index));
      const Engine& engine = compiler::Engines()[static_cast<size_t>(index)];
      facts.name = engine.name;
      AddNotes(engine, facts);
      for (const KnobRow& row : engine.knobs)
        facts.knobs.push_back(
            {.type = row.cudnn_type, .maximum = static_cast<int64_t>(row.domain.size()) - 1});
    }
    if (HasGraphs())
      facts.behavior_notes.push_back(CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API);
    facts.knobs.push_back({.type = CUDNN_KNOB_TYPE_WORKSPACE, .maximum = 1});
    return facts;
  }

  Result<std::vector<EngineConfig>> Rank(const graph::Graph& graph,
                                         const RankOptions& options) const override {
    ASSIGN_OR_RETURN(std::vector<EngineConfig> ranked, Ranked(graph, options.mode));
    if (options.prefers_ready) PutReadyFirst(graph, options.mode, ranked);
    return ranked;
  }

  void Remember(const EngineConfig& config) override {
    const std::lock_guard lock(mutex_);
    std::erase(remembered_, config);
    remembered_.insert(remembered_.begin(), config);
    if (remembered_.size() > kConfigsRemembered) remembered_.pop_back();
  }

  bool IsReady(const graph::Graph& graph, const EngineConfig& config) const override {
    if (device_ == nullptr) return false;
    const Result<EngineChoice> choice = ChoiceOf(config);
    if (!choice.ok()) return false;
    const Result<CompiledPlan> plan = Compiled(graph, *choice);
    return plan.ok() && KernelsAreReady(plan->program);
  }

  std::shared_future<void> CompileBeside(const graph::Graph& graph,
                                         const EngineConfig& config) override {
    struct Work {
      std::promise<void> done;
      ~Work() { done.set_value(); }  // when the last piece is done, or was dropped
    };
    const auto work = std::make_shared<Work>();
    std::shared_future<void> done = work->done.get_future().share();
    if (device_ == nullptr || !target_.is_cuda()) return done;
    bool waits = false;
    for (const KernelSource& kernel : SourcesOf(graph, {config})) {
      if (device_->IsReady(kernel)) continue;
      waits = true;
      runtime::ProcessCudaCompiler().Start(target_.arch);
      Background::OfProcess().AddFirst([this, kernel, work] {
        try {
          device_->Prepare(kernel);
        } catch (...) {  // a failed CHECK of the compiler, which Load meets again
        }
      });
    }
    if (!waits) return done;
    has_compiled_ = true;
    PrepareBeside(graph);
    return done;
  }

  Result<Footprint> Measure(const graph::Graph& graph, const EngineConfig& config) const override {
    ASSIGN_OR_RETURN(const EngineChoice choice, ChoiceOf(config));
    ASSIGN_OR_RETURN(const CompiledPlan plan, Compiled(graph, choice));
    double seconds = 0;
    for (const compiler::GroupReport& group : plan.groups) seconds += group.modelled_seconds;
    return Footprint{.workspace_bytes = WorkspaceBytes(plan.program),
                     .shared_memory_bytes = static_cast<int32_t>(plan.shared_bytes),
                     .seconds = seconds};
  }

  Result<std::shared_ptr<const Plan>> Build(const graph::Graph& graph, const EngineConfig& config,
                                            const BuildOptions& options) override {
    if (const std::string& folder = GetEnv(Env::kCapture); !folder.empty())
      CaptureGraph(folder, graph);
    ASSIGN_OR_RETURN(EngineChoice choice, ChoiceOf(config));
    if (options.may_measure && Measures() && !choice.least_workspace && limit_ < 0)
      RETURN_IF_ERROR(Tune(graph, options.stream, choice));
    ASSIGN_OR_RETURN(CompiledPlan compiled, Compiled(graph, choice));
    const size_t missing =
        device_ != nullptr && target_.is_cuda() ? MissingKernels(compiled.program) : 0;
    const bool waits = missing > 0, is_first = waits && !has_compiled_;
    const CompileNotice notice(graph, missing);
    if (waits) {
      if (!is_first) PrepareBeside(graph);
      const std::vector<EngineConfig> next = next_plans_.After(graph::CanonicalText(graph), config);
      if (!next.empty()) CompileTogether(graph, compiled.program, next);
    }
    EngineConfig complete = compiled.engine < 0 || choice.engine < 0
                                ? config
                                : ConfigOf(compiled.engine, compiled.knobs, choice.least_workspace);
    auto plan = std::make_shared<PlanImpl>(std::move(complete), std::move(compiled));
    RETURN_IF_ERROR(device_ != nullptr ? plan->LoadOn(*device_) : CompileAhead(plan->program()));
    LOG(kDebug, "built a plan of {} kernels", plan->program().kernels.size());
    // Not before: a compiler's first run leaves handlers for exit, which threads have to end
    // before.
    if (is_first && !has_compiled_.exchange(true)) PrepareBeside(graph);
    return std::shared_ptr<const Plan>(std::move(plan));
  }

  Status Execute(const Plan& plan, std::span<void* const> pointers, void* workspace,
                 void* stream) override {
    const runtime::Executable* executable = static_cast<const PlanImpl&>(plan).executable();
    if (executable == nullptr) [[unlikely]]
      return NotHere();
    return executable->Execute(pointers, workspace, stream);
  }

  Status FillGraph(const Plan& plan, std::span<void* const> pointers, void* workspace,
                   void* cuda_graph, GraphUse use) override {
    const runtime::Executable* executable = static_cast<const PlanImpl&>(plan).executable();
    if (executable == nullptr) return NotHere();
    return use == GraphUse::kPopulate ? executable->Populate(pointers, workspace, cuda_graph)
                                      : executable->Update(pointers, workspace, cuda_graph);
  }

  bool Explore(const graph::Graph& graph, const EngineConfig& config, void* stream) override {
    if (tuner_ == nullptr || mode_ == TuneMode::kOff || limit_ >= 0) return false;
    const int64_t before = records_.epoch();
    const Status explored = [&]() -> Status {
      ASSIGN_OR_RETURN(const EngineChoice choice, ChoiceOf(config));
      const compiler::Inputs inputs = InputsOf(choice);
      ASSIGN_OR_RETURN(const Groups groups, compiler::GroupsOf(graph, target_, inputs));
      if (!target_.is_cuda()) {
        tuner_->Find(groups.all, inputs, mode_, stream, 0);  // where compiling takes milliseconds
        return {};
      }
      device_->Prepare(runtime::L2Flush::Source());  // while the plans' kernels are compiled
      tuner_->Find(groups.all, inputs, mode_, stream,
                   runtime::ProcessCudaCompiler().seconds_per_kernel());
      return {};
    }();
    if (!explored.ok()) LOG(kWarn, "tuning: {}", explored.message());
    return records_.epoch() != before;
  }

  Result<double> Time(const Plan& plan, std::span<void* const> pointers, void* workspace,
                      void* stream) override {
    if (device_ == nullptr) return NotHere();
    if (!device_->CanMeasure(stream))
      return Status::Text(Code::kNotSupported, "nothing is measured while the stream is captured");
    const auto run = [&] { return Execute(plan, pointers, workspace, stream); };
    // Measure runs it before, for what happens the first time.
    ASSIGN_OR_RETURN(const double once, device_->Measure(run, 1, stream));
    const double repeats = std::clamp(kSecondsTimed / std::max(once, 1e-9), 1.0, kMostRuns);
    return device_->Measure(run, static_cast<int>(repeats), stream);
  }

  Result<std::shared_ptr<void>> Lend(int64_t bytes) override {
    if (device_ == nullptr) return NotHere();
    ASSIGN_OR_RETURN(void* const memory, device_->Allocate(bytes));
    return std::shared_ptr<void>(memory, [device = device_](void* m) { device->Free(m); });
  }

  Result<std::shared_ptr<void>> LendOn(int64_t bytes, void* stream) override {
    if (device_ == nullptr) return NotHere();
    ASSIGN_OR_RETURN(void* const memory, device_->AllocateOn(bytes, stream));
    return std::shared_ptr<void>(
        memory, [device = device_, stream](void* m) { device->FreeOn(m, stream); });
  }

  bool IsElsewhere(const void* pointer) const override {
    return device_ != nullptr && device_->IsElsewhere(pointer);
  }

 private:
  // Whether the engine takes the group that leads plans which ask for it, or why not.
  Status Takes(const graph::Graph& graph, int64_t index) const {
    ASSIGN_OR_RETURN(const EngineChoice choice, ChoiceOf({.engine = index, .knobs = {}}));
    const Engine& engine = compiler::Engines()[static_cast<size_t>(choice.engine)];
    ASSIGN_OR_RETURN(const std::shared_ptr<const Groups> groups,
                     GroupsFor(graph, InputsOf(choice), choice.engine));
    const Group* const group = Leading(*groups);
    if (group == nullptr) return {};
    return engine.supports(*group, target_)
        .Within(fmt::format("engine {} declines the graph", engine.name));
  }

  static void AddNotes(const Engine& engine, EngineFacts& facts) {
    const auto add = [](std::span<const int> notes, std::vector<int32_t>& all) {
      for (const int note : notes)
        if (std::ranges::find(all, note) == all.end()) all.push_back(note);
    };
    add(engine.notes.numerical, facts.numerical_notes);
    add(engine.notes.behavioral, facts.behavior_notes);
  }

  // The notes of all engines that work in its plans, in the fastest and in that of least workspace:
  // clients filter by notes whatever knob they set.
  Result<EngineFacts> FactsOfCompilersChoice(const graph::Graph& graph) const {
    ASSIGN_OR_RETURN(const Groups groups, compiler::GroupsOf(graph, target_));
    ASSIGN_OR_RETURN(const compiler::LeastWorkspace least,
                     compiler::LeastWorkspaceOf(graph, target_));
    EngineFacts facts{.name = "compiler's choice"};
    for (const Group& group : groups.all)
      AddNotes(compiler::Engines()[static_cast<size_t>(group.engine)], facts);
    for (const int engine : least.engines)
      AddNotes(compiler::Engines()[static_cast<size_t>(engine)], facts);
    return facts;
  }

  Status NotHere() const {
    return Status::Error(Code::kArchMismatch,
                         "the plan was compiled for {} ({}), without a device to run on",
                         target_.arch, target_.name);
  }

  bool KernelsAreReady(const Program& program) const {
    return std::ranges::all_of(
        program.kernels, [&](const KernelSource& kernel) { return device_->IsReady(kernel); });
  }
  size_t MissingKernels(const Program& program) const {
    return static_cast<size_t>(std::ranges::count_if(
        program.kernels, [&](const KernelSource& kernel) { return !device_->IsReady(kernel); }));
  }

  std::vector<KernelSource> SourcesOf(const graph::Graph& graph,
                                      const std::vector<EngineConfig>& configs) const {
    std::vector<KernelSource> sources;
    for (const EngineConfig& config : configs) {
      const Result<EngineChoice> choice = ChoiceOf(config);
      if (!choice.ok()) continue;
      if (Result<CompiledPlan> plan = Compiled(graph, *choice); plan.ok())
        std::ranges::move(plan->program.kernels, std::back_inserter(sources));
    }
    return sources;
  }

  // While the client waits for the kernels of `graph`: those of the graphs that it will ask for
  // next. Sessions with a device stay to the end.
  void PrepareBeside(const graph::Graph& graph) const {
    if (mode_ == TuneMode::kOff || networks_.empty()) return;
    Background::OfProcess().Add([this, graph] {
      std::vector<graph::Graph> beside = networks_.Beside(graph);
      if (!beside.empty())
        LOG(kDebug, "kernels of {} more graphs are compiled in the background", beside.size());
      for (graph::Graph& next : beside)
        Background::OfProcess().Add([this, next = std::move(next)] { PrepareOffered(next); });
    });
  }
  void PrepareOffered(const graph::Graph& graph) const {
    const auto offered = Ranked(graph, RankMode::kInstant);
    if (!offered.ok()) return;
    for (const KernelSource& source : SourcesOf(graph, *offered)) device_->Prepare(source);
  }

  // Into the kernel cache, also what is likely to be built next.
  void CompileTogether(const graph::Graph& graph, const Program& program,
                       const std::vector<EngineConfig>& next) const {
    std::vector<KernelSource> sources = SourcesOf(graph, next);
    sources.insert(sources.begin(), program.kernels.begin(), program.kernels.end());
    runtime::PrepareTogether(*device_, sources);
  }

  // For the process that will run the plan, through the kernel cache. Without a compiler that
  // process has to have one.
  Status CompileAhead(const Program& program) const {
    if (!target_.is_cuda()) return {};
    if (const auto nvrtc = runtime::ProcessNvrtc(); !nvrtc.ok()) {
      LOG(kInfo, "a plan for {} is made without its kernels: {}", target_.name,
          nvrtc.status().message());
      return {};
    }
    for (const KernelSource& kernel : program.kernels)
      RETURN_IF_ERROR(runtime::CompileOnly(kernel).status());
    return {};
  }

  // Of a described device we know that it is a GPU, and believe that its driver is new enough.
  bool HasGraphs() const {
    return device_ != nullptr ? device_->has_graphs()
                              : target_.is_cuda() && !target_.minimal_launch;
  }

  bool Measures() const {
    return device_ != nullptr && (mode_ == TuneMode::kOnMiss || mode_ == TuneMode::kRetune);
  }

  static compiler::Inputs InputsOf(const EngineChoice& choice) {
    if (choice.engine < 0) return compiler::Inputs::kExact;
    return compiler::InputsOf(compiler::Engines()[static_cast<size_t>(choice.engine)]);
  }

  Result<std::vector<EngineConfig>> Ranked(const graph::Graph& graph, RankMode mode) const {
    const int64_t epoch = mode_ == TuneMode::kOff ? 0 : records_.epoch();
    const std::string text = graph::CanonicalText(graph);
    std::string key =
        fmt::format("{} {} {}\n", static_cast<int>(mode), epoch, MayRound(mode)) + text;
    if (const auto known = ranks_.Find(key)) return *known;
    ASSIGN_OR_RETURN(const std::vector<compiler::Candidate> candidates, Candidates(graph, mode));
    std::vector<EngineConfig> ranked = Offered(graph, mode, candidates);
    if (ranked.empty()) {
      RETURN_IF_ERROR(Measure(graph, EngineConfig{}).status());
      ranked.push_back(EngineConfig{});
    }
    if (mode != RankMode::kInstant)
      AddLeastWorkspace(graph, mode == RankMode::kFallback ? kLent : 0, ranked);
    const auto kept = std::make_shared<const std::vector<EngineConfig>>(ranked);
    ranks_.Insert(std::move(key), kept);
    if (device_ != nullptr && target_.is_cuda()) next_plans_.Offered(text, kept);
    return ranked;
  }

  bool ByRecords(RankMode mode) const {
    return mode_ == TuneMode::kHeuristic ? mode == RankMode::kB : mode_ != TuneMode::kOff;
  }

  // Those of the candidates that the mode's list holds. An engine that takes the group of the
  // ranking may decline the one that plans which ask for it are led by (attention is grouped by who
  // asks for it): it is left out, and ends nobody's list.
  std::vector<EngineConfig> Offered(const graph::Graph& graph, RankMode mode,
                                    const std::vector<compiler::Candidate>& candidates) const {
    Offers offers(mode, Multiplies(graph, {DType::kF32, DType::kI8}));
    std::vector<EngineConfig> ranked;
    std::map<int, bool> takes;
    size_t asked = 0;
    for (const compiler::Candidate& candidate : candidates) {
      const auto [known, is_new] = takes.try_emplace(candidate.engine, true);
      if (is_new) known->second = Takes(graph, candidate.engine).ok();
      if (!known->second || !offers.Wants(candidate)) continue;
      EngineConfig config = ConfigOf(candidate.engine, candidate.knobs);
      if (limit_ >= 0 && (asked++ >= kMostAsked || !Measure(graph, config).ok())) continue;
      offers.Took(candidate);
      ranked.push_back(std::move(config));
    }
    while (!ranked.empty() && !Measure(graph, ranked.front()).ok()) ranked.erase(ranked.begin());
    return ranked;
  }

  // For clients with a limit, who take the first that keeps to it: what needs less than the first,
  // at the end, where that needs more than `lent` bytes. Named by the engine that leads it, whose
  // notes say most; in plans that ask for this engine, others may lead, and then it has no name but
  // the compiler's choice.
  void AddLeastWorkspace(const graph::Graph& graph, int64_t lent,
                         std::vector<EngineConfig>& ranked) const {
    const Result<Footprint> first = Measure(graph, ranked.front());
    if (!first.ok() || first->workspace_bytes <= lent) return;
    const Result<compiler::LeastWorkspace> least = compiler::LeastWorkspaceOf(graph, target_);
    if (!least.ok() || WithAlignment(least->bytes) >= first->workspace_bytes) return;
    const bool is_named = least->engine >= 0 && Takes(graph, least->engine).ok();
    ranked.push_back(is_named ? ConfigOf(least->engine, least->knobs, true)
                              : EngineConfig{.knobs = {kLeastWorkspace}});
  }

  // The model's seconds of the leading group; kNoSeconds where the engine declines.
  double SecondsOf(const graph::Graph& graph, RankMode mode, const EngineConfig& config) const {
    const Result<EngineChoice> choice = ChoiceOf(config);
    if (!choice.ok() || choice->engine < 0) return compiler::kNoSeconds;
    const Engine& engine = compiler::Engines()[static_cast<size_t>(choice->engine)];
    if (!MayTake(InputsOf(*choice), mode)) return compiler::kNoSeconds;
    const auto groups = GroupsFor(graph, InputsOf(*choice), choice->engine);
    const Group* const group = groups.ok() ? Leading(**groups) : nullptr;
    if (group == nullptr || !compiler::Offers(InputsOf(*choice), engine, *group) ||
        !engine.supports(*group, target_).ok())
      return compiler::kNoSeconds;
    const auto knobs = compiler::KnobsWith(engine, choice->knobs);
    return knobs.ok() ? engine.cost(*group, target_, *knobs) : compiler::kNoSeconds;
  }

  void PutReadyFirst(const graph::Graph& graph, RankMode mode,
                     std::vector<EngineConfig>& ranked) const {
    if (ranked.empty() || IsReady(graph, ranked.front())) return;
    const double most = kWorthWaitingFor * SecondsOf(graph, mode, ranked.front());
    std::vector<std::pair<double, EngineConfig>> candidates;
    {
      const std::lock_guard lock(mutex_);
      for (const EngineConfig& config : remembered_) candidates.emplace_back(0, config);
    }
    for (auto& [seconds, config] : candidates) seconds = SecondsOf(graph, mode, config);
    std::ranges::stable_sort(candidates, {}, [](const auto& candidate) { return candidate.first; });
    if (candidates.size() > kConfigsTried) candidates.resize(kConfigsTried);
    for (const auto& [seconds, config] : candidates) {
      if (!(seconds <= most) || !IsReady(graph, config)) continue;
      std::erase(ranked, config);
      ranked.insert(ranked.begin(), config);
      return;
    }
  }

  // As NVIDIA's library, whose switch this is: clients that want exact products filter by notes.
  static bool MayRound(RankMode mode) {
    return mode != RankMode::kFallback && GetEnv(Env::kTf32Override) != "0";
  }
  static bool MayTake(compiler::Inputs inputs, RankMode mode) {
    if (inputs == compiler::Inputs::kRounded) return MayRound(mode);
    return inputs == compiler::Inputs::kExact || mode != RankMode::kFallback;
  }

  // Null where nothing is computed.
  static const Group* Leading(const Groups& groups) {
    return groups.leading < 0 ? nullptr : &groups.all[static_cast<size_t>(groups.leading)];
  }

  // What is grouped by who asks for it (attention, layers of a recurrent network, products that
  // need nothing of one another) holds two products or loops over time.
  static bool MayHoldWholes(const graph::Graph& graph) {
    size_t parts = 0;
    for (const graph::Node& node : graph.nodes) {
      const bool is_network =
          (node.op == graph::GraphOp::kRnnForward || node.op == graph::GraphOp::kRnnBackwardData) &&
          node.As<graph::RnnAttrs>().layers > 1;
      const bool is_whole = is_network || node.op == graph::GraphOp::kRnnBackwardWeights ||
                            node.op == graph::GraphOp::kSdpaFwd ||
                            node.op == graph::GraphOp::kSdpaBwd;
      const bool is_part =
          graph::Has(node, graph::kContraction) || graph::Has(node, graph::kRecurrence);
      parts += is_whole ? 2 : is_part ? 1 : 0;
    }
    return parts >= 2;
  }

  // As plans that ask for the engine have them; -1 for those that ask for none.
  Result<std::shared_ptr<const Groups>> GroupsFor(const graph::Graph& graph,
                                                  compiler::Inputs inputs, int64_t engine) const {
    if (!MayHoldWholes(graph)) engine = -1;
    std::string key =
        fmt::format("{} {}\n", static_cast<int>(inputs), engine) + graph::CanonicalText(graph);
    if (auto known = groups_.Find(key)) return known;
    ASSIGN_OR_RETURN(Groups groups,
                     compiler::GroupsOf(graph, target_, inputs, static_cast<int>(engine),
                                        compiler::Picks::kToFindTheLeading));
    auto made = std::make_shared<const Groups>(std::move(groups));
    groups_.Insert(std::move(key), made);
    return std::shared_ptr<const Groups>(std::move(made));
  }

  // Contractions, and what becomes some.
  static bool IsOfProducts(const graph::Node& node) {
    return graph::Has(node, graph::kContraction) || node.op == graph::GraphOp::kRnnForward ||
           node.op == graph::GraphOp::kRnnBackwardData ||
           node.op == graph::GraphOp::kRnnBackwardWeights;
  }
  static bool Multiplies(const graph::Graph& graph, std::initializer_list<DType> types) {
    return std::ranges::any_of(graph.nodes, [&](const graph::Node& node) {
      return IsOfProducts(node) && std::ranges::any_of(node.inputs, [&](graph::TensorId id) {
               return id >= 0 && std::ranges::find(types, graph[id].dtype) != types.end();
             });
    });
  }

  static bool Convolves(const graph::Graph& graph) {
    return std::ranges::any_of(graph.nodes, [](const graph::Node& node) {
      return graph::Has(node, graph::kContraction) && node.op != graph::GraphOp::kMatmul;
    });
  }

  // Of the leading group, in the order of the list; the seconds are the whole plan's.
  Result<std::vector<compiler::Candidate>> CandidatesOf(const graph::Graph& graph, RankMode mode,
                                                        compiler::Inputs inputs) const {
    ASSIGN_OR_RETURN(const std::shared_ptr<const Groups> groups, GroupsFor(graph, inputs, -1));
    const Group* const leading = Leading(*groups);
    if (leading == nullptr) return std::vector<compiler::Candidate>{};
    const Group& group = *leading;
    std::vector<compiler::Candidate> ranked =
        ByRecords(mode) ? records_.Rank(group, target_, inputs)
                        : compiler::RankCandidates(group, target_, inputs);
    double others = -group.cost;
    for (const Group& each : groups->all) others += each.cost;
    for (compiler::Candidate& candidate : ranked) candidate.seconds += others;
    return ranked;
  }

  Result<std::vector<compiler::Candidate>> Candidates(const graph::Graph& graph,
                                                      RankMode mode) const {
    ASSIGN_OR_RETURN(std::vector<compiler::Candidate> merged,
                     CandidatesOf(graph, mode, compiler::Inputs::kExact));
    for (const auto inputs : {compiler::Inputs::kWinograd, compiler::Inputs::kRounded}) {
      // Others have nothing to round, or to multiply in other coordinates.
      if (!MayTake(inputs, mode) || !Multiplies(graph, {DType::kF32})) continue;
      if (inputs == compiler::Inputs::kWinograd && !Convolves(graph)) continue;
      ASSIGN_OR_RETURN(const std::vector<compiler::Candidate> others,
                       CandidatesOf(graph, mode, inputs));
      // Each list keeps its order, which may be that of measured times.
      std::vector<compiler::Candidate> both;
      std::ranges::merge(merged, others, std::back_inserter(both), {},
                         &compiler::Candidate::seconds, &compiler::Candidate::seconds);
      merged = std::move(both);
    }
    return merged;
  }

  // Groups that the choice does not speak of follow the records.
  Result<CompiledPlan> Compiled(const graph::Graph& graph, EngineChoice choice) const {
    choice.workspace_limit = limit_;
    if (mode_ == TuneMode::kOff || mode_ == TuneMode::kHeuristic)
      return plans_.Get(graph, target_, choice);
    const int64_t epoch = records_.epoch();
    const auto advisor = [this](const Group& group) { return records_.Best(group, target_); };
    return plans_.Get(graph, target_, choice, advisor, epoch);
  }

  // Measures what is not on record. A client that took the model's first choice gets the fastest
  // instead; another choice is the client's own, and stays.
  Status Tune(const graph::Graph& graph, void* stream, EngineChoice& choice) {
    const compiler::Inputs inputs = InputsOf(choice);
    ASSIGN_OR_RETURN(const compiler::Groups groups, compiler::GroupsOf(graph, target_, inputs));
    if (groups.leading < 0) return {};
    const Group& leading = groups.all[static_cast<size_t>(groups.leading)];
    const bool is_models = IsModelsChoice(leading, inputs, choice);
    tuner_->Tune(groups.all, inputs, mode_, stream, kToPlan);
    const auto best = records_.Best(leading, target_, inputs);
    if (is_models && best) {
      ASSIGN_OR_RETURN(choice, ChoiceOf(ConfigOf(best->engine, best->knobs)));
    }
    return {};
  }

  bool IsModelsChoice(const Group& group, compiler::Inputs inputs,
                      const EngineChoice& choice) const {
    const std::vector<compiler::Candidate> ranked =
        compiler::RankCandidates(group, target_, inputs);
    if (ranked.empty() || choice.engine != ranked.front().engine) return false;
    const auto knobs =
        compiler::KnobsWith(compiler::Engines()[static_cast<size_t>(choice.engine)], choice.knobs);
    return knobs.ok() && *knobs == ranked.front().knobs;
  }

  const Target target_;
  runtime::Device* const device_;
  const TuneMode mode_ = TuneModeFromEnv();
  // Of programs, as clients count; -1 for none.
  const int64_t limit_ = WithoutAlignment(EnvInt(Env::kWorkspaceLimit));
  RecordStore& records_ = RecordStore::OfProcess();
  std::unique_ptr<PlanTuner> tuner_;  // null without a device
  mutable std::mutex mutex_;          // guards the next two
  std::map<int, std::shared_ptr<Session>> limited_;
  std::vector<EngineConfig> remembered_;  // newest first
  std::atomic<bool> has_compiled_ = false;
  mutable PlanCache plans_{kPlansKept};
  mutable NextPlans next_plans_;
  mutable Networks networks_{runtime::NetworkFiles()};
  mutable Recent<std::vector<EngineConfig>> ranks_{kPlansKept};
  mutable Recent<std::vector<int64_t>> engines_of_{kPlansKept};
  mutable Recent<Groups> groups_{kPlansKept};
};

}  // namespace

Result<std::shared_ptr<Session>> OpenSession() {
  ASSIGN_OR_RETURN(runtime::Device * device, runtime::DefaultDevice());
  // Leaked: sessions hold loaded kernels, which must not be freed after the driver.
  static auto* const mutex = new std::mutex;
  static auto* const sessions = new std::map<runtime::Device*, std::shared_ptr<Session>>;
  std::unique_lock lock(*mutex);
  std::shared_ptr<Session>& session = (*sessions)[device];
  if (session != nullptr) return session;
  session = std::make_shared<DeviceSession>(device->target(), device);
  std::shared_ptr<Session> opened = session;
  // Without the lock: the line may go to a client's callback, which may call us.
  lock.unlock();
  LOG(kInfo, "running on {} ({})", device->target().name, device->target().arch);
  return opened;
}

Result<std::shared_ptr<Session>> OpenSessionFor(const Target& target) {
  static auto* const mutex = new std::mutex;
  static auto* const sessions = new std::map<std::string, std::shared_ptr<Session>>;
  const std::lock_guard lock(*mutex);
  std::shared_ptr<Session>& session =
      (*sessions)[KeyOf(target) + GetEnv(Env::kTune) + GetEnv(Env::kWorkspaceLimit)];
  if (session == nullptr) session = NewSessionFor(target);
  return session;
}

std::shared_ptr<Session> NewSessionFor(const Target& target) {
  return std::make_shared<DeviceSession>(target, nullptr);
}

int64_t CudaRuntimeVersion() {
  const Result<const runtime::Nvrtc*> nvrtc = runtime::ProcessNvrtc();
  return nvrtc.ok() ? (*nvrtc)->major() * 1000 + (*nvrtc)->minor() * 10 : 0;
}

}  // namespace kiln::api
