// AttentionEngine<Family>::Row(): the row of an engine of attention or of its gradients, from what
// distinguishes it:
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

#include "compiler/engines/engine.h"
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
    return {.name = Family::kName,
            .version = Family::kVersion,
            .knobs = Family::kKnobs,
            .notes = {.numerical = Numerical(), .behavioral = kBehavior},
            .supports = Supports,
            .cost = Cost,
            .lower = Lower,
            .shared_bytes = SharedBytes,
            .propose = Propose,
            .any_order = Family::kAnyOrder};
  }

 private:
  using Plan = typename Family::Plan;

  static constexpr int kBehavior[] = {kNoteRuntimeCompilation};
  static constexpr int kNumerical[] = {kNoteTensorCore};
  static constexpr int kNumericalAnyOrder[] = {kNoteTensorCore, kNoteNondeterministic};
  static constexpr int kNumericalRounded[] = {kNoteTensorCore, kNoteDownConvertInputs};
  static constexpr std::span<const int> Numerical() {
    if (Family::kAnyOrder != nullptr) return kNumericalAnyOrder;
    if (Family::kArithmetic == AttentionArithmetic::kTf32) return kNumericalRounded;
    return kNumerical;
  }

  static std::vector<int> Defaults() {
    std::vector<int> values;
    for (const KnobRow& row : Family::kKnobs) values.push_back(row.domain.front());
    return values;
  }
  static Result<Plan> PlanOf(const Group& group, const Target& target, std::span<const int> knobs) {
    ASSIGN_OR_RETURN(Plan plan, Family::PlanOf(group));
    RETURN_IF_ERROR(Family::TakeTile(plan, target, knobs));
    return plan;
  }
  static double Seconds(const Plan& plan, const Target& target, std::span<const int> knobs) {
    return Family::Seconds(plan, target, std::ranges::equal(knobs, Defaults()));
  }

  static Status Supports(const Group& group, const Target& target) {
    if (group.kind != GroupKind::kAttention)
      return Status::Error(Code::kUnsupportedGraphPattern, "the group is no attention");
    RETURN_IF_ERROR(Family::kRunsOn(target));
    ASSIGN_OR_RETURN(const Plan plan, PlanOf(group, target, Defaults()));
    const int64_t bytes = Family::SharedBytes(plan);
    if (bytes > target.shared_limit())
      return Status::Error(Code::kSharedMemoryInsufficient,
                           "rows of {} take {} bytes of shared memory a block, {} has {}",
                           plan.depth, bytes, target.arch, target.shared_limit());
    return {};
  }
  static double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
    const auto plan = PlanOf(group, target, knobs);
    return plan.ok() ? Seconds(*plan, target, knobs) : kNoSeconds;
  }
  static int64_t SharedBytes(const Group& group, const Target& target, std::span<const int> knobs) {
    const auto plan = PlanOf(group, target, knobs);
    return plan.ok() ? Family::SharedBytes(*plan) : 0;
  }
  static Result<Lowered> Lower(const Group& group, const Target& target,
                               std::span<const int> knobs) {
    ASSIGN_OR_RETURN(Plan plan, PlanOf(group, target, knobs));
    Lowered lowered;
    Family::Lower(group, target, std::move(plan), lowered);
    return lowered;
  }

  // Proposes the defaults first, then the knobs that have registers and shared memory for the
  // group, which is looked at once.
  static std::vector<Proposal> Propose(const Group& group, const Target& target) {
    std::vector<Proposal> all;
    const Result<Plan> found = Family::PlanOf(group);
    if (!found.ok()) return all;
    const auto add = [&](std::vector<int> knobs) {
      Plan plan = *found;
      if (!Family::TakeTile(plan, target, knobs).ok()) return;
      const int64_t bytes = Family::SharedBytes(plan);
      if (!all.empty() && bytes > target.shared_limit()) return;
      const double seconds = Seconds(plan, target, knobs);
      all.push_back({.knobs = std::move(knobs), .seconds = seconds, .shared_bytes = bytes});
    };
    add(Defaults());
    for (std::vector<int>& knobs : Family::Others(*found)) add(std::move(knobs));
    return all;
  }
};

}  // namespace kiln::compiler
