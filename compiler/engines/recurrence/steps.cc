// recurrence_steps, recurrence_steps_tf32: a recurrent layer whose every step is a launch of
// wgmma_sm90 and one of cells.
//
// Takes: on sm_90, a layer or its gradient of f16, bf16 or f32 as TF32, of up to 512 steps, without
// a projection, whose matrices tensor maps reach.
//
// How: states are in scratch memory between the launches (recurrence_step_cells.cuh). Persistent
// engines read the states of a group of sequences, and the part of the matrix that they do not
// hold, into every multiprocessor; tiles that share both operands read less than half of that.
//
// Wins: where a step's product fills the GPU by itself: the gradient of LSTM B 256 H 2048 takes 769
// us where `recurrence_sm90` took 922 (H100).
//
// Declines: projected states; more than 512 steps; a matrix that is computed; and what `wgmma_sm90`
// declines of the product of a step.
#include "compiler/engines/recurrence/steps.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "compiler/engines/contract_wgmma/engine.h"
#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/recurrence/call.h"
#include "compiler/engines/recurrence/functions.h"
#include "compiler/engines/recurrence/loop.h"
#include "compiler/kernel/recurrence_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/machine/machine.h"
#include "compiler/patterns/memory_view.h"
#include "ir/graph/builder.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Call;

enum Scratch { kExchange, kSums, kStates, kScratches };
constexpr int kThreads = 256;
// Each is two launches.
constexpr int64_t kMostSteps = 512;

struct StepsPlan {
  RecurrenceShape shape;
  int64_t depth = 0, width = 0;  // of the product
  Group product = {};
  TensorId a = graph::kAbsent, b = graph::kAbsent;  // of its graph
  MemoryPlace matrix = {};                          // where b lies

  int64_t rows() const { return shape.directions * shape.batch; }
  int64_t elements() const { return rows() * shape.hidden; }
  int64_t exchanged() const { return rows() * depth; }  // a copy
};

Result<StepsPlan> StepsPlanOf(const Group& group) {
  RETURN_IF_ERROR(HasRecurrence(group));
  StepsPlan plan{.shape = RecurrenceShapeOf(group)};
  const RecurrenceShape& shape = plan.shape;
  const graph::Graph& g = group.graph;
  if (shape.accumulator != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "it computes in f32, the recurrence in {}",
                         Info(shape.accumulator).text);
  if (shape.is_projected)
    return Status::Error(Code::kUnsupportedGraphPattern, "states are projected");
  if (shape.steps > kMostSteps || shape.steps < 1 || shape.batch < 1)
    return Status::Error(Code::kUnsupportedShape,
                         "{} steps of {} sequences: it launches 1 to {} steps", shape.steps,
                         shape.batch, kMostSteps);
  if (plan.elements() * shape.blocks.gates > std::numeric_limits<int32_t>::max())
    return Status::Error(Code::kUnsupportedShape,
                         "{} units of {} sequences and {} gates are more than 32 bits count",
                         shape.hidden, plan.rows(), shape.blocks.gates);
  const TensorId r = shape.node->inputs[1];
  if (g[r].dtype != shape.type)
    return Status::Error(Code::kUnsupportedDataType, "matrices are {} and states {}",
                         Info(g[r].dtype).text, Info(shape.type).text);
  const auto place = PlaceInMemory(g, graph::Producers(g), r);
  if (!place)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "{} is computed; tensor maps read memory as it is", g[r].name);
  plan.matrix = *place;
  // States times the matrix transposed; gradients of gates times the matrix.
  const int64_t gates = shape.blocks.gates * shape.hidden;
  plan.depth = shape.is_grad ? gates : shape.hidden;
  plan.width = shape.is_grad ? shape.hidden : gates;
  Dims strides = place->strides;
  if (!shape.is_grad) std::swap(strides[1], strides[2]);
  graph::GraphBuilder b("recurrence_steps");
  const int64_t d = shape.directions;
  plan.a = b.Input("a", shape.type, {d, shape.batch, plan.depth});
  plan.b = b.Input("b", shape.type, {d, plan.depth, plan.width}, strides);
  const TensorId y = b.Apply(graph::GraphOp::kMatmul, {plan.a, plan.b}, graph::MatmulAttrs{}, {});
  b.Output(y, "y", DType::kF32);
  plan.product.kind = GroupKind::kContract;
  ASSIGN_OR_RETURN(plan.product.graph, b.Finish());
  graph::Tensor& matrix = plan.product.graph[plan.b];
  const graph::Tensor& memory = g[place->memory];
  matrix.alignment = memory.alignment;
  if (place->offset * SizeOf(shape.type) % matrix.alignment != 0)
    matrix.alignment = SizeOf(shape.type);
  return plan;
}

