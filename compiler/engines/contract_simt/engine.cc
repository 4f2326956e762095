// contract_simt: a tiled implicit matrix product (contraction.h) on FMA units.
//
// Takes: every contraction there is: any type, layout, geometry, prologue and epilogue, on every
// device.
//
// How: tiles of both operands in shared memory, sums in registers. Prologues run where an operand
// is read: out-of-range and padded positions are zero *after* the prologue. Epilogues run on the
// accumulators, rounded to the contraction's output type first. Schedules: gpu.cc, cpu.cc.
//
// Wins: for f64, for integers other than i8, for exact f32 that is too small for
// `wgmma_sm90_3xtf32`, for a few products, and on the CPU.
//
// Declines: a group without a contraction.
#include "compiler/engines/contract_simt/engine.h"

#include <algorithm>

#include "compiler/engines/contract_simt/schedules.h"
#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

constexpr int kTileDomain[] = {64, 32, 128};
constexpr int kDepthDomain[] = {16, 8};
constexpr int kThreadsDomain[] = {256, 128, 64};
constexpr int kSlicesDomain[] = {0, 1, 2, 4, 8, 16, 32, 64};
constexpr KnobRow kKnobs[] = {
    {.name = "tile_m", .cudnn_type = kKnobTileM, .domain = kTileDomain},
    {.name = "tile_n", .cudnn_type = kKnobTileN, .domain = kTileDomain},
    {.name = "tile_k", .cudnn_type = kKnobTileK, .domain = kDepthDomain},
    {.name = "threads", .cudnn_type = kKnobBlockSize, .domain = kThreadsDomain},
    {.name = "split_k", .cudnn_type = kKnobSplitKSlices, .domain = kSlicesDomain},
};

SimtKnobs KnobsOf(std::span<const int> values) {
  return {.tile_m = values[0],
          .tile_n = values[1],
          .tile_k = values[2],
          .threads = values[3],
          .slices = values[4]};
}

DType AccumulatorOf(const Group& group) {
  const DType type = ArithmeticType(ContractionOf(group).compute);
  return type == DType::kBool ? DType::kI32 : type;
}

constexpr double kShareOfMemory = 0.85;

// Instructions for an element of each operand on its way to a panel.
struct StageCosts {
  double m = 10, n = 10;
};

// Taps of an image whose channels are not innermost are read one by one, each from a place of its
// own; measured on an H200: a 3x3 convolution takes 1.35 to 1.6 times as long.
StageCosts StageCostsOf(const Group& group) {
  constexpr double kScattered = 70;
  StageCosts costs;
  const graph::Graph& g = group.graph;
  const graph::Node& anchor = ContractionOf(group);
  if (anchor.op == graph::GraphOp::kMatmul) return costs;
  const bool wgrad = anchor.op == graph::GraphOp::kConvWgrad;
  const graph::Tensor& filter = g[wgrad ? anchor.outputs[0] : anchor.inputs[1]];
  const bool one_tap = NumElements(std::span(filter.dims).subspan(2)) == 1;
  const bool last = ChannelsLast(g[anchor.inputs[0]]);
  const bool wide_filter = ChannelsLast(filter) || filter.strides[0] == 1;
  if (!last && !one_tap) (wgrad ? costs.n : costs.m) = kScattered;
  // Filters are walked in the order of the image's dims.
  if (last && !one_tap && !wgrad && !wide_filter) costs.n = kScattered;
  return costs;
}

// Cycles of an SM for one step of one block: issue slots of its products and of what moves the
// panels, or the reads of shared memory where those take longer.
double StepCycles(const SimtKnobs& k, const SimtPatch& patch, const StageCosts& costs,
                  DType accumulator, const Machine& machine) {
  constexpr double kSharedWave = 1.25;  // cycles of a 16-byte read by a warp
  const double places = double{1} * k.tile_m * k.tile_n * k.tile_k;
  const double products = places * machine.FmaSlots(SizeOf(accumulator) == 8);
  const double staged = (k.tile_m * costs.m + k.tile_n * costs.n) * k.tile_k;
  const double reads =
      k.tile_k * (patch.per_m + patch.per_n) / double{1} / patch.lane * patch.threads;
  return std::max((products + staged + reads) / machine.issue, reads / 32 * kSharedWave * 2);
}

class SimtPlan {
 public:
  SimtPlan(const Group& group, const Target& target)
      : group_(group),
        target_(target),
        machine_(MachineOf(target)),
        accumulator_(AccumulatorOf(group)),
        size_(SizesOf(group.graph, ContractionOf(group))),
        reductions_(CountReductions(group)),
        costs_(StageCostsOf(group)),
        floor_bytes_(static_cast<double>(FloorBytes(group))) {}

  std::vector<std::vector<int>> Choices() const;

