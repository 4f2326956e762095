// conv_first_layer: fprop (fprop.cc), wgrad (wgrad.cc) and dgrad (dgrad.cc) of a few input channels
// on mma.m16n8k16.
//
// Takes: from sm_80 on, f16 or bf16 operands and f32 sums, one group, fprop and wgrad with 1 to 4
// input channels, dgrad with 1 to 8 and strides up to 4.
//
// How: k runs through each filter row, so that few channels waste little of mma.sync; a dgrad makes
// the outputs of all stride phases as columns of one product.
// fprop.cc says how rows and filters lie.
//
// Wins: for the first layer of a network: 7x7 stride 2, 3 channels 224x224, N 256 takes 235 us
// forward where cuDNN 9.19 takes 556 (H200).
//
// Declines: more channels or groups; filters whose products or fragments have no room; sums longer
// than one chain of products may be; results that are reduced in the group.
#include "compiler/engines/conv_first_layer/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/conv_first_layer/dgrad.h"
#include "compiler/engines/conv_first_layer/fprop.h"
#include "compiler/engines/conv_first_layer/tiles.h"
#include "compiler/engines/conv_first_layer/wgrad.h"
#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;

constexpr int kPixelsDomain[] = {64, 32, 16};
constexpr int kRowsDomain[] = {4, 8, 2, 7};
constexpr int kStepsDomain[] = {8, 1, 4, 16};
constexpr int kSplitsDomain[] = {2, 1, 4, 3};  // blocks of wgrad and dgrad, a multiprocessor
constexpr KnobRow kKnobs[] = {
    {.name = "pixels", .cudnn_type = kKnobTileM, .domain = kPixelsDomain},
    {.name = "rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
    {.name = "steps",
     .cudnn_type = kKnobTileSize,
     .domain = kStepsDomain,
     .in_text = InText::kNothing},
    {.name = "splits", .cudnn_type = kKnobSplitKSlices, .domain = kSplitsDomain},
};
enum { kPixels, kRows, kSteps, kSplits };

constexpr int64_t kMostChannels = 4, kMostDgradChannels = 8;

FirstLayerKnobs KnobsOf(std::span<const int> knobs) {
  return {.rows = knobs[kRows], .steps = knobs[kSteps]};
}

FirstLayerDgradKnobs DgradKnobsOf(std::span<const int> knobs) {
  return {.pixels = knobs[kPixels], .rows = knobs[kRows], .blocks = knobs[kSplits]};
}

int64_t SharedOf(const FirstLayerPlan& p) {
  return (p.panel_elements() + p.staged_elements() * (p.wide ? 2 : 1)) * 2 + 16;
}

// The padded walk reads no pixel in part: an odd number of channels leaves a slot that must be
// finite, which staging clears.
Status CheckShape(const Group& group, const ConvShape& s) {
  constexpr int64_t kMostProducts = 64, kMostColumns = 12;
  const int64_t most = s.is_dgrad() ? kMostDgradChannels : kMostChannels;
  if (s.groups != 1 || s.channels < 1 || s.channels > most)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "there are {} groups of {} channels; it takes one of 1 to {}", s.groups,
                         s.channels, most);
  if (s.spatial > 2)
    return Status::Error(Code::kUnsupportedGraphPattern, "there are {} spatial dims, more than 2",
                         s.spatial);
  if (s.filters % 8 != 0)
    return Status::Error(Code::kUnsupportedGraphPattern, "{} filters are no multiple of 8",
                         s.filters);
  if (s.is_dgrad()) return CheckFirstLayerDgrad(group, s);
  const FirstLayerPlan plan = PlanOf(group, s, {.rows = 2, .steps = 1});
  const FirstLayerWgradSizes sizes = WgradSizesOf(group, s, plan);
  if (s.is_wgrad() && sizes.per_warp > kMostColumns)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the filter takes {} tiles of 8 columns a warp; at most {} have room",
                         sizes.per_warp, kMostColumns);
  if (plan.products > kMostProducts)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the filter takes {} products of 16; at most {} are unrolled",
                         plan.products, kMostProducts);
  return {};
}

// Cycles of an element that a multiprocessor stages: its share of an asynchronous copy, whose way
// nobody waits for, or of a read that the block waits for.
constexpr double kAsyncCycles = 0.06, kStageCycles = 0.4;
double StageCycles(bool async, int64_t elements) {
  return (async ? kAsyncCycles : kStageCycles) * static_cast<double>(elements);
}

