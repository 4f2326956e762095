#include "tests/numerics/engine_runs.h"

#include <algorithm>
#include <array>
#include <random>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "runtime/red_zones.h"
#include "tests/support/case_graph.h"

namespace kiln::testing {
namespace {

using compiler::Engine;
using runtime::GuardedBuffer;

// For each knob, the candidates with its lowest and with its highest value.
std::vector<size_t> Extremes(const std::vector<std::vector<int>>& all) {
  std::vector<size_t> extremes;
  const size_t knobs = all.empty() ? 0 : all[0].size();
  for (size_t k = 0; k < knobs; ++k) {
    const auto value = [k](const std::vector<int>& c) { return c[k]; };
    extremes.push_back(static_cast<size_t>(std::ranges::min_element(all, {}, value) - all.begin()));
    extremes.push_back(static_cast<size_t>(std::ranges::max_element(all, {}, value) - all.begin()));
  }
  return extremes;
}

}  // namespace

std::vector<std::vector<int>> SampleKnobs(const Engine& engine, const compiler::Group& group,
                                          const Target& target, uint64_t seed, size_t number,
                                          Sample sample) {
  std::vector<std::vector<int>> all;
  if (const auto plan = engine.plan(group, target); plan.ok())
    for (compiler::Proposal& p : compiler::Propose(engine, **plan))
      if (compiler::FitsShared(engine, group, target, p.knobs, p.shared_bytes).ok())
        all.push_back(std::move(p.knobs));
  std::vector<size_t> chosen;
  const auto choose = [&](size_t at) {
    if (std::ranges::find(chosen, at) == chosen.end()) chosen.push_back(at);
  };
  if (!all.empty()) choose(0);
  const std::vector<size_t> extremes = Extremes(all);
  for (int i = 0; i < sample.extremes && !extremes.empty(); ++i)
    choose(extremes[(number * static_cast<size_t>(sample.extremes) + static_cast<size_t>(i)) %
                    extremes.size()]);
  std::mt19937_64 random(seed ^ (number * 0x9e3779b97f4a7c15));
  for (int i = 0; i < sample.random && !all.empty(); ++i) choose(random() % all.size());
  std::vector<std::vector<int>> knobs;
  for (const size_t at : chosen) knobs.push_back(all[at]);
  return knobs;
}

std::string EngineRun::Name() const {
  const Engine& e = compiler::Engines()[static_cast<size_t>(engine)];
  return fmt::format("{} {}", e.name, compiler::KnobText(e, knobs));
}

compiler::EngineChoice ChoiceOf(const EngineRun& run) {
  const Engine& engine = compiler::Engines()[static_cast<size_t>(run.engine)];
  compiler::EngineChoice choice{.engine = run.engine, .knobs = {}};
  for (size_t k = 0; k < run.knobs.size(); ++k)
    choice.knobs.push_back({engine.knobs[k].name, run.knobs[k]});
  return choice;
}

// ---- memory

// Device copies of a case's tensors with their guards, scalars on the host, and a poisoned
// workspace between red zones.
class CaseRuns::Memory {
 public:
  Memory(runtime::Device& device, const Case& c) : device_(device), case_(c) {}
  ~Memory() {
    for (void* buffer : buffers_)
      if (buffer != nullptr) device_.Free(buffer);
  }

  Status Fill(const CaseData& data, int64_t workspace_bytes) {
    scalars_.resize(case_.tensors.size());
    buffers_.resize(case_.tensors.size(), nullptr);
    for (size_t i = 0; i < case_.tensors.size(); ++i) {
      const CaseTensor& tensor = case_.tensors[i];
      if (tensor.by_value) oracle::Encode(tensor.dtype, *tensor.by_value, scalars_[i].data());
      if (tensor.by_value || tensor.is_virtual) continue;
      const auto& bytes = data.images[i].bytes;
      ASSIGN_OR_RETURN(buffers_[i], device_.Allocate(static_cast<int64_t>(bytes.size())));
      RETURN_IF_ERROR(
          device_.CopyIn(buffers_[i], bytes.data(), static_cast<int64_t>(bytes.size())));
    }
    if (workspace_bytes == 0) return {};
    ASSIGN_OR_RETURN(GuardedBuffer memory, GuardedBuffer::Make(device_, workspace_bytes));
    workspace_ = std::make_unique<GuardedBuffer>(std::move(memory));
    const std::vector<uint8_t> poison(static_cast<size_t>(workspace_bytes), 0xff);
    return device_.CopyIn(workspace_->get(), poison.data(), workspace_bytes);
  }

  Result<std::vector<void*>> PointersFor(const Program& program) {
    std::vector<void*> pointers;
    for (const ProgramTensor& wanted : program.tensors) {
      const auto at = std::ranges::find(case_.tensors, wanted.uid, &CaseTensor::uid);
      if (at == case_.tensors.end())
        return Status::Error(Code::kInternal, "the case has no tensor {}", wanted.uid);
      const auto i = static_cast<size_t>(at - case_.tensors.begin());
      void* scalar = scalars_[i].data();
      pointers.push_back(at->by_value ? scalar
                                      : static_cast<uint8_t*>(buffers_[i]) + oracle::Image::kGuard);
    }
    return pointers;
  }

