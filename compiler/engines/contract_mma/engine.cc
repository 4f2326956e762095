// contract_mma, contract_mma_tf32, contract_mma_atomic: the implicit matrix product of
// contraction.h on tensor cores through mma.sync.
//
// Takes: operands that are both f16, both bf16 or both i8, or each e4m3 or e5m2, with f32 sums (i8:
// i32), for any geometry, alignment, prologue and epilogue, from sm_80 on. contract_mma_tf32 takes
// f32 operands and rounds them; contract_mma_atomic adds the slices of a split k in any order.
// Notes are an engine's, so that a kind of result with a note of its own is an engine of its own.
//
// How: panels come by asynchronous copies where the layout has 16 aligned bytes along k or the
// rows, else element by element with the prologue; a split k is summed in a fixed order. plan.h
// says what becomes of knobs, kernel.cc writes the kernel.
//
// Wins: on sm_80 to sm_89 and on Blackwell; on Hopper where tensor maps cannot read the operands.
//
// Declines: a GPU before sm_80, other types, another compute type. contract_mma_atomic is for
// clients that name it.
#include "compiler/engines/contract_mma/engine.h"

#include <algorithm>

#include "compiler/engines/contract_mma/kernel.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;

constexpr int kTileDomain[] = {128, 64, 256};
constexpr int kDepthDomain[] = {128, 64};
constexpr int kStagesDomain[] = {3, 2, 4, 5};
constexpr int kWarpsDomain[] = {4, 8};
constexpr int kSplitDomain[] = {1, 2, 4, 8, 16, 32};
constexpr KnobRow kKnobs[] = {
    {.name = "tile_m", .cudnn_type = kKnobTileM, .domain = kTileDomain},
    {.name = "tile_n", .cudnn_type = kKnobTileN, .domain = kTileDomain},
    {.name = "depth_bytes", .cudnn_type = kKnobTileK, .domain = kDepthDomain},
    {.name = "stages", .cudnn_type = kKnobStages, .domain = kStagesDomain},
    {.name = "warps", .cudnn_type = kKnobBlockSize, .domain = kWarpsDomain},
    {.name = "split_k", .cudnn_type = kKnobSplitKSlices, .domain = kSplitDomain},
};
static_assert(std::size(kKnobs) == kMmaKnobs);

Status CheckTypes(const Group& group, const Target& target, bool tf32) {
  if (group.kind != GroupKind::kContract)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group has no contraction as its anchor");
  if (!target.is_cuda() || target.sm_version < 80)
    return Status::Error(Code::kArchMismatch, "mma.m16n8k16 needs sm_80 or later, the target is {}",
                         target.arch);
  const graph::Node& anchor = ContractionOf(group);
  const Tensor &a = group.graph[anchor.inputs[0]], &b = group.graph[anchor.inputs[1]];
  const auto is = [&](std::initializer_list<DType> types) {
    return std::ranges::find(types, a.dtype) != types.end() &&
           std::ranges::find(types, b.dtype) != types.end();
  };
  const bool fp8 = is({DType::kE4M3, DType::kE5M2});
  const bool same = a.dtype == b.dtype &&
                    (tf32 ? is({DType::kF32}) : is({DType::kF16, DType::kBF16, DType::kI8}));
  if (!same && (tf32 || !fp8)) {
    return Status::Error(
        Code::kUnsupportedDataType, "operands are {} and {}; {}", Info(a.dtype).text,
        Info(b.dtype).text,
        tf32 ? "both must be f32" : "both must be f16, bf16 or i8, or each e4m3 or e5m2");
  }
  const DType sums = a.dtype == DType::kI8 ? DType::kI32 : DType::kF32;
  if (ArithmeticType(anchor.compute) != sums)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is not {}",
                         Info(anchor.compute).text, Info(sums).text);
  return {};
}

// Cycles of one step of a block on an SM of its own: tensor cores, shared memory and L2 each alone.
double StepCycles(const MmaPlan& plan, const Machine& machine) {
  constexpr double kL2Share = 0.85;  // of what all multiprocessors together are given
  const int size = SizeOf(plan.type);
  const double products = double(plan.tile_m) * plan.tile_n * plan.depth;
  const double row_bytes = plan.depth * size;
  const double loaded = (plan.tile_m + plan.tile_n) * row_bytes;
  const double fragments =
      (double(plan.tile_m) * plan.warps_n + double(plan.tile_n) * plan.warps_m) * row_bytes;
  double cycles =
      std::max({products / machine.mma.Of(size), (fragments + loaded) / machine.shared_bytes,
                loaded / (kL2Share * machine.l2_bytes)});
  // Elements one by one: about as many instructions as bytes.
  for (const auto& [path, rows] : {std::pair(plan.a, plan.tile_m), std::pair(plan.b, plan.tile_n)})
    if (path == OperandPath::kElements) cycles += rows * plan.depth * 0.35;
  return cycles + 60;  // the barrier
}

class MmaEnginePlan {
 public:
  MmaEnginePlan(const Group& group, const Target& target, SplitForm form)
      : group_(group),
        target_(target),
        machine_(MachineOf(target)),
        problem_(MmaProblemOf(group, target)),
        floor_bytes_(static_cast<double>(FloorBytes(group))) {
    problem_.plan.form = form;
  }

