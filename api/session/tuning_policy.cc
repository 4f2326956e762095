#include "api/session/tuning_policy.h"

#include "api/session/knobs.h"
#include "compiler/engines/registry.h"
#include "ir/base/log.h"
#include "runtime/cuda/cuda_compiler.h"
#include "runtime/cuda/l2_flush.h"

namespace kiln::api {

using compiler::Candidate;
using compiler::EngineChoice;
using compiler::Group;
using compiler::Groups;
using compiler::Inputs;

static_assert(BudgetRules().small_problem == kSmallProblem);

TuningPolicy::TuningPolicy(const Target& target, runtime::Device* device)
    : target_(target),
      device_(device),
      tuner_(device == nullptr ? nullptr : std::make_unique<PlanTuner>(*device, records_)) {}

std::vector<Candidate> TuningPolicy::Rank(const Group& group, RankMode mode, Inputs inputs) const {
  const bool by_records = mode_ == TuneMode::kHeuristic ? mode == RankMode::kB : !is_off();
  return by_records ? records_.Rank(group, target_, inputs)
                    : compiler::RankCandidates(group, target_, inputs);
}

TuningPolicy::Advice TuningPolicy::AdviceForPlans() const {
  if (is_off() || mode_ == TuneMode::kHeuristic) return {};
  return {.advisor = [this](const Group& group) { return records_.Best(group, target_); },
          .epoch = records_.epoch()};
}

bool TuningPolicy::MeasuresPlans() const {
  return device_ != nullptr && (mode_ == TuneMode::kOnMiss || mode_ == TuneMode::kRetune);
}

Status TuningPolicy::TuneForPlan(const graph::Graph& graph, void* stream, EngineChoice& choice) {
  const Inputs inputs = InputsOf(choice);
  ASSIGN_OR_RETURN(const Groups groups, compiler::GroupsOf(graph, target_, inputs));
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

bool TuningPolicy::IsModelsChoice(const Group& group, Inputs inputs,
                                  const EngineChoice& choice) const {
  const std::vector<Candidate> ranked = compiler::RankCandidates(group, target_, inputs);
  if (ranked.empty() || choice.engine != ranked.front().engine) return false;
  const auto knobs = compiler::KnobsWith(EngineAt(choice.engine), choice.knobs);
  return knobs.ok() && *knobs == ranked.front().knobs;
}

bool TuningPolicy::Explore(const graph::Graph& graph, const EngineConfig& config, void* stream) {
  if (tuner_ == nullptr || is_off()) return false;
  const int64_t before = records_.epoch();
  const Status explored = Find(graph, config, stream);
  if (!explored.ok()) LOG(kWarn, "tuning: {}", explored.message());
  return records_.epoch() != before;
}

Status TuningPolicy::Find(const graph::Graph& graph, const EngineConfig& config, void* stream) {
  ASSIGN_OR_RETURN(const EngineChoice choice, ChoiceOf(config));
  const Inputs inputs = InputsOf(choice);
  ASSIGN_OR_RETURN(const Groups groups, compiler::GroupsOf(graph, target_, inputs));
  if (!target_.is_cuda()) {
    tuner_->Find(groups.all, inputs, mode_, stream, 0);  // where compiling takes milliseconds
    return {};
  }
  device_->Prepare(runtime::L2Flush::Source());  // while the plans' kernels are compiled
  tuner_->Find(groups.all, inputs, mode_, stream,
               runtime::ProcessCudaCompiler().seconds_per_kernel());
  return {};
}

}  // namespace kiln::api
