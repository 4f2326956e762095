// recurrence_sm80, recurrence_sm80_tf32, recurrence_sm80_f32: loops over time whose recurrent
// matrix stays on the chip.
//
// Takes: from sm_80 on, a recurrence or its gradient with f16 or bf16 states and matrices; the
// second engine takes f32 ones and rounds them to TF32, the third multiplies f32 as it is, on FMA
// units. An LSTM may have a projection.
//
// How: a persistent launch a layer. Blocks have a few units of a direction and a group of
// sequences, keep their share of the matrix in registers and shared memory, and multiply on
// mma.sync what they read from the L2 cache; a part that has no room on the chip is copied as
// fragments once and streamed at each step through a ring that each lane fills for itself (not in
// exact f32). A counter for each group says that all parts of a step's states are there; where few
// bytes are exchanged, the number of the step lies beside each 4 of them instead. On sm_90 the
// parts of a group may be one cluster, which stores states into one another's shared memory. A
// projection is a second product in each step, with a second exchange. A small kernel before sets
// the counters to 0. Skeletons: recurrence_sm80.cuh, recurrence_projected_sm80.cuh.
//
// Wins: for most layers of 16 bits and f32; a step of H 1024, B 64 takes 3.95 us forward (H100).
//
// Declines: other types; KILN_LAUNCH=minimal; more blocks than run at a time, since they wait for
// one another; exact f32 matrices that the chip does not hold.
#include "compiler/engines/recurrence/sm80.h"

#include <algorithm>
#include <utility>

#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/recurrence/call.h"
#include "compiler/engines/recurrence/functions.h"
#include "compiler/engines/recurrence/plan.h"
#include "compiler/kernel/recurrence_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::RnnCell;
using tile::Block;
using tile::Call;

constexpr KnobRow kKnobs[] = {
    {.name = "units", .cudnn_type = kKnobTileM, .domain = kRecurrenceUnits},
    {.name = "sequences", .cudnn_type = kKnobTileN, .domain = kRecurrenceColumns},
    {.name = "exchange", .cudnn_type = kKnobKernelConfig, .domain = kRecurrenceExchanges},
};

// ---- the kernels

// Counters, or the numbers beside the states with all else that is exchanged, 0 before the first
// step.
void AddZeroes(const Group& group, const Target& target, const RecurrencePlan& plan,
               Lowered& lowered) {
  if (plan.clustered) return;
  if (plan.numbered)
    AddRecurrenceZeroes(group, target, "recurrence: states and their numbers before the first step",
                        0, plan.exchanged() * plan.element_bytes() / 4, lowered);
  else
    AddRecurrenceZeroes(group, target, "recurrence: counters of the groups", 1, plan.counters(),
                        lowered);
}

void AddNumbers(KernelBuilder& b, const RecurrencePlan& p, Call& call) {
  const RecurrenceShape& shape = p.shape;
  AddRecurrenceNumbers(b, shape,
                       {.depth = p.of_units().depth,
                        .pitch = p.exchange_pitch(),
                        .parts = p.parts,
                        .groups = p.groups,
                        .first_groups = p.first_groups},
                       call);
  if (!shape.is_projected) return;
  const auto number = [&](const ShapeMember& member, int64_t value) {
    AddShapeMember(b, call, member, value);
  };
  number(recurrence::projected_units, shape.projected);
  number(recurrence::projected_depth, p.products[1].depth);
  number(recurrence::projected_pitch, p.products[1].pitch());
}

std::string Placed(const RecurrenceProduct& p) {
  return fmt::format("{} units a block, of {} chunks {} in registers and {} in shared memory",
                     p.units, p.chunks, p.held, p.in_shared);
}

void AddLoop(const Group& group, const Target& target, const RecurrencePlan& p, Lowered& lowered) {
  const RecurrenceShape& shape = p.shape;
  KernelBuilder b(group, target,
                  fmt::format("recurrence_sm80: {} of {}, {} sequences and {}{}",
                              shape.is_grad ? "the gradient" : "steps",
                              graph::Text(shape.attrs.cell), p.columns, Placed(p.of_units()),
                              shape.is_projected ? "; projected: " + Placed(p.products[1]) : ""),
                  IndexType(group.graph));
  for (const char* reserved :
       {"bx", "shape", "length", "weight", "before", "fixed", "read", "store", "after", "project",
        "project_before", "project_read", "project_store", "project_after"})
    b.Name(reserved);
  const std::string memory = b.Name("memory"), exchange = b.Scratch(0, shape.type, false),
                    streamed = b.Scratch(2, shape.type, false),
                    counters = b.Scratch(1, DType::kI32, false);
  Call call{.skeleton = shape.is_projected ? "recurrence_projected_sm80" : "recurrence_sm80",
            .maps = {},
            .buffers = {memory, exchange, streamed, counters}};
  AddRecurrenceConfig(b, p, call);
  if (shape.is_projected) AddRecurrenceProduct(p.products[1], &ProductMember::projected, call);
  AddNumbers(b, p, call);
  RecurrenceFunctions(b, shape).Add(call);
  Block shared;
  shared.push_back({tile::Alloc{memory, DType::kF32, tile::Space::kShared, p.shared_bytes() / 4}});
  Lowered loop;
  b.Finish(CallOfBlocks(b, p.blocks(), std::move(call), std::move(shared)), {p.blocks(), 1, 1},
           p.threads(), loop, 1);
  loop.kernels.back().cooperative = !p.clustered;
  if (p.clustered) loop.kernels.back().cluster = static_cast<int>(p.parts);
  Append(lowered, std::move(loop));
}

