// AttentionEngine<Family>::Row(): the row of an engine of attention or of its gradients
// (engine_of.h), from what distinguishes it:
//
//   kName, kVersion, kKnobs, kAnyOrder          as in Engine; null: sums have an order
//   kArithmetic                                 of its products
//   kRunsOn(target)                             ok, or why its kernels do not run there
//   struct Plan
//   PlanOf(group) -> Result<Plan>               without a tile; or why it takes no such group
//   TakeTile(plan, target, knobs) -> Status     or why there is none
//   SharedBytes(plan)                           of a block
//   Seconds(plan, target, is_default)           modelled; of the knobs' defaults, or of others
//   Others(plan)                                knobs worth considering beside the defaults
//   Lower(group, target, plan, lowered)
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {

// Operands of products: 16 (or 8) bits; f32 rounded to TF32; f32 as two TF32 numbers.
enum class AttentionArithmetic : uint8_t { k16, kTf32, k3xTf32 };

// Multiply-adds a cycle of a multiprocessor by mma.sync.
inline double ProductsPerCycle(const Target& target, AttentionArithmetic arithmetic) {
  const TensorRates mma = MachineOf(target).mma;
  if (arithmetic == AttentionArithmetic::k16) return mma.f16;
  return arithmetic == AttentionArithmetic::kTf32 ? mma.tf32 : mma.tf32 / 3;
}

template <class Family>
class AttentionEngine {
 public:
  static constexpr Engine Row() {
    return EngineOf<PlanOf>({.name = Family::kName,
                             .version = Family::kVersion,
                             .knobs = Family::kKnobs,
                             .numerical = Numerical(),
                             .any_order = Family::kAnyOrder});
  }

  // The defaults first, then those that have registers and shared memory for it.
  std::vector<Proposal> Proposals() const {
    std::vector<Proposal> all;
    const auto add = [&](std::vector<int> knobs, const Estimate& of) {
      all.push_back(
          {.knobs = std::move(knobs), .seconds = of.seconds, .shared_bytes = of.shared_bytes});
    };
    add(DefaultKnobs(Family::kKnobs), Of(first_, true));
    Plan plan = plan_;  // whose memory all tiles use, one after the other
    for (std::vector<int>& knobs : Family::Others(plan_)) {
      plan = plan_;
      if (!Family::TakeTile(plan, target_, knobs).ok()) continue;
      const Estimate of = Of(plan, IsDefault(knobs));
      if (of.shared_bytes <= target_.shared_limit()) add(std::move(knobs), of);
    }
    return all;
  }

  Estimate EstimateOf(std::span<const int> knobs) const {
    if (IsDefault(knobs)) return Of(first_, true);
    Plan plan = plan_;
    return Family::TakeTile(plan, target_, knobs).ok() ? Of(plan, false) : Estimate{};
  }

  Result<Lowered> Lower(std::span<const int> knobs) const {
    Plan plan = plan_;
    RETURN_IF_ERROR(Family::TakeTile(plan, target_, knobs));
    Lowered lowered;
    Family::Lower(group_, target_, std::move(plan), lowered);
    return lowered;
  }

 private:
  using Plan = typename Family::Plan;

  static constexpr int kNumerical[] = {kNoteTensorCore};
  static constexpr int kNumericalAnyOrder[] = {kNoteTensorCore, kNoteNondeterministic};
  static constexpr int kNumericalRounded[] = {kNoteTensorCore, kNoteDownConvertInputs};
  static constexpr std::span<const int> Numerical() {
    if (Family::kAnyOrder != nullptr) return kNumericalAnyOrder;
    if (Family::kArithmetic == AttentionArithmetic::kTf32) return kNumericalRounded;
    return kNumerical;
  }

  AttentionEngine(const Group& group, const Target& target, Plan plan, Plan first)
      : group_(group), target_(target), plan_(std::move(plan)), first_(std::move(first)) {}

  static Result<AttentionEngine> PlanOf(const Group& group, const Target& target) {
    if (group.kind != GroupKind::kAttention)
      return Status::Text(Code::kUnsupportedGraphPattern, "the group is no attention");
    RETURN_IF_ERROR(Family::kRunsOn(target));
    ASSIGN_OR_RETURN(Plan plan, Family::PlanOf(group));
    Plan first = plan;
    RETURN_IF_ERROR(Family::TakeTile(first, target, DefaultKnobs(Family::kKnobs)));
    const int64_t bytes = Family::SharedBytes(first);
    if (bytes > target.shared_limit())
      return Status::Error(Code::kSharedMemoryInsufficient,
                           "rows of {} take {} bytes of shared memory a block, {} has {}",
                           first.depth, bytes, target.arch, target.shared_limit());
    return AttentionEngine(group, target, std::move(plan), std::move(first));
  }

  static bool IsDefault(std::span<const int> knobs) {
    return std::ranges::equal(knobs, Family::kKnobs, {}, {},
                              [](const KnobRow& row) { return row.domain.front(); });
  }
  Estimate Of(const Plan& plan, bool is_default) const {
    return {.seconds = Family::Seconds(plan, target_, is_default),
            .shared_bytes = Family::SharedBytes(plan)};
  }

  const Group& group_;
  const Target& target_;
  Plan plan_, first_;  // without a tile, and with that of the knobs' defaults
};

}  // namespace kiln::compiler
