// ctc: the CTC loss and its gradient.
//
// Takes: every `ctc_loss`, on every device.
//
// How: five kernels (engine.h). A sample's paths forward and backward are a block's each, states in
// registers and the last two frames in shared memory (or all in global memory, and on the CPU);
// logarithms have an offset for each frame; then a warp for each frame adds the shares of a symbol
// in the order of labels.
//
// Wins: always, since no other engine takes such groups; cuDNN 9.19's faster algorithm takes 2.34
// times as long in the mean of five problems with labels on the device (H100).
//
// Declines: other groups.
#include "compiler/engines/ctc/engine.h"

#include "compiler/engines/ctc/kernels.h"
#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

// Bytes of each scratch buffer, in the order of CtcScratch; 16 where nobody reads it.
std::vector<int64_t> ScratchBytes(const CtcProblem& p) {
  static constexpr int64_t kNone = 16;
  const int64_t number = SizeOf(p.type), rows = p.frames * p.samples;
  const auto when = [](bool used, int64_t bytes) { return used ? std::max(bytes, kNone) : kNone; };
  const bool gradients = p.has_gradients();
  std::vector<int64_t> bytes(kCtcScratchBuffers, kNone);
  bytes[kCtcStarts] = when(true, p.samples * SizeOf(p.index));
  bytes[kCtcStates] = when(true, p.samples * 4);
  bytes[kCtcLinks] = when(gradients, p.samples * p.label * 8);
  bytes[kCtcSoftmax] = when(p.attrs.softmax, 2 * rows * number);
  bytes[kCtcPaths] = when(gradients, 2 * rows * p.states * number);
  bytes[kCtcOffsets] = when(gradients, 2 * rows * number);
  bytes[kCtcTotals] = when(gradients, 2 * p.samples * number);
  bytes[kCtcRing] = when(!CtcPathsAreShared(p), 4 * p.samples * p.states * number);
  return bytes;
}

// Launches, two passes over the probabilities, and a step of the recursion for each frame.
double SecondsOf(const Group& group, const Target& target) {
  constexpr double kShare = 0.73;      // of a copy's rate
  constexpr double kStepCycles = 255;  // of the recursion
  constexpr int kLaunches = 5;
  const Machine machine = MachineOf(target);
  const graph::Node& node = group.graph.nodes.back();
  const auto frames = static_cast<double>(group.graph[node.inputs[0]].dims[0]);
  return (kLaunches - 1) * machine.StartSeconds() + machine.Seconds(frames * kStepCycles) +
         StreamSeconds(machine, 2 * static_cast<double>(FloorBytes(group)), kShare);
}

struct CtcPlan {
  const Group& group;
  const Target& target;
  double seconds;

  std::vector<std::vector<int>> Choices() const { return {{}}; }
  Estimate EstimateOf(std::span<const int>) const { return {.seconds = seconds}; }
  Result<Lowered> Lower(std::span<const int>) const {
    const CtcProblem p(group, target);
    Lowered lowered;
    lowered.scratch_bytes = ScratchBytes(p);
    LowerCtcSamples(p, lowered);
    if (p.has_gradients() && p.label > 0) LowerCtcLinks(p, lowered);
    if (p.attrs.softmax) LowerCtcSoftmax(p, lowered);
    LowerCtcPaths(p, lowered);
    if (p.has_gradients()) LowerCtcGradient(p, lowered);
    return lowered;
  }
};

Result<CtcPlan> PlanOf(const Group& group, const Target& target) {
  const bool is_ctc = group.kind == GroupKind::kRecurrence &&
                      group.graph.nodes.back().op == graph::GraphOp::kCtcLoss;
  if (is_ctc) return CtcPlan{group, target, SecondsOf(group, target)};
  return Status::Text(Code::kUnsupportedGraphPattern, "the group is no CTC loss");
}

}  // namespace

const Engine kCtcEngine = EngineOf<PlanOf>({.name = "ctc", .version = 2, .knobs = {}});

}  // namespace kiln::compiler