// Time of what cells move, beside the launch. Most of it lies in the L2 cache (an H100: 5.4, 7.5
// and 11.4 us for 65,536, 262,144 and 524,288 units of an LSTM).
double CellSeconds(const StepsPlan& plan, const Target& target) {
  constexpr double kStartCycles = 4420, kShareOfCache = 0.6155;
  const Machine machine = MachineOf(target);
  const RecurrenceShape& shape = plan.shape;
  const int64_t gates = shape.blocks.gates, kept = shape.blocks.kept;
  const int64_t sums = 4 * (shape.is_grad ? 1 : gates), carried = 16;
  const int64_t tensors = (shape.is_grad ? 3 + kept + 2 * gates : 3 + gates + kept) *
                          static_cast<int64_t>(SizeOf(shape.type) + 2);
  const double rate = kShareOfCache * machine.l2_share() * machine.multiprocessors;
  return machine.StartSeconds() + machine.Seconds(kStartCycles) +
         static_cast<double>(plan.elements() * (sums + carried + tensors)) / rate;
}

// Time to read a matrix that the L2 cache does not hold from step to step: few rows at a time keep
// memory less busy than a copy does (an H100: 134 MB in 50 to 54 us).
double ReadingSeconds(const StepsPlan& plan, const Target& target) {
  constexpr double kOfCache = 0.7, kOfMemory = 0.7;
  const double bytes = static_cast<double>(plan.shape.directions * plan.depth * plan.width *
                                           static_cast<int64_t>(SizeOf(plan.shape.type)));
  const bool is_cached = bytes < kOfCache * static_cast<double>(target.l2_bytes);
  return is_cached ? 0 : bytes / (kOfMemory * MachineOf(target).memory);
}

// ---- the kernels

Lowered CellsOf(const Group& group, const Target& target, const StepsPlan& plan) {
  const RecurrenceShape& shape = plan.shape;
  KernelBuilder b(
      group, target,
      fmt::format("recurrence_steps: cells of a step of {}{}",
                  shape.is_grad ? "the gradient of " : "", graph::Text(shape.attrs.cell)),
      IndexType(group.graph));
  for (const char* reserved :
       {"bx", "shape", "length", "weight", "before", "fixed", "read", "store", "after"})
    b.Name(reserved);
  Call call{
      .skeleton = "recurrence_step_cells",
      .maps = {},
      .buffers = {b.Scratch(kExchange, shape.type, false), b.Scratch(kSums, DType::kF32, false),
                  b.Scratch(kStates, DType::kF32, false)}};
  call.config = {
      {recurrence::kGradient, shape.is_grad ? 1 : 0},
      {recurrence::kCell, static_cast<int64_t>(shape.attrs.cell)},
      {recurrence::kClips, RecurrenceClips(shape)},
      {recurrence::kGates, shape.is_grad ? 1 : shape.blocks.gates},
      {recurrence::kValuesAreStates, RecurrenceValueType(b.graph(), shape) == shape.type ? 1 : 0},
      {recurrence::kProjected, 0},
      {recurrence::kThreads, kThreads}};
  AddRecurrenceNumbers(
      b, shape,
      {.depth = plan.depth, .pitch = plan.depth, .parts = 1, .groups = 1, .first_groups = 1}, call);
  AddShapeMember(b, call, recurrence::round, -1);
  RecurrenceFunctions(b, shape).Add(call);
  const int64_t blocks = CeilDiv(plan.elements(), int64_t{kThreads});
  Lowered lowered;
  b.Finish(CallOfBlocks(b, blocks, std::move(call)), {blocks, 1, 1}, kThreads, lowered);
  return lowered;
}

// The product of round n, whose tensors are scratch memory and the matrix here.
LoweredLaunch ProductOfRound(const LoweredLaunch& launch, const StepsPlan& plan, int64_t copy,
                             int first_kernel, int first_scratch) {
  using Kind = LoweredArg::Kind;
  LoweredLaunch own = launch;
  own.kernel += first_kernel;
  const int64_t element = SizeOf(plan.shape.type);
  for (LoweredArg& arg : own.args) {
    if (arg.kind == Kind::kScratch) {
      arg.id += first_scratch;
    } else if (arg.kind == Kind::kTensorMap && arg.id == plan.b) {
      arg.id = plan.matrix.memory;
      own.tensor_maps[arg.bits].offset_bytes += plan.matrix.offset * element;
    } else if (arg.kind == Kind::kTensorMap && arg.id == plan.a) {
      arg.kind = Kind::kScratchMap;
      arg.id = kExchange;
      own.tensor_maps[arg.bits].offset_bytes += copy * plan.exchanged() * element;
    } else if (arg.kind == Kind::kTensor || arg.kind == Kind::kTensorMap) {
      arg.kind = arg.kind == Kind::kTensor ? Kind::kScratch : Kind::kScratchMap;
      arg.id = kSums;
    }
  }
  return own;
}