// Cycles of the busiest multiprocessor.
double FpropCycles(const Group& group, const Target& target, const ConvShape& shape,
                   const FirstLayerPlan& p, int pixels) {
  const double tiles = pixels / 16.0;
  const double units = std::ceil(static_cast<double>(p.rows * p.columns) / pixels / 4) * 4;
  const auto sets = static_cast<double>(p.sets);
  const double product =
      std::max(tiles * sets * FirstLayerProductCycles(target) / 4, tiles * 4 + sets * 2);
  double piece = units * static_cast<double>(p.products) * product * 1.15;
  piece += StageCycles(p.wide, p.staged_elements());
  piece += static_cast<double>(p.panel_elements()) / static_cast<double>(p.steps) * 0.25;
  const int64_t blocks = CeilDiv(PiecesOf(group, shape, p), p.steps) * p.slabs;
  const auto waves = static_cast<double>(CeilDiv(blocks, std::max(target.multiprocessors, 1)));
  return waves * static_cast<double>(p.steps) * piece;
}

double WgradCycles(const Group& group, const Target& target, const ConvShape& shape,
                   const FirstLayerPlan& p, const FirstLayerWgradSizes& s, int splits) {
  // Four warps, a tensor core each; all read through one port.
  const auto products = static_cast<double>(s.per_warp * s.tiles);
  const double reads = 4 * static_cast<double>(s.per_warp * 2 + s.tiles * 4);
  const double product = 1.25 * std::max(products * FirstLayerProductCycles(target), reads);
  double piece = static_cast<double>(s.pixels) / 16 * product;
  piece += StageCycles(s.async, p.staged_elements() + s.pixels * s.tiles * 4);
  const double resident = std::min(splits, s.shared_bytes > 110 * 1024 ? 1 : 2);
  piece *= resident == 1 ? 1.3 : 1;  // nothing hides the staging
  const auto pieces = static_cast<double>(PiecesOf(group, shape, p) * s.slabs);
  const double all = pieces / std::max(target.multiprocessors, 1) * piece;
  constexpr double kSumCycles = 8000;
  return all + kSumCycles * (1 + splits / 4.0);
}

class FirstLayerEnginePlan {
 public:
  FirstLayerEnginePlan(const Group& group, const Target& target, ConvShape shape)
      : group_(group),
        target_(target),
        machine_(MachineOf(target)),
        shape_(std::move(shape)),
        floor_bytes_(static_cast<double>(FloorBytes(group))) {}

  std::vector<Proposal> Proposals() const;
  Estimate EstimateOf(std::span<const int> knobs) const;
  Result<Lowered> Lower(std::span<const int> knobs) const;

 private:
  std::vector<std::vector<int>> Choices() const;
  double Seconds(double cycles) const;

  const Group& group_;
  const Target& target_;
  Machine machine_;
  ConvShape shape_;
  double floor_bytes_;
};

double FirstLayerEnginePlan::Seconds(double cycles) const {
  constexpr double kShareOfMemory = 0.95, kPrologueCycles = 1700;
  const double busy = machine_.Seconds(cycles);
  const double moved = floor_bytes_ / (machine_.memory * kShareOfMemory);
  return machine_.StartSeconds() + machine_.Seconds(kPrologueCycles) + std::max(busy, moved) +
         0.2 * std::min(busy, moved);
}

Estimate FirstLayerEnginePlan::EstimateOf(std::span<const int> knobs) const {
  if (shape_.is_dgrad()) {
    const FirstLayerDgradPlan plan = DgradPlanOf(group_, shape_, DgradKnobsOf(knobs));
    return {.seconds = Seconds(FirstLayerDgradCycles(target_, plan, knobs[kSplits])),
            .shared_bytes = plan.shared_bytes()};
  }
  const FirstLayerPlan plan = PlanOf(group_, shape_, KnobsOf(knobs));
  if (shape_.is_wgrad()) {
    const FirstLayerWgradSizes sizes = WgradSizesOf(group_, shape_, plan);
    const double cycles = WgradCycles(group_, target_, shape_, plan, sizes, knobs[kSplits]);
    return {.seconds = Seconds(cycles), .shared_bytes = sizes.shared_bytes};
  }
  return {.seconds = Seconds(FpropCycles(group_, target_, shape_, plan, knobs[kPixels])),
          .shared_bytes = SharedOf(plan)};
}

