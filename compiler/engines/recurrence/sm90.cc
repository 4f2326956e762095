// recurrence_sm90, recurrence_sm90_tf32: loops over time on wgmma, for many sequences and for
// matrices that the chip does not hold.
//
// Takes: on sm_90, a recurrence or its gradient with f16 or bf16 states and matrices, or f32 ones
// rounded to TF32, without a projection.
//
// How: 64 or 128 sequences are the left operand of wgmma, the rows of a block's units the right
// one. States, and the part of the matrix that shared memory does not hold, lie in memory as they
// will in shared memory, so that one thread brings them by bulk copies through a ring, with no
// tensor map. A cluster's blocks share the depth of a product and add up each other's sums;
// clusters are no more than every board with these instructions has room for. A small kernel before
// sets the counters to 0. Skeleton: recurrence_sm90.cuh.
//
// Wins: for B 64 and more with large matrices: LSTM B 64 H 2048 forward 249.6 us for 20 steps where
// `recurrence_sm80` takes 336.4 (H100).
//
// Declines: other GPUs and types; projected states; more rows of the matrix a block than it has
// accumulators for; more blocks than run at a time.
#include "compiler/engines/recurrence/sm90.h"

#include <algorithm>
#include <utility>

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/recurrence/call.h"
#include "compiler/engines/recurrence/functions.h"
#include "compiler/engines/recurrence/sm90_plan.h"
#include "compiler/kernel/recurrence_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

using tile::Call;

constexpr KnobRow kKnobs[] = {
    {.name = "units", .cudnn_type = kKnobTileM, .domain = kRingUnits},
    {.name = "sequences", .cudnn_type = kKnobTileN, .domain = kRingColumns},
    {.name = "split", .cudnn_type = kKnobSplitKSlices, .domain = kRingSplits},
};

// Scratch memory.
enum { kExchange, kCounters, kStreamed };

int64_t TypeNumber(DType type) { return type == DType::kF16 ? 0 : type == DType::kBF16 ? 1 : 2; }

// Few are stored behind the arrival, for which nobody waits.
bool KeepsResults(const RecurrenceRingPlan& p) {
  constexpr int kMostElements = 4;
  return p.keeps_values && p.elements() <= kMostElements;
}

Call CallOf(KernelBuilder& b, const RecurrenceRingPlan& p) {
  const RecurrenceShape& shape = p.shape;
  Call call{
      .skeleton = "recurrence_sm90",
      .maps = {},
      .buffers = {b.Scratch(kExchange, shape.type, false), b.Scratch(kStreamed, shape.type, false),
                  b.Scratch(kCounters, DType::kI32, false)}};
  call.wgmma = {.columns = p.rows(), .type = shape.type, .right_type = shape.type};
  call.shared_bytes = p.shared_bytes();
  call.config = {
      {recurrence::kGradient, shape.is_grad ? 1 : 0},
      {recurrence::kCell, static_cast<int64_t>(shape.attrs.cell)},
      {recurrence::kClips, RecurrenceClips(shape)},
      {recurrence::kType, TypeNumber(shape.type)},
      {recurrence::kGates, p.gates},
      {recurrence::kValuesAreStates, RecurrenceValueType(b.graph(), shape) == shape.type ? 1 : 0},
      {recurrence::kProjected, 0},
      {recurrence::kUnits, p.units},
      {recurrence::kRows, p.rows()},
      {recurrence::kTiles, p.tiles()},
      {recurrence::kSplit, p.split},
      {recurrence::kChunks, p.chunks},
      {recurrence::kResident, p.resident},
      {recurrence::kStages, p.stages},
      {recurrence::kKeeps, KeepsResults(p)  ? 2
                           : p.keeps_values ? 1
                                            : 0}};
  AddRecurrenceNumbers(b, shape,
                       {.depth = p.depth,
                        .pitch = p.pitch(),
                        .parts = p.parts,
                        .groups = p.groups,
                        .first_groups = p.first_groups},
                       call);
  RecurrenceFunctions(b, shape).Add(call);
  return call;
}

void AddLoop(const Group& group, const Target& target, const RecurrenceRingPlan& p,
             Lowered& lowered) {
  const RecurrenceShape& shape = p.shape;
  KernelBuilder b(
      group, target,
      fmt::format("recurrence_sm90: {} of {}, {} sequences and {} units a cluster of "
                  "{}, of {} chunks a block {} in shared memory",
                  shape.is_grad ? "the gradient" : "steps", graph::Text(shape.attrs.cell),
                  p.columns, p.units, p.split, p.chunks, p.resident),
      IndexType(group.graph));
  for (const char* reserved :
       {"bx", "shape", "length", "weight", "before", "fixed", "read", "store", "after"})
    b.Name(reserved);
  Lowered loop;
  b.Finish(CallOfBlocks(b, p.blocks(), CallOf(b, p)), {p.blocks(), 1, 1},
           RecurrenceRingPlan::kThreads, loop, 1);
  loop.kernels.back().cooperative = true;
  loop.kernels.back().cluster = p.split;
  Append(lowered, std::move(loop));
}