// ---- the engines' rows

enum class Arithmetic : uint8_t { kHalf, kTf32, kF32 };

struct Sm80Plan {
  const Group& group;
  const Target& target;
  RecurrenceUnits units;
  RecurrenceShape shape;
  RecurrencePlan best;  // without wishes

  Result<RecurrencePlan> With(std::span<const int> knobs) const {
    if (std::ranges::all_of(knobs, [](int value) { return value == 0; })) return best;
    return BestRecurrencePlan(shape, target, {knobs[0], knobs[1], knobs[2]}, units);
  }

  std::vector<std::vector<int>> Choices() const {
    std::vector<std::vector<int>> all = {{0, 0, 0}};
    for (const RecurrenceSplit& split : RecurrenceSplits(shape, target, 0, units))
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
    AddZeroes(group, target, plan, lowered);
    AddLoop(group, target, plan, lowered);
    lowered.scratch_bytes = {plan.exchanged() * plan.element_bytes(), plan.counters() * 4,
                             std::max<int64_t>(plan.streamed_bytes(), 16)};
    return lowered;
  }
};

template <Arithmetic arithmetic>
Status CheckTypes(const RecurrenceShape& shape, const Group& group, const Target& target) {
  RETURN_IF_ERROR(RunsOnMma(target));
  RETURN_IF_ERROR(RunsBlocksTogether(target));
  const DType r = group.graph[shape.node->inputs[1]].dtype;
  const bool is_half = shape.type == DType::kF16 || shape.type == DType::kBF16;
  constexpr bool kIsHalf = arithmetic == Arithmetic::kHalf;
  constexpr const char* kMultiplies = arithmetic == Arithmetic::kHalf   ? "f16 and bf16"
                                      : arithmetic == Arithmetic::kTf32 ? "f32 as TF32"
                                                                        : "f32";
  if (r != shape.type || (kIsHalf ? !is_half : shape.type != DType::kF32))
    return Status::Error(Code::kUnsupportedDataType,
                         "it multiplies {}, matrices are {} and states {}", kMultiplies,
                         Info(r).text, Info(shape.type).text);
  return {};
}

template <Arithmetic arithmetic>
Result<Sm80Plan> PlanOf(const Group& group, const Target& target) {
  constexpr RecurrenceUnits kUnits =
      arithmetic == Arithmetic::kF32 ? RecurrenceUnits::kFma : RecurrenceUnits::kTensorCores;
  RETURN_IF_ERROR(HasRecurrence(group));
  const RecurrenceShape shape = RecurrenceShapeOf(group);
  RETURN_IF_ERROR(CheckTypes<arithmetic>(shape, group, target));
  ASSIGN_OR_RETURN(RecurrencePlan best, BestRecurrencePlan(shape, target, {0, 0, 0}, kUnits));
  return Sm80Plan{group, target, kUnits, shape, std::move(best)};
}

constexpr int kTensorCore[] = {kNoteTensorCore};
constexpr int kRounding[] = {kNoteTensorCore, kNoteDownConvertInputs};

}  // namespace

const Engine kRecurrenceSm80Engine = EngineOf<PlanOf<Arithmetic::kHalf>>(
    {.name = "recurrence_sm80", .version = 4, .knobs = kKnobs, .numerical = kTensorCore});
const Engine kRecurrenceSm80Tf32Engine = EngineOf<PlanOf<Arithmetic::kTf32>>(
    {.name = "recurrence_sm80_tf32", .version = 4, .knobs = kKnobs, .numerical = kRounding});
const Engine kRecurrenceSm80F32Engine = EngineOf<PlanOf<Arithmetic::kF32>>(
    {.name = "recurrence_sm80_f32", .version = 4, .knobs = kKnobs});

}  // namespace kiln::compiler