Result<Lowered> FirstLayerEnginePlan::Lower(std::span<const int> knobs) const {
  if (shape_.is_dgrad()) return LowerFirstLayerDgrad(group_, target_, shape_, DgradKnobsOf(knobs));
  const FirstLayerPlan plan = PlanOf(group_, shape_, KnobsOf(knobs));
  if (shape_.is_wgrad())
    return LowerFirstLayerWgrad(group_, target_, shape_, plan,
                                int64_t{knobs[kSplits]} * std::max(target_.multiprocessors, 1));
  return LowerFirstLayerFprop(group_, target_, shape_, plan, knobs[kPixels]);
}

// Choices: for a dgrad all that differ, steps are not among its knobs; for fprop the useful
// pairs of pixels and rows.
std::vector<std::vector<int>> FirstLayerEnginePlan::Choices() const {
  std::vector<std::vector<int>> all;
  if (shape_.is_dgrad()) {
    for (const int rows : {7, 4, 8, 2})
      for (const int pixels : {16, 32})
        for (const int blocks : kSplitsDomain)
          all.push_back({pixels, rows, kStepsDomain[0], blocks});
    return all;
  }
  all = NeighbouringKnobs(kKnobs);
  if (shape_.is_wgrad()) return all;
  for (const int rows : {8, 2})
    for (const int steps : kStepsDomain) all.push_back({32, rows, steps, kSplitsDomain[0]});
  return all;
}

// Knobs that batch sizes share where the model sees little difference: those it likes for most of
// them. Steps are no part of a kernel's structure.
constexpr int kSharedFprop[] = {32, 8}, kSharedDgrad[] = {16, 7};

std::vector<Proposal> FirstLayerEnginePlan::Proposals() const {
  const auto& shared = shape_.is_dgrad() ? kSharedDgrad : kSharedFprop;
  std::vector<Proposal> all;
  for (std::vector<int>& knobs : Choices()) {
    const bool is_shared = knobs[kPixels] == shared[0] && knobs[kRows] == shared[1] &&
                           knobs[kSplits] == kSplitsDomain[0];
    const Estimate of = EstimateOf(knobs);
    all.push_back({.knobs = std::move(knobs),
                   .seconds = of.seconds,
                   .shared_bytes = of.shared_bytes,
                   .preference = is_shared ? 0 : Proposal::kNotPreferred});
  }
  return all;
}

Result<FirstLayerEnginePlan> PlanGroup(const Group& group, const Target& target) {
  if (!IsConvolution(group))
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group has no convolution as its anchor");
  if (CountReductions(group) > 0)
    return Status::Error(Code::kUnsupportedGraphPattern, "the result is reduced in its group");
  if (!target.is_cuda() || target.sm_version < 80)
    return Status::Error(Code::kArchMismatch, "mma.m16n8k16 needs sm_80 or later, the target is {}",
                         target.arch);
  ConvShape shape = ShapeOf(group);
  RETURN_IF_ERROR(CheckShape(group, shape));
  // The operands, neither of which is what is made.
  const Tensor& x = group.graph[shape.in];
  const Tensor& w = group.graph[shape.is_wgrad() ? shape.y : shape.w];
  if (x.dtype != w.dtype || (x.dtype != DType::kF16 && x.dtype != DType::kBF16))
    return Status::Error(Code::kUnsupportedDataType,
                         "operands are {} and {}; both must be f16 or both bf16",
                         Info(x.dtype).text, Info(w.dtype).text);
  if (ArithmeticType(ContractionOf(group).compute) != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is not f32",
                         Info(ContractionOf(group).compute).text);
  const int64_t most = MostProductsAlone(x.dtype, WidestOutput(group.graph));
  if (!shape.is_wgrad() && shape.Products() > most)
    return Status::Error(Code::kUnsupportedShape,
                         "{} products a result; a tile's sum is one chain, of at most {}",
                         shape.Products(), most);
  return FirstLayerEnginePlan(group, target, std::move(shape));
}

constexpr int kNumerical[] = {kNoteTensorCore};

}  // namespace

const Engine kConvFirstLayerEngine = EngineOf<PlanGroup>(
    {.name = "conv_first_layer", .version = 3, .knobs = kKnobs, .numerical = kNumerical});

}  // namespace kiln::compiler
