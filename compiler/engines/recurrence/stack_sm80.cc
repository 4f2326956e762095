// recurrence_stack_sm80, recurrence_stack_sm80_tf32: recurrent layers of one direction as a
// wavefront in one launch.
//
// Takes: from sm_80 on, two or more layers one above the other (recurrence_stack.h) with what lies
// between them, and their gradients, without projections; f16 or bf16, or f32 rounded to TF32.
//
// How: each layer has its share of the multiprocessors, where it is as `recurrence_sm80`. Between
// two steps of its own states, while these are on their way, it multiplies what the layer below has
// made of a later step, scaled by dropout there; that has a copy for each step, so that nobody
// waits for those above. Skeleton: recurrence_stack_sm80.cuh.
//
// Wins: for small matrices and few sequences: inference of LSTM T 128 B 64 H 256 L 2 takes 327 us
// for 368 by layers (H200).
//
// Declines: where the models say that layers one after the other are faster, with both times; other
// types.
#include "compiler/engines/recurrence/stack_sm80.h"

#include <algorithm>
#include <utility>

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/recurrence/call.h"
#include "compiler/engines/recurrence/functions.h"
#include "compiler/engines/recurrence/plan.h"
#include "compiler/engines/recurrence/sm90_plan.h"
#include "compiler/kernel/recurrence_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "compiler/machine/machine.h"
#include "compiler/patterns/recurrence_stack.h"

namespace kiln::compiler {
namespace {

using tile::Block;
using tile::Call;

constexpr KnobRow kKnobs[] = {
    {.name = "units", .cudnn_type = kKnobTileM, .domain = kRecurrenceUnits},
    {.name = "sequences", .cudnn_type = kKnobTileN, .domain = kRecurrenceColumns},
    {.name = "exchange", .cudnn_type = kKnobKernelConfig, .domain = kRecurrenceExchanges},
};
enum Scratch { kExchange, kCounters, kUp };

struct Problem {
  RecurrenceStack stack;
  RecurrenceShape shape;
};

RecurrenceShape OfOneStage(RecurrenceShape shape) {
  shape.directions = shape.stages = 1;
  return shape;
}

// ---- the model of layers one after the other

// The product of all steps between two layers, whose results a loop reads again.
double LinkSeconds(const RecurrenceShape& shape, const Target& target) {
  constexpr double kPrologueCycles = 1700, kOfRate = 0.7;
  const Machine machine = MachineOf(target);
  const auto rows = static_cast<double>(shape.steps * shape.batch),
             units = static_cast<double>(shape.hidden),
             gates = static_cast<double>(shape.blocks.gates) * units;
  const double products = rows * units * gates, rate = kOfRate *
                                                       machine.mma.Of(SizeOf(shape.type)) *
                                                       machine.clock * machine.multiprocessors;
  const double bytes = rows * (shape.is_grad ? units * SizeOf(shape.type) : gates * 4);
  return machine.StartSeconds() + machine.Seconds(kPrologueCycles) +
         std::max(products / rate, bytes / machine.memory);
}

double SecondsApart(const RecurrenceShape& stack, const Target& target) {
  const RecurrenceShape shape = OfOneStage(stack);
  double least = kNoSeconds;
  for (const RecurrenceSplit& split :
       RecurrenceSplits(shape, target, 0, RecurrenceUnits::kTensorCores)) {
    const auto plan = RecurrencePlanOf(shape, target, split, RecurrenceUnits::kTensorCores);
    if (plan.ok()) least = std::min(least, RecurrenceSeconds(*plan, target));
  }
  if (RunsOnWgmma(target).ok()) {
    for (const RecurrenceRingSplit& split : RecurrenceRingSplits(shape, target)) {
      const auto plan = RecurrenceRingPlanOf(shape, target, split);
      if (plan.ok()) least = std::min(least, RecurrenceRingSeconds(*plan, target));
    }
  }
  const auto stages = static_cast<double>(stack.stages);
  return stages * least + (stages - 1) * LinkSeconds(shape, target);
}

// ---- the kernels

bool Scales(const RecurrenceStack& stack) {
  return std::ranges::any_of(
      stack.links, [](const RecurrenceStack::Link& link) { return link.scale != graph::kAbsent; });
}

void AddLoop(const Group& group, const Target& target, const Problem& problem,
             const RecurrencePlan& p, Lowered& lowered) {
  const RecurrenceShape& shape = p.shape;
  KernelBuilder b(group, target,
                  fmt::format("recurrence_stack_sm80: {} of {} layers of {}, {} sequences and {} "
                              "units a block",
                              shape.is_grad ? "the gradients" : "steps", shape.stages,
                              graph::Text(shape.attrs.cell), p.columns, p.of_units().units),
                  IndexType(group.graph));
  for (const char* reserved : {"bx", "shape", "length", "weight", "before", "fixed", "read",
                               "store", "after", "below", "below_fixed", "scale"})
    b.Name(reserved);
  const std::string memory = b.Name("memory"), exchange = b.Scratch(kExchange, shape.type, false),
                    counters = b.Scratch(kCounters, DType::kI32, false),
                    up = b.Scratch(kUp, shape.type, false);
  Call call{
      .skeleton = "recurrence_stack_sm80", .maps = {}, .buffers = {memory, exchange, counters, up}};
  AddRecurrenceConfig(b, p, call);
  call.config.push_back({recurrence::kScales, Scales(problem.stack) ? 1 : 0});
  call.config.push_back({recurrence::kFetches, p.products[1].fetched_registers() > 0 ? 1 : 0});
  AddRecurrenceProduct(p.products[1], &ProductMember::below, call);
  AddRecurrenceNumbers(b, shape,
                       {.depth = p.of_units().depth,
                        .pitch = p.exchange_pitch(),
                        .parts = p.parts,
                        .groups = p.groups,
                        .first_groups = p.first_groups},
                       call);
  AddShapeMember(b, call, recurrence::below_depth, p.products[1].depth);
  AddShapeMember(b, call, recurrence::below_pitch, p.products[1].pitch());
  AddShapeMember(b, call, recurrence::ask_every, p.ask_every());
  RecurrenceFunctions(b, shape, &problem.stack).Add(call);
  Block shared;
  shared.push_back({tile::Alloc{memory, DType::kF32, tile::Space::kShared, p.shared_bytes() / 4}});
  Lowered loop;
  b.Finish(CallOfBlocks(b, p.blocks(), std::move(call), std::move(shared)), {p.blocks(), 1, 1},
           p.threads(), loop, 1);
  loop.kernels.back().cooperative = true;
  if (p.clustered) loop.kernels.back().cluster = static_cast<int>(p.parts);
  Append(lowered, std::move(loop));
}

// ---- the engines' rows

struct StackPlan {
  static constexpr auto kUnits = RecurrenceUnits::kTensorCores;