// Cells before the first product, then a product and its cells for each round.
Lowered AllRounds(const StepsPlan& plan, Lowered cells, Lowered product) {
  Lowered lowered;
  lowered.scratch_bytes = {2 * plan.exchanged() * static_cast<int64_t>(SizeOf(plan.shape.type)),
                           plan.rows() * plan.width * 4, 2 * plan.elements() * 4};
  std::ranges::copy(product.scratch_bytes, std::back_inserter(lowered.scratch_bytes));
  lowered.kernels = std::move(cells.kernels);
  const auto first_kernel = static_cast<int>(lowered.kernels.size());
  const std::vector<tile::Param>& params = lowered.kernels[0].params;
  const auto round = static_cast<size_t>(
      std::ranges::find(params, std::string_view("round"), &tile::Param::name) - params.begin());
  const auto add_cells = [&](int64_t n) {
    lowered.launches.push_back(cells.launches[0]);
    lowered.launches.back().args[round].bits = static_cast<uint64_t>(n);
  };
  add_cells(-1);
  if (plan.shape.is_grad) add_cells(0);
  const int64_t rounds = plan.shape.steps + (plan.shape.is_grad ? 1 : 0);
  for (int64_t n = plan.shape.is_grad ? 1 : 0; n < rounds; ++n) {
    for (const LoweredLaunch& launch : product.launches)
      lowered.launches.push_back(ProductOfRound(launch, plan, n % 2, first_kernel, kScratches));
    add_cells(n);
  }
  std::ranges::move(product.kernels, std::back_inserter(lowered.kernels));
  return lowered;
}

// ---- the engines' rows

class StepsEnginePlan {
 public:
  static Result<StepsEnginePlan> Of(const Engine& engine, const Group& group,
                                    const Target& target) {
    ASSIGN_OR_RETURN(StepsPlan plan, StepsPlanOf(group));
    // The product's plan refers to its group, which has to stay where it is.
    auto own = std::make_unique<const StepsPlan>(std::move(plan));
    PlanResult product = engine.plan(own->product, target);
    if (!product.ok())
      return Status::Error(product.status().code(), "the product of a step: {}",
                           product.status().message());
    return StepsEnginePlan(engine, group, target, std::move(own), *std::move(product));
  }

  std::vector<Proposal> Proposals() const {
    std::vector<Proposal> all = Propose(engine_, *product_);
    for (Proposal& p : all) p.seconds = Seconds(p.seconds);
    return all;
  }

  Estimate EstimateOf(std::span<const int> knobs) const {
    Estimate of = product_->EstimateOf(knobs);
    of.seconds = Seconds(of.seconds);
    return of;
  }

  Result<Lowered> Lower(std::span<const int> knobs) const {
    ASSIGN_OR_RETURN(Lowered product, product_->Lower(knobs));
    return AllRounds(*plan_, CellsOf(group_, target_, *plan_), std::move(product));
  }

 private:
  StepsEnginePlan(const Engine& engine, const Group& group, const Target& target,
                  std::unique_ptr<const StepsPlan> plan, std::unique_ptr<const EnginePlan> product)
      : engine_(engine),
        group_(group),
        target_(target),
        plan_(std::move(plan)),
        product_(std::move(product)),
        reading_(ReadingSeconds(*plan_, target)),
        cells_(CellSeconds(*plan_, target)) {}

  double Seconds(double product) const {
    return static_cast<double>(plan_->shape.steps) * (std::max(product, reading_) + cells_) +
           cells_;
  }

  const Engine& engine_;  // of the product
  const Group& group_;
  const Target& target_;
  std::unique_ptr<const StepsPlan> plan_;
  std::unique_ptr<const EnginePlan> product_;
  double reading_, cells_;  // seconds of a step
};

using EngineRef = const Engine&;

template <EngineRef kProduct>
Result<StepsEnginePlan> PlanOf(const Group& group, const Target& target) {
  return StepsEnginePlan::Of(kProduct, group, target);
}

constexpr int kTensorCore[] = {kNoteTensorCore};
constexpr int kRounding[] = {kNoteTensorCore, kNoteDownConvertInputs};

}  // namespace

const Engine kRecurrenceStepsEngine =
    EngineOf<PlanOf<kWgmmaSm90Engine>>({.name = "recurrence_steps",
                                        .version = 1,
                                        .knobs = kWgmmaSm90Engine.knobs,
                                        .numerical = kTensorCore});
const Engine kRecurrenceStepsTf32Engine =
    EngineOf<PlanOf<kWgmmaSm90Tf32Engine>>({.name = "recurrence_steps_tf32",
                                            .version = 1,
                                            .knobs = kWgmmaSm90Tf32Engine.knobs,
                                            .numerical = kRounding});

}  // namespace kiln::compiler