  void* workspace() const { return workspace_ ? workspace_->get() : nullptr; }

  Status Download(CaseData& data) const {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      auto& bytes = data.images[i].bytes;
      if (buffers_[i] != nullptr)
        RETURN_IF_ERROR(
            device_.CopyOut(bytes.data(), buffers_[i], static_cast<int64_t>(bytes.size())));
    }
    return workspace_ ? workspace_->CheckZones("the workspace") : Status();
  }

 private:
  runtime::Device& device_;
  const Case& case_;
  std::vector<void*> buffers_;
  std::vector<std::array<uint8_t, 8>> scalars_;
  std::unique_ptr<GuardedBuffer> workspace_;
};

// ---- runs

CaseRuns::CaseRuns(runtime::Device& device, const Case& c, uint64_t seed, size_t number,
                   Sample sample)
    : device_(device), case_(c), before_(MakeData(c, seed)) {
  Result<graph::Graph> graph = ToGraph(c);
  if (!graph.ok()) {
    error_ = graph.status().message();
    return;
  }
  graph_ = *std::move(graph);
  const auto group = compiler::LeadingGroupOf(graph_, device.target());
  if (!group.ok() || !group->has_value()) {
    error_ = group.ok() ? "nothing is computed" : group.status().message();
    return;
  }
  if (c.file == "contract.txt" && (*group)->kind != compiler::GroupKind::kContract)
    error_ = "choices of engines would not speak of its contraction";
  else
    List(**group, seed, number, sample);
}

namespace {

bool HasNan(const Case& c) {
  constexpr std::array kNoNumbers = {"nan", "inf", "special"};
  return std::ranges::any_of(c.tensors, [&](const CaseTensor& t) {
    return std::ranges::find(kNoNumbers, t.fill) != kNoNumbers.end();
  });
}

}  // namespace

void CaseRuns::List(const compiler::Group& group, uint64_t seed, size_t number, Sample sample) {
  const auto engines = compiler::Engines();
  for (size_t e = 0; e < engines.size(); ++e) {
    compiler::Group own = group;
    if (compiler::InputsOf(engines[e]) == compiler::Inputs::kWinograd) {
      // Winograd's products spread what is no number over all results of its tile.
      const auto groups = compiler::LeadingGroupOf(
          graph_, device_.target(), compiler::Inputs::kWinograd, static_cast<int>(e));
      if (HasNan(case_) || !groups.ok() || !groups->has_value()) continue;
      own = **groups;
    }
    if (!compiler::Supports(engines[e], own, device_.target()).ok()) continue;
    rounds_ = rounds_ || compiler::OnlyRoundsInputs(engines[e]);
    for (std::vector<int>& knobs :
         SampleKnobs(engines[e], own, device_.target(), seed + e, number, sample))
      runs_.push_back({.engine = static_cast<int>(e), .knobs = std::move(knobs)});
  }
}

void CaseRuns::Compile(EngineRun& run) const {
  Result<compiler::CompiledPlan> plan = compiler::Compile(graph_, device_.target(), ChoiceOf(run));
  if (!plan.ok()) {
    run.failure = plan.status().message();
    return;
  }
  auto executable = runtime::Executable::Create(device_, std::move(plan->program));
  if (!executable.ok())
    run.failure = executable.status().message();
  else
    run.executable = *std::move(executable);
}

void CaseRuns::Evaluate() {
  exact_ = testing::Evaluate(case_, before_);
  if (rounds_)
    rounded_ = testing::Evaluate(case_, before_, {.contraction_operand_roundoff = kTf32Roundoff});
}

Status CaseRuns::Execute(const EngineRun& run, CaseData& after) const {
  Memory memory(device_, case_);
  RETURN_IF_ERROR(memory.Fill(before_, run.executable->program().workspace_bytes));
  ASSIGN_OR_RETURN(const std::vector<void*> pointers,
                   memory.PointersFor(run.executable->program()));
  RETURN_IF_ERROR(run.executable->Execute(pointers, memory.workspace(), nullptr));
  RETURN_IF_ERROR(device_.Synchronize(nullptr));
  return memory.Download(after);
}

bool CaseRuns::Run(EngineRun& run) {
  if (!run.failure.empty() || run.executable == nullptr) return true;
  CaseData after = before_;
  const Status status = Execute(run, after);
  run.failure = status.ok() ? Check(run, after) : status.message();
  run.executable.reset();
  return status.ok() || device_.Synchronize(nullptr).ok();
}

std::string CaseRuns::Check(const EngineRun& run, const CaseData& after) const {
  const Engine& engine = compiler::Engines()[static_cast<size_t>(run.engine)];
  return CheckRun(case_, before_, after, compiler::OnlyRoundsInputs(engine) ? rounded_ : exact_,
                  tolerance_);
}

}  // namespace kiln::testing
