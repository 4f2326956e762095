// EngineOf<PlanOf>(facts): the row of an engine, from its facts and the function that plans a group
// for it or declines it in a sentence:
//
//   Result<P> PlanOf(const Group& group, const Target& target)
//
// P is the engine's plan, all that it finds out about a group for its configurations together. P
// may keep references to group and target, is moved once, and has
//
//   Choices()          std::vector<std::vector<int>>: knobs worth asking the model about, the
//                      engine's defaults for the group first; all legal
//   EstimateOf(knobs)  Estimate: modelled seconds, kNoSeconds where the knobs make no kernel, and
//                      the shared memory of a block
//   Lower(knobs)       Result<Lowered>: kernels and launches, or why the knobs make none
//
// and in the place of Choices, where the engine prefers some of them or knows of all at once,
//
//   Proposals()        std::vector<Proposal>: the choices with their estimates and preferences
//
// A group is planned once to be ranked: what does not follow from knobs belongs into PlanOf, since
// an engine is asked for dozens of estimates of a plan.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "compiler/engines/engine.h"
#include "compiler/engines/knob_types.h"

namespace kiln::compiler {

// The facts of a row; behind `numerical` what most engines have not.
struct EngineFacts {
  const char* name;
  int version;
  std::span<const KnobRow> knobs;
  std::span<const int> numerical = {};  // notes
  decltype(Engine::any_order) any_order = nullptr;
};

template <class P>
class PlanOfEngine final : public EnginePlan {
 public:
  explicit PlanOfEngine(P plan) : plan_(std::move(plan)) {}

  std::vector<Proposal> Proposals() const override {
    if constexpr (requires { plan_.Proposals(); }) {
      return plan_.Proposals();
    } else {
      std::vector<Proposal> all;
      std::vector<std::vector<int>> choices = plan_.Choices();
      all.reserve(choices.size());
      for (std::vector<int>& knobs : choices) {
        const Estimate of = plan_.EstimateOf(knobs);
        all.push_back(
            {.knobs = std::move(knobs), .seconds = of.seconds, .shared_bytes = of.shared_bytes});
      }
      return all;
    }
  }
  Estimate EstimateOf(std::span<const int> knobs) const override { return plan_.EstimateOf(knobs); }
  Result<Lowered> Lower(std::span<const int> knobs) const override { return plan_.Lower(knobs); }

 private:
  const P plan_;
};

template <class P>
PlanResult AsEnginePlan(Result<P> plan) {
  if (!plan.ok()) return std::move(plan).status();
  return PlanResult(std::make_unique<const PlanOfEngine<P>>(*std::move(plan)));
}

inline constexpr int kBehaviorOfEngines[] = {kNoteRuntimeCompilation};

template <auto kPlanOf>
constexpr Engine EngineOf(const EngineFacts& facts) {
  return {.name = facts.name,
          .version = facts.version,
          .knobs = facts.knobs,
          .notes = {.numerical = facts.numerical, .behavioral = kBehaviorOfEngines},
          .plan = [](const Group& group,
                     const Target& target) { return AsEnginePlan(kPlanOf(group, target)); },
          .any_order = facts.any_order};
}

}  // namespace kiln::compiler