template <bool rounds>
Status CheckTypes(const RecurrenceShape& shape, const Group& group, const Target& target) {
  RETURN_IF_ERROR(RunsBlocksTogether(target));
  RETURN_IF_ERROR(RunsOnWgmma(target));
  const DType r = group.graph[shape.node->inputs[1]].dtype;
  const bool is_half = shape.type == DType::kF16 || shape.type == DType::kBF16;
  if (r == shape.type && (rounds ? shape.type == DType::kF32 : is_half)) return {};
  return Status::Error(
      Code::kUnsupportedDataType, "it multiplies {}, matrices are {} and states {}",
      rounds ? "f32 as TF32" : "f16 and bf16", Info(r).text, Info(shape.type).text);
}

// The plan of the split that the model likes best among those with what `split` names; 0 names
// nothing.
Result<RecurrenceRingPlan> BestRingPlan(const RecurrenceShape& shape, const Target& target,
                                        const RecurrenceRingSplit& split) {
  if (split.units > 0 && split.columns > 0 && split.split > 0)
    return RecurrenceRingPlanOf(shape, target, split);
  for (const RecurrenceRingSplit& liked : RecurrenceRingSplits(shape, target))
    if ((split.units == 0 || liked.units == split.units) &&
        (split.columns == 0 || liked.columns == split.columns) &&
        (split.split == 0 || liked.split == split.split))
      return RecurrenceRingPlanOf(shape, target, liked);
  // The sentence of the largest blocks that it may have.
  return RecurrenceRingPlanOf(
      shape, target,
      {split.units == 0 ? 40 : split.units, split.columns == 0 ? 64 : split.columns,
       split.split == 0 ? 1 : split.split});
}

struct Sm90Plan {
  const Group& group;
  const Target& target;
  RecurrenceShape shape;
  RecurrenceRingPlan best;  // without wishes

  Result<RecurrenceRingPlan> With(std::span<const int> knobs) const {
    if (std::ranges::all_of(knobs, [](int value) { return value == 0; })) return best;
    return BestRingPlan(shape, target, {knobs[0], knobs[1], knobs[2]});
  }

  std::vector<std::vector<int>> Choices() const {
    std::vector<std::vector<int>> all = {{0, 0, 0}};
    for (const RecurrenceRingSplit& split : RecurrenceRingSplits(shape, target))
      all.push_back({split.units, split.columns, split.split});
    return all;
  }
  Estimate EstimateOf(std::span<const int> knobs) const {
    const auto plan = With(knobs);
    if (!plan.ok()) return {};
    return {.seconds = RecurrenceRingSeconds(*plan, target), .shared_bytes = plan->shared_bytes()};
  }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    ASSIGN_OR_RETURN(const RecurrenceRingPlan plan, With(knobs));
    Lowered lowered;
    AddRecurrenceZeroes(group, target, "recurrence: counters of the groups", kCounters,
                        plan.counters(), lowered);
    AddLoop(group, target, plan, lowered);
    lowered.scratch_bytes = {plan.exchanged_bytes(), plan.counters() * 4,
                             std::max<int64_t>(plan.streamed_bytes(), 16)};
    return lowered;
  }
};

template <bool rounds>
Result<Sm90Plan> PlanOf(const Group& group, const Target& target) {
  RETURN_IF_ERROR(HasRecurrence(group));
  const RecurrenceShape shape = RecurrenceShapeOf(group);
  RETURN_IF_ERROR(CheckTypes<rounds>(shape, group, target));
  ASSIGN_OR_RETURN(RecurrenceRingPlan best, BestRingPlan(shape, target, {0, 0, 0}));
  return Sm90Plan{group, target, shape, std::move(best)};
}

constexpr int kTensorCore[] = {kNoteTensorCore};
constexpr int kRounding[] = {kNoteTensorCore, kNoteDownConvertInputs};

}  // namespace

const Engine kRecurrenceSm90Engine = EngineOf<PlanOf<false>>(
    {.name = "recurrence_sm90", .version = 1, .knobs = kKnobs, .numerical = kTensorCore});
const Engine kRecurrenceSm90Tf32Engine = EngineOf<PlanOf<true>>(
    {.name = "recurrence_sm90_tf32", .version = 1, .knobs = kKnobs, .numerical = kRounding});

}  // namespace kiln::compiler