  const Group& group;
  const Target& target;
  Problem problem;
  RecurrencePlan best;  // without wishes

  Result<RecurrencePlan> With(std::span<const int> knobs) const {
    if (std::ranges::all_of(knobs, [](int value) { return value == 0; })) return best;
    return BestRecurrencePlan(problem.shape, target, {knobs[0], knobs[1], knobs[2]}, kUnits);
  }

  std::vector<std::vector<int>> Choices() const {
    std::vector<std::vector<int>> all = {{0, 0, 0}};
    for (const RecurrenceSplit& split : RecurrenceSplits(problem.shape, target, 0, kUnits))
      all.push_back({split.units, split.columns, 0});
    return all;
  }
  Estimate EstimateOf(std::span<const int> knobs) const {
    const auto plan = With(knobs);
    if (!plan.ok()) return {};
    return {.seconds = RecurrenceSeconds(*plan, target), .shared_bytes = plan->shared_bytes()};
  }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    ASSIGN_OR_RETURN(const RecurrencePlan plan, With(knobs));
    Lowered lowered;
    if (plan.numbered)
      AddRecurrenceZeroes(group, target,
                          "recurrence: states and their numbers before the first step", kExchange,
                          plan.exchanged() * plan.element_bytes() / 4, lowered);
    AddRecurrenceZeroes(group, target, "recurrence: counters of the groups", kCounters,
                        plan.counters(), lowered);
    AddLoop(group, target, problem, plan, lowered);
    lowered.scratch_bytes = {plan.exchanged() * plan.element_bytes(), plan.counters() * 4,
                             std::max<int64_t>(plan.sent_up() * plan.element_bytes(), 16)};
    return lowered;
  }
};

template <bool rounds>
Result<Problem> ProblemOf(const Group& group, const Target& target) {
  ASSIGN_OR_RETURN(RecurrenceStack stack, RecurrenceStackOf(group));
  RETURN_IF_ERROR(RunsOnMma(target));
  RETURN_IF_ERROR(RunsBlocksTogether(target));
  RecurrenceShape shape = RecurrenceShapeOf(group);
  shape.node = &group.graph.nodes[static_cast<size_t>(stack.stages.front())];
  shape.stages = shape.directions = static_cast<int64_t>(stack.stages.size());
  const DType r = group.graph[shape.node->inputs[1]].dtype;
  const bool is_half = shape.type == DType::kF16 || shape.type == DType::kBF16;
  if (r != shape.type || (rounds ? shape.type != DType::kF32 : !is_half))
    return Status::Error(
        Code::kUnsupportedDataType, "it multiplies {}, matrices are {} and states {}",
        rounds ? "f32 as TF32" : "f16 and bf16", Info(r).text, Info(shape.type).text);
  return Problem{.stack = std::move(stack), .shape = shape};
}

template <bool rounds>
Result<StackPlan> PlanOf(const Group& group, const Target& target) {
  ASSIGN_OR_RETURN(Problem problem, ProblemOf<rounds>(group, target));
  ASSIGN_OR_RETURN(RecurrencePlan best,
                   BestRecurrencePlan(problem.shape, target, {0, 0, 0}, StackPlan::kUnits));
  const double together = RecurrenceSeconds(best, target),
               apart = SecondsApart(problem.shape, target);
  if (together < apart) return StackPlan{group, target, std::move(problem), std::move(best)};
  return Status::Error(Code::kUnsupportedShape,
                       "{} layers at once would take {:.0f} us, one after the other {:.0f}",
                       problem.shape.stages, together * 1e6, apart * 1e6);
}

constexpr int kTensorCore[] = {kNoteTensorCore};
constexpr int kRounding[] = {kNoteTensorCore, kNoteDownConvertInputs};

}  // namespace

const Engine kRecurrenceStackSm80Engine = EngineOf<PlanOf<false>>(
    {.name = "recurrence_stack_sm80", .version = 1, .knobs = kKnobs, .numerical = kTensorCore});
const Engine kRecurrenceStackSm80Tf32Engine = EngineOf<PlanOf<true>>(
    {.name = "recurrence_stack_sm80_tf32", .version = 1, .knobs = kKnobs, .numerical = kRounding});

}  // namespace kiln::compiler