  std::vector<std::vector<int>> Choices() const;
  Estimate EstimateOf(std::span<const int> knobs) const {
    const MmaPlan plan = PlanMma(problem_, target_, knobs);
    return {.seconds = Seconds(plan), .shared_bytes = plan.SharedBytes()};
  }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    return LowerMma(group_, target_, PlanMma(problem_, target_, knobs));
  }

 private:
  double Seconds(const MmaPlan& plan) const;

  const Group& group_;
  const Target& target_;
  Machine machine_;
  MmaProblem problem_;
  double floor_bytes_;
};

double MmaEnginePlan::Seconds(const MmaPlan& plan) const {
  constexpr double kShareOfMemory = 0.88, kShareOfClock = 0.94;
  constexpr double kPrologueCycles = 850;  // of a kernel
  const double bytes_per_second = machine_.memory * kShareOfMemory;
  const double launch = machine_.StartSeconds() + machine_.Seconds(kPrologueCycles);
  ContractionSizes size = problem_.size;
  if (plan.swapped) std::swap(size.m, size.n);
  const int64_t tiles = CeilDiv(size.m, plan.tile_m) * CeilDiv(size.n, plan.tile_n) * size.batch;
  const int64_t blocks = tiles * plan.splits, sms = std::max(target_.multiprocessors, 1);
  const int64_t steps = CeilDiv(CeilDiv(std::max<int64_t>(size.k, 1), plan.depth), plan.splits);
  // A block alone on its SM waits for itself; several take turns.
  const int64_t fit = std::clamp<int64_t>(
      std::min(target_.shared_bytes_per_block / (plan.stages * plan.StageBytes() + 2048),
               int64_t{8} / plan.warps()),
      1, 2);
  const int64_t resident = std::min(fit, std::max<int64_t>(CeilDiv(blocks, sms), 1));
  const double alone = resident * plan.warps() >= 8 ? 1.0 : 1.5;
  const double fill = 1200 + 400.0 * plan.stages, epilogue = plan.tile_m * plan.tile_n * 0.12;
  const double tile_cycles = static_cast<double>(steps) * StepCycles(plan, machine_) * alone +
                             (fill + epilogue) / static_cast<double>(resident);
  double seconds = launch + static_cast<double>(CeilDiv(blocks, sms)) * tile_cycles /
                                (machine_.clock * kShareOfClock);
  seconds = std::max(seconds, launch + floor_bytes_ / bytes_per_second);
  if (plan.splits == 1) return seconds;
  const bool ordered = plan.form == SplitForm::kOrdered;
  const double sums = static_cast<double>(size.batch * size.m * size.n) * 4;
  const double traffic = ordered ? 2.0 * plan.splits : 2.0 + plan.splits * 3.0;
  return seconds + sums * traffic / bytes_per_second + launch * (ordered ? 1 : 2);
}

// Tiles that suit the output, each with splits that fill the device.
std::vector<std::vector<int>> MmaEnginePlan::Choices() const {
  struct Shape {
    int m, n, stages, warps;
  };
  static constexpr Shape kShapes[] = {{128, 128, 3, 4}, {128, 256, 3, 8}, {256, 128, 3, 8},
                                      {128, 64, 4, 4},  {64, 128, 4, 4},  {64, 64, 4, 4},
                                      {64, 256, 3, 8},  {256, 64, 3, 8},  {128, 128, 4, 8}};
  ContractionSizes size = problem_.size;
  if (problem_.plan.swapped) std::swap(size.m, size.n);
  std::vector<std::vector<int>> all;
  for (const Shape& s : kShapes) {
    std::vector<int> knobs = {s.m, s.n, 128, s.stages, s.warps, 1};
    const int64_t tiles = CeilDiv(size.m, s.m) * CeilDiv(size.n, s.n) * size.batch;
    for (const int split : kSplitDomain) {
      // More splits than two waves take, or of less than four steps, are never better.
      const bool useful = split == 1 || (tiles * split <= 4 * target_.multiprocessors &&
                                         size.k >= int64_t{split} * 256);
      if (!useful) break;
      knobs[kMmaSplits] = split;
      all.push_back(knobs);
    }
  }
  all.push_back({64, 64, 64, 5, 4, 1});
  return all;
}

template <bool tf32, SplitForm form>
Result<MmaEnginePlan> PlanOf(const Group& group, const Target& target) {
  RETURN_IF_ERROR(CheckTypes(group, target, tf32));
  return MmaEnginePlan(group, target, form);
}

constexpr int kNumerical[] = {kNoteTensorCore};
constexpr int kNumericalTf32[] = {kNoteTensorCore, kNoteDownConvertInputs};
constexpr int kNumericalAtomic[] = {kNoteTensorCore, kNoteNondeterministic};

}  // namespace

const Engine kContractMmaEngine = EngineOf<PlanOf<false, SplitForm::kOrdered>>(
    {.name = "contract_mma", .version = 4, .knobs = kKnobs, .numerical = kNumerical});

const Engine kContractMmaTf32Engine = EngineOf<PlanOf<true, SplitForm::kOrdered>>(
    {.name = "contract_mma_tf32", .version = 2, .knobs = kKnobs, .numerical = kNumericalTf32});

const Engine kContractMmaAtomicEngine = EngineOf<PlanOf<false, SplitForm::kAtomic>>(
    {.name = "contract_mma_atomic", .version = 2, .knobs = kKnobs, .numerical = kNumericalAtomic});

}  // namespace kiln::compiler
