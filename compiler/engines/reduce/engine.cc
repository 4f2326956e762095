// reduce: groups around one or more reductions over the same dims.
//
// Takes: every such group, with any maps and views before and after, of any type, strides and
// device.
//
// How: a row or a column schedule, by where the reduced dims lie; one stage, or two with partial
// results in the workspace. The order of summation is fixed, so that results are the same each
// time. The kernels are reduction/reduce_gpu.cc and reduce_cpu.cc.
//
// Wins: where a chain of reductions is no `rows` or `columns` group, and on the CPU.
//
// Declines: a group whose anchor is no reduction.
#include "compiler/engines/reduce/engine.h"

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/reduction/reduce_plan.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

constexpr int kThreadsDomain[] = {256, 128, 512};
constexpr int kSplitsDomain[] = {0,  1,  2,  4,   8,
                                 16, 32, 64, 128, 256};  // 0: as many as fill the device
constexpr KnobRow kKnobs[] = {
    {.name = "threads", .cudnn_type = kKnobBlockSize, .domain = kThreadsDomain},
    {.name = "splits", .cudnn_type = kKnobSplitCols, .domain = kSplitsDomain},
};
enum { kThreads, kSplits };

struct ReduceEnginePlan {
  const Group& group;
  const Target& target;
  double seconds;

  std::vector<std::vector<int>> Choices() const { return NeighbouringKnobs(kKnobs); }
  Estimate EstimateOf(std::span<const int>) const { return {.seconds = seconds}; }
  // Nothing that is ranked follows from the group's stages, which are found here alone.
  Result<Lowered> Lower(std::span<const int> knobs) const {
    const ReducePlan plan = PlanReduce(group);
    const ReduceKnobs chosen{.threads = knobs[kThreads], .splits = knobs[kSplits]};
    return target.is_cuda() ? LowerReduceGpu(plan, target, chosen)
                            : LowerReduceCpu(plan, target, chosen);
  }
};

Result<ReduceEnginePlan> PlanOf(const Group& group, const Target& target) {
  constexpr double kShare = 0.93;  // of a copy's rate
  constexpr double kStarts = 1.5;  // of a kernel that moves data: threads add up what each has
  if (group.kind != GroupKind::kReduce)
    return Status::Text(Code::kUnsupportedGraphPattern, "the group has no reduction as its anchor");
  const Machine machine = MachineOf(target);
  const double seconds = kStarts * machine.StartSeconds() +
                         static_cast<double>(FloorBytes(group)) / (machine.memory * kShare);
  return ReduceEnginePlan{group, target, seconds};
}

}  // namespace

const Engine kReduceEngine = EngineOf<PlanOf>({.name = "reduce", .version = 5, .knobs = kKnobs});

}  // namespace kiln::compiler
