// recurrence: loops over time of recurrent layers and their gradients, for every cell, type and
// device.
//
// Takes: every group that is one recurrence or its gradient.
//
// How: a launch a layer. A block has a direction and a few sequences, makes all units of them and
// takes all steps, between barriers of its own; weights are staged once so that neighbouring units
// lie side by side, and read at every step. Blocks never wait for one another, and no sequence
// depends on its neighbours.
//
// Wins: where no persistent engine takes the layer: f64, the CPU, GPUs before sm_80,
// KILN_LAUNCH=minimal. Each block reads all recurrent weights at every step, which costs
// milliseconds a step for large layers.
//
// Declines: groups of several recurrences, and other groups.
#include "compiler/engines/recurrence/engine.h"

#include <algorithm>

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/recurrence/call.h"
#include "compiler/engines/recurrence/loop.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

constexpr int kRowsDomain[] = {4, 1, 2, 8};
constexpr int kThreadsDomain[] = {256, 32, 64, 128, 512, 1024};
constexpr KnobRow kKnobs[] = {
    {.name = "rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
    {.name = "threads", .cudnn_type = kKnobBlockSize, .domain = kThreadsDomain},
};
enum { kRows, kThreads };

struct RecurrenceEnginePlan {
  const Group& group;
  const Target& target;
  Machine machine;
  RecurrenceShape shape;

  std::vector<std::vector<int>> Choices() const;
  double Seconds(std::span<const int> knobs) const;
  Estimate EstimateOf(std::span<const int> knobs) const { return {.seconds = Seconds(knobs)}; }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    const RecurrenceKnobs k{.rows = knobs[kRows],
                            .threads = target.is_cuda() ? knobs[kThreads] : 1};
    return shape.is_grad ? LowerRecurrenceGrad(group, target, k)
                         : LowerRecurrence(group, target, k);
  }
};

// A block takes its steps one after the other: it reads its direction's weights from the L2 cache
// and multiplies them for each of its rows. Blocks beyond what runs at a time wait.
double RecurrenceEnginePlan::Seconds(std::span<const int> knobs) const {
  const double weights =
      static_cast<double>(shape.blocks.gates * shape.hidden * shape.projected +
                          (shape.is_projected ? shape.hidden * shape.projected : 0));
  const double blocks = static_cast<double>(CeilDiv(shape.batch, knobs[kRows]) * shape.directions);
  const double rounds = std::max(1.0, blocks / std::max(1, target.multiprocessors));
  if (!target.is_cuda()) {
    constexpr double kShareOfFma = 1.0 / 12, kUnitCycles = 150;
    // Few rows read the weights again and again, more do not stay in registers.
    const double of_rows = knobs[kRows] + (knobs[kRows] == 8 ? 8 : 1);
    const double step = of_rows * weights / (kShareOfFma * machine.fma) +
                        knobs[kRows] * static_cast<double>(shape.hidden) * kUnitCycles;
    return static_cast<double>(shape.steps) * rounds * machine.Seconds(step);
  }
  // A few blocks get more of the L2 cache than their share; FMA units wait for shared memory.
  constexpr double kShareOfCache = 1.25, kShareOfFma = 0.5515, kStepCycles = 3400;
  const double busy =
      std::min(1.0, static_cast<double>(std::max(shape.hidden, int64_t{1})) / knobs[kThreads]);
  const double reading = weights * SizeOf(shape.type) / (kShareOfCache * machine.l2_bytes);
  const double multiplying = weights * knobs[kRows] / (kShareOfFma * machine.fma * busy) *
                             (knobs[kThreads] < 256 ? 256.0 / knobs[kThreads] : 1.0);
  return static_cast<double>(shape.steps) * rounds *
         machine.Seconds(kStepCycles + std::max(reading, multiplying));
}

// Threads for the units, and rows by the number of sequences.
std::vector<std::vector<int>> RecurrenceEnginePlan::Choices() const {
  std::vector<std::vector<int>> all;
  for (const int rows : {4, 2, 1, 8}) {
    if (rows > 1 && rows / 2 >= shape.batch) continue;
    for (const int threads : kThreadsDomain) {
      const bool is_wasteful = threads > 32 && threads / 2 >= shape.hidden;
      if ((!target.is_cuda() && threads != kThreadsDomain[0]) || (target.is_cuda() && is_wasteful))
        continue;
      all.push_back({rows, threads});
    }
  }
  return all;
}

Result<RecurrenceEnginePlan> PlanOf(const Group& group, const Target& target) {
  RETURN_IF_ERROR(HasRecurrence(group));
  return RecurrenceEnginePlan{group, target, MachineOf(target), RecurrenceShapeOf(group)};
}

}  // namespace

const Engine kRecurrenceEngine =
    EngineOf<PlanOf>({.name = "recurrence", .version = 2, .knobs = kKnobs});

}  // namespace kiln::compiler