  Estimate EstimateOf(std::span<const int> knobs) const {
    const SimtKnobs k = KnobsOf(knobs);
    if (!target_.is_cuda()) return {.seconds = SecondsOnCpu(k)};
    return {.seconds = SecondsOnGpu(k),
            .shared_bytes = SimtSharedBytes(k, accumulator_, reductions_)};
  }

  Result<Lowered> Lower(std::span<const int> knobs) const {
    const SimtKnobs k = KnobsOf(knobs);
    const EpilogueReductions reductions(group_);
    return target_.is_cuda() ? LowerSimtGpu(reductions, target_, k)
                             : LowerSimtCpu(reductions, target_, k.tile_m, k.tile_n);
  }

 private:
  double SecondsOnCpu(const SimtKnobs& k) const;
  double SecondsOnGpu(const SimtKnobs& k) const;

  const Group& group_;
  const Target& target_;
  Machine machine_;
  DType accumulator_;
  ContractionSizes size_;
  int reductions_;
  StageCosts costs_;
  double floor_bytes_;
};

double SimtPlan::SecondsOnCpu(const SimtKnobs& k) const {
  constexpr double kShareOfFma = 0.625;
  const double flops = 2 * machine_.fma * machine_.clock * kShareOfFma;
  const double reuse = 0.5 + 0.5 * std::min({k.tile_m, k.tile_n, 64}) / 64;
  return TiledSeconds(group_, target_, {k.tile_m, k.tile_n, k.tile_k}, flops * reuse) +
         StreamSeconds(machine_, floor_bytes_, kShareOfMemory);
}

double SimtPlan::SecondsOnGpu(const SimtKnobs& k) const {
  // Small f32 convolutions on an H100 (2026-11-26, 80 of them, L2 flushed): two warps reach 0.3 of
  // what an SM can issue, four 0.6; and a step waits for half of what the next one's reading takes
  // longer than the step's instructions.
  constexpr double kShareOfClock = 1.03, kRateOfWarp = 0.15, kReadCycles = 700;
  const SimtPatch patch = PatchOf(k, accumulator_);
  const int64_t tiles = CeilDiv(size_.m, k.tile_m) * CeilDiv(size_.n, k.tile_n) * size_.batch;
  const int64_t steps = CeilDiv(std::max<int64_t>(size_.k, 1), k.tile_k);
  const int64_t slices = SimtSlices(size_, reductions_, target_, k);
  const int64_t waves = CeilDiv(tiles * slices, std::max(target_.multiprocessors, 1));
  // Resident blocks of 64 accumulators a thread hide latency together; a lone one does it worse.
  const int64_t resident = std::clamp<int64_t>(waves, 1, 512 / patch.threads);
  const double warps = static_cast<double>(resident * patch.threads) / 32;
  const double rate = std::min(1.0, kRateOfWarp * warps);
  // A block fills its first panels and writes its tile while it multiplies nothing.
  const double edge_steps = 3;
  const double turns = static_cast<double>(StepsOfSlice(steps, slices)) + edge_steps;
  const double rounds = static_cast<double>(CeilDiv(waves, std::max<int64_t>(resident, 1)));
  const double issued = static_cast<double>(waves) * turns *
                        StepCycles(k, patch, costs_, accumulator_, machine_) / rate;
  const double cycles = std::max(issued, (issued + rounds * turns * kReadCycles) / 2);
  double seconds = cycles / (machine_.clock * kShareOfClock) +
                   StreamSeconds(machine_, floor_bytes_, kShareOfMemory);
  if (slices > 1) {
    const double partial =
        static_cast<double>(slices * size_.batch * size_.m * size_.n) * SizeOf(accumulator_);
    seconds += StreamSeconds(machine_, 2 * partial, kShareOfMemory);
  }
  return seconds;
}

// Tiles together, then the rest around the two that are best for large products and small ones.
std::vector<std::vector<int>> SimtPlan::Choices() const {
  std::vector<std::vector<int>> all;
  for (int m : kTileDomain)
    for (int n : kTileDomain) all.push_back({m, n, 16, 256, 0});
  if (!target_.is_cuda()) return all;
  for (const auto& [m, n] : {std::pair(128, 128), std::pair(128, 64), std::pair(64, 64)}) {
    all.push_back({m, n, 8, 256, 0});
    all.push_back({m, n, 16, 256, 1});
    if (m * n < 128 * 128) all.push_back({m, n, 8, 128, 0});
    if (m * n < 128 * 128) all.push_back({m, n, 16, 128, 0});
  }
  return all;
}

Result<SimtPlan> PlanOf(const Group& group, const Target& target) {
  if (group.kind == GroupKind::kContract) return SimtPlan(group, target);
  return Status::Text(Code::kUnsupportedGraphPattern, "the group has no contraction as its anchor");
}

}  // namespace

const Engine kContractSimtEngine =
    EngineOf<PlanOf>({.name = "contract_simt", .version = 4, .knobs = kKnobs});

}  // namespace kiln::compiler
