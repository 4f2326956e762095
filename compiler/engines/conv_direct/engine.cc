// conv_direct: fprop and dgrad of convolutions with few channels a group, depthwise above all, for
// which an implicit matrix product has next to no columns.
//
// Takes: on GPUs, up to 15 channels and filters a group of any type and layout, and 1 to 32 with
// f16 or bf16 and channels innermost; wgrad for depthwise convolutions of f32 sums, or on tensor
// cores with the same power of two of channels and filters.
//
// How: tiles (tiles.h) of outputs whose inputs are read once. Three designs:
//
//   tensor cores   f16 and bf16 with channels innermost, 1 to 32 channels a group, as many filters:
//                  block-diagonal products of 32 channels (mma.cc, wgrad_mma.cc)
//   FMA units      any type and layout below 16 channels a group (simt.cc, wgrad.cc)
//   ring           depthwise convolutions that can come by asynchronous copies: a ring of input
//                  rows in shared memory, each input converted once and multiplied at once for all
//                  output rows that it reaches (ring.cc)
//
// Wins: for depthwise and small groups, where cuDNN 9.19 takes 1.68 and 1.43 times as long in the
// geometric mean (H200).
//
// Declines: the CPU; more channels a group; more than 256 taps, which would be unrolled; a dgrad of
// stride above 4; results that are reduced in the group.
#include "compiler/engines/conv_direct/engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/conv_direct/designs.h"
#include "compiler/engines/conv_direct/ring.h"
#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;

constexpr int kRowsDomain[] = {2, 4, 1};
constexpr int kColsDomain[] = {4, 2};
constexpr int kStepsDomain[] = {4, 1, 8};
constexpr int kRunDomain[] = {8, 4};
constexpr int kStripDomain[] = {4, 7, 8, 2, 0};  // of the ring; 0: another design
constexpr int kLanesDomain[] = {2, 4};
constexpr int kSlabDomain[] = {64, 32};
constexpr int kPiecesDomain[] = {1, 2, 4};
constexpr KnobRow kKnobs[] = {
    {.name = "rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
    {.name = "cols", .cudnn_type = kKnobTileCols, .domain = kColsDomain},
    {.name = "steps", .cudnn_type = kKnobTileSize, .domain = kStepsDomain},
    {.name = "run", .cudnn_type = kKnobLoadSize, .domain = kRunDomain},
    {.name = "strip", .cudnn_type = kKnobTileN, .domain = kStripDomain},
    {.name = "lanes", .cudnn_type = kKnobArraySizePerThread, .domain = kLanesDomain},
    {.name = "slab", .cudnn_type = kKnobTileM, .domain = kSlabDomain},
    {.name = "pieces", .cudnn_type = kKnobSplitKSlices, .domain = kPiecesDomain},
};
enum { kRows, kCols, kSteps, kRun, kStrip, kLanes, kSlab, kPieces };

// Statements of the unrolled walk that a kernel may have: the largest tile of a 7x7 filter.
constexpr int64_t kMostProducts = 4096;
// The time that the unrolled walk takes to compile grows with the square of the taps: 7 s of 256,
// 32 of 512, two minutes and more of 1024 (filters of one row, whose tiles are small).
constexpr int64_t kMostUnrolledTaps = 256;
constexpr int64_t kMostPerGroup = 32, kMostSimtPerGroup = 15, kMostStride = 4;

DirectKnobs KnobsOf(std::span<const int> k) {
  return {.rows = k[kRows], .cols = k[kCols], .steps = k[kSteps], .run = k[kRun]};
}

bool TakesMma(const Group& group, const Target& target, const ConvShape& shape) {
  const Tensor &in = group.graph[shape.in], &w = group.graph[shape.w];
  const bool halves = in.dtype == w.dtype && (in.dtype == DType::kF16 || in.dtype == DType::kBF16);
  return target.sm_version >= 80 && halves && shape.channels == shape.filters &&
         std::has_single_bit(static_cast<uint64_t>(shape.channels)) &&
         shape.channels <= kMostPerGroup && in.dims[1] % 8 == 0 && in.strides[1] == 1 &&
         ArithmeticType(ContractionOf(group).compute) == DType::kF32;
}

// Products of one worker, which are unrolled.
int64_t Products(const Group& group, const ConvShape& shape, const DirectKnobs& knobs, bool mma) {
  const DirectSizes sizes = SizesFor(group, shape, knobs, mma ? 2 : 1);
  const int64_t strided = shape.is_dgrad() ? NumElements(shape.stride) : 1;
  const int64_t taps = CeilDiv(NumElements(shape.taps), strided);
  if (!mma)
    return sizes.rows * sizes.cols * taps * (shape.is_dgrad() ? shape.filters : shape.channels) *
           SimtLanesOf(group, shape).made;
  const auto fragments = static_cast<int64_t>(MmaPlanOf(shape, knobs.run).fragments.size());
  const int64_t phases = shape.is_dgrad() ? shape.stride.back() : 1;
  return sizes.rows * sizes.cols / 2 * 4 * CeilDiv(fragments, phases * phases);
}

Status CheckChannels(const ConvShape& shape, bool mma) {
  const int64_t most = mma ? kMostPerGroup : kMostSimtPerGroup;
  if (shape.channels >= 1 && shape.filters >= 1 && shape.channels <= most && shape.filters <= most)
    return {};
  return Status::Error(Code::kUnsupportedGraphPattern,
                       "a group has {} channels and {} filters; both must be 1 to {}",
                       shape.channels, shape.filters, most);
}

Status CheckWgrad(const Group& group, const ConvShape& shape) {
  constexpr int64_t kMostTaps = 100;
  if (shape.channels != 1 || shape.filters != 1)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "a group of wgrad has {} channels and {} filters; both must be 1, or, on "
                         "tensor cores with 16-bit channels innermost, the same power of two to 32",
                         shape.channels, shape.filters);
  if (NumElements(shape.taps) > kMostTaps)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "wgrad has {} taps; at most {} have room in registers",
                         NumElements(shape.taps), kMostTaps);
  const DType compute = ArithmeticType(ContractionOf(group).compute);
  if (compute != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "wgrad's compute type {} is not f32",
                         Info(compute).text);
  return {};
}

// Cycles of one multiprocessor on one warp's unit: reads and shared memory through the load unit,
// products, and whichever is more hides most of the other.
double UnitCycles(const Group& group, const Machine& machine, const ConvShape& shape,
                  const DirectKnobs& knobs, bool mma) {
  const DirectSizes sizes = SizesFor(group, shape, knobs, mma ? 2 : 1);
  const AxisMap cols = MapAxis(shape, shape.spatial - 1);
  const auto window_cols = static_cast<double>(WindowOf(cols, sizes.cols).size());
  double window_rows = 1;
  if (shape.spatial >= 2)
    window_rows =
        static_cast<double>(WindowOf(MapAxis(shape, shape.spatial - 2), sizes.rows).size());
  const double depth = shape.spatial == 3 ? static_cast<double>(shape.taps[0]) : 1;
  const double reads = window_rows * window_cols * depth;
  const auto products = static_cast<double>(Products(group, shape, knobs, mma));
  if (mma) {
    constexpr double kReadCycles = 6, kPanelCycles = 8;
    constexpr double kSpeed = 1.057;  // of mma.sync in these loops, beside the table's
    const double panel = products / (static_cast<double>(sizes.cols) / 2 * 4);
    const double load = reads * kReadCycles * (knobs.run == 4 ? 1.5 : 1) + panel * kPanelCycles;
    return std::max(load, products * machine.MmaCycles() / 4 / kSpeed) +
           0.25 * std::min(load, products);
  }
  // 32 threads; a conversion of each element read, an instruction for each product.
  const SimtLanes lanes = SimtLanesOf(group, shape);
  const double width = lanes.read * SizeOf(group.graph[shape.in].dtype) / 4.0;
  const double load = reads * std::max(width, 1.0) * 2 + products / sizes.cols / 2;
  const double issue = (products * machine.FmaSlots() + reads * lanes.read) / 4;
  return std::max(load, issue) + 0.25 * std::min(load, issue);
}

// Start costs of a wgrad: the kernel that makes slices, the one that adds them up, and what both
// fill first.
double WgradStartSeconds(const Machine& machine) {
  constexpr double kFillCycles = 6800;
  return 2 * machine.StartSeconds() + machine.Seconds(kFillCycles);
}

class DirectPlan {
 public:
  DirectPlan(const Group& group, const Target& target, ConvShape shape, bool takes_mma)
      : group_(group),
        target_(target),
        machine_(MachineOf(target)),
        shape_(std::move(shape)),
        takes_mma_(takes_mma),
        takes_ring_(TakesRing(group, target, shape_)),
        floor_bytes_(static_cast<double>(FloorBytes(group))) {}

  std::vector<std::vector<int>> Choices() const;
  Estimate EstimateOf(std::span<const int> knobs) const;
  Result<Lowered> Lower(std::span<const int> knobs) const;

 private:
  // The ring's plan, where it makes the group with these knobs.
  std::optional<RingPlan> RingOf(std::span<const int> k) const {
    if (k[kStrip] == 0 || !takes_ring_) return {};
    const RingPlan plan = RingPlanOf(
        group_, target_, shape_,
        {.strip = k[kStrip], .lanes = k[kLanes], .slab = k[kSlab], .pieces = k[kPieces]});
    if (!plan.fits) return {};
    return plan;
  }
  double WgradMmaSeconds(const WgradMmaPlan& p) const;
  double WgradSeconds(const DirectKnobs& knobs) const;
  double UnitsOfBusiest(const DirectKnobs& k) const;
  double ForwardSeconds(const DirectKnobs& k) const;
  Estimate WithoutRing(const DirectKnobs& k) const;

  const Group& group_;
  const Target& target_;
  Machine machine_;
  ConvShape shape_;
  bool takes_mma_, takes_ring_;  // designs; mma: on tensor cores, in either direction
  double floor_bytes_;
};

double DirectPlan::WgradMmaSeconds(const WgradMmaPlan& p) const {
  constexpr double kShareOfMemory = 0.8;
  constexpr double kSpeed = 1.024;  // of mma.sync in these loops, beside the table's
  const double bytes_per_second = machine_.memory * kShareOfMemory;
  // Cycles of a product of k of all four warps together: matrix reads through one port, mma.sync
  // on four tensor cores; then what staging and places take.
  const auto products = static_cast<double>(p.products_of_k()) / static_cast<double>(p.tap_sets);
  const auto warps = static_cast<double>(p.row_warps);
  const double reads = 4.0 * (p.row_warps > 0 ? products / 4 + 2 * warps : products / 2 + 2);
  const double busy = products * machine_.MmaCycles() / kSpeed / 4;
  const auto pixels = static_cast<double>(p.pixels);
  const auto staged = pixels + static_cast<double>(p.images * p.staged_rows * p.staged_columns);
  const double piece = pixels / 16 * (std::max(reads, busy) * 1.3 + 20) + staged * 1.2;
  const auto blocks = static_cast<double>(p.splits * p.slabs * p.tap_sets);
  const double sms = std::max(target_.multiprocessors, 1);
  const auto steps = static_cast<double>(CeilDiv(p.pieces(), p.splits));
  // Two or more blocks hide each other's waits.
  const double a_sm = std::ceil(blocks / sms);
  const double alone = std::min<double>(a_sm, static_cast<double>(p.resident)) < 2 ? 1.6 : 1;
  const double cycles = a_sm * steps * piece * alone;
  const double moved = floor_bytes_ / bytes_per_second;
  const double sums = static_cast<double>(p.splits * NumElements(group_.graph[shape_.w].dims)) * 8;
  const double seconds = machine_.Seconds(cycles);
  return WgradStartSeconds(machine_) + sums / bytes_per_second + std::max(seconds, moved) +
         0.2 * std::min(seconds, moved);
}

double DirectPlan::WgradSeconds(const DirectKnobs& knobs) const {
  constexpr double kShareOfMemory = 0.95;
  const double bytes_per_second = machine_.memory * kShareOfMemory;
  // A product, and the conversions and guards beside it.
  constexpr double kIssue = 1.7, kThreadsACycle = 128;
  const auto outputs = static_cast<double>(NumElements(group_.graph[shape_.y].dims));
  const auto taps = static_cast<double>(NumElements(shape_.taps));
  const double rows = 1 + 0.5 / knobs.rows, few = knobs.steps == 1 ? 1.5 : 1;
  const double busy = few * rows * kIssue * machine_.FmaSlots() * outputs * taps /
                      (kThreadsACycle * machine_.multiprocessors * machine_.clock);
  const double moved = floor_bytes_ / bytes_per_second;
  return WgradStartSeconds(machine_) + std::max(busy, moved) + 0.2 * std::min(busy, moved);
}

// Units of a warp that the busiest multiprocessor makes one after the other, times its warps: a
// group of blocks that does not fill it takes hardly less time than one that does.
double DirectPlan::UnitsOfBusiest(const DirectKnobs& k) const {
  constexpr double kWarps = 4;
  const DirectSizes sizes = SizesFor(group_, shape_, k, takes_mma_ ? 2 : 1);
  const double channels = static_cast<double>(group_.graph[shape_.out].dims[1]);
  const double per_unit = takes_mma_ ? 8 * 32 : 32.0 * SimtLanesOf(group_, shape_).made;
  const double slabs = takes_mma_ ? std::ceil(channels / 32) : 1;
  const double units = static_cast<double>(sizes.places()) * channels / per_unit;
  const double blocks = std::ceil(units / slabs / (kWarps * k.steps)) * slabs;
  const bool large = sizes.rows * sizes.cols >= 16 || NumElements(shape_.taps) > 9;
  const double resident = large ? 2 : 3;
  const double a_sm = std::ceil(blocks / std::max(target_.multiprocessors, 1));
  const double full = std::floor(a_sm / resident), rest = a_sm - full * resident;
  const double counted = full * resident + (rest > 0 ? (resident + rest) / 2 : 0);
  return counted * kWarps * k.steps;
}

double DirectPlan::ForwardSeconds(const DirectKnobs& k) const {
  // Shares of memory's rate that the windows' reads reach, as measured on an H200: half with tensor
  // cores, whose blocks wait for each row.
  constexpr double kMmaShare = 0.56, kShareOfMemory = 0.95, kPrologueCycles = 1700;
  const DirectSizes sizes = SizesFor(group_, shape_, k, takes_mma_ ? 2 : 1);
  // Filters are put in place once for `steps` units.
  const double setup = 1.0 + 0.5 / k.steps;
  // 128 accumulators a thread leave two warps a scheduler, and spill with many taps.
  const double full = NumElements(shape_.taps) > 9 ? 2 : 1.25;
  const double crowded = takes_mma_ && sizes.rows * sizes.cols >= 16 ? full : 1;
  const double busy = crowded * UnitsOfBusiest(k) *
                      UnitCycles(group_, machine_, shape_, k, takes_mma_) * setup / machine_.clock;
  const double rate = machine_.memory * (takes_mma_ ? kMmaShare : kShareOfMemory);
  const double moved = crowded * floor_bytes_ / rate;
  return machine_.StartSeconds() + machine_.Seconds(kPrologueCycles) + std::max(busy, moved) +
         0.1 * std::min(busy, moved);
}

// Plans of the ring, where it takes the group; then the other designs, each knob moved alone.
std::vector<std::vector<int>> DirectPlan::Choices() const {
  const std::vector<int> defaults = DefaultKnobs(kKnobs);
  std::vector<std::vector<int>> all;
  if (takes_ring_) {
    for (const int strip : kStripDomain)
      for (const int lanes : kLanesDomain)
        for (const int slab : kSlabDomain)
          for (const int pieces : kPiecesDomain) {
            std::vector<int> knobs = defaults;
            knobs[kStrip] = strip, knobs[kLanes] = lanes, knobs[kSlab] = slab;
            knobs[kPieces] = pieces;
            // Short strips of many channels are mostly halo.
            if (strip != 0 && strip >= lanes) all.push_back(std::move(knobs));
          }
  }
  std::vector<int> base = defaults, last = defaults;
  if (takes_ring_) base[kStrip] = last[kStrip] = 0;
  all.push_back(base);
  for (int knob = kRows; knob <= kRun; ++knob) {
    for (const int value : kKnobs[knob].domain) {
      all.push_back(base);
      all.back()[knob] = value;
    }
    last[knob] = kKnobs[knob].domain.back();
  }
  all.push_back(last);
  return all;
}

Estimate DirectPlan::WithoutRing(const DirectKnobs& k) const {
  if (!shape_.is_wgrad())
    return {.seconds = ForwardSeconds(k),
            .shared_bytes = takes_mma_ ? MmaSharedBytes(MmaPlanOf(shape_, k.run)) : 0};
  if (!takes_mma_) return {.seconds = WgradSeconds(k)};
  const WgradMmaPlan plan = WgradMmaPlanOf(group_, target_, shape_, k);
  return {.seconds = WgradMmaSeconds(plan), .shared_bytes = plan.shared_bytes};
}

Estimate DirectPlan::EstimateOf(std::span<const int> knobs) const {
  // Factor that the other designs take, beside their models, of groups that the ring makes, on an
  // H200.
  constexpr double kMeasured = 1.7;
  if (const auto ring = RingOf(knobs))
    return {.seconds = RingCost(group_, target_, *ring), .shared_bytes = ring->shared_bytes};
  Estimate of = WithoutRing(KnobsOf(knobs));
  of.seconds *= takes_ring_ ? kMeasured : 1;
  return of;
}

Result<Lowered> DirectPlan::Lower(std::span<const int> knobs) const {
  if (const auto ring = RingOf(knobs)) return LowerRing(group_, target_, shape_, *ring);
  const auto lower = shape_.is_wgrad() ? (takes_mma_ ? LowerDirectWgradMma : LowerDirectWgrad)
                                       : (takes_mma_ ? LowerDirectMma : LowerDirectSimt);
  return lower(group_, target_, shape_, KnobsOf(knobs));
}

Result<DirectPlan> PlanOf(const Group& group, const Target& target) {
  if (!IsConvolution(group))
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group has no convolution as its anchor");
  if (CountReductions(group) > 0)
    return Status::Error(Code::kUnsupportedGraphPattern, "the result is reduced in its group");
  if (!target.is_cuda())
    return Status::Error(Code::kArchMismatch, "the engine is for GPUs, the target is {}",
                         target.arch);
  const ConvShape shape = ShapeOf(group);
  if (shape.is_wgrad()) {
    const bool mma = TakesWgradMma(group, target, shape);
    if (!mma) RETURN_IF_ERROR(CheckWgrad(group, shape));
    return DirectPlan(group, target, shape, mma);
  }
  const bool mma = TakesMma(group, target, shape);
  RETURN_IF_ERROR(CheckChannels(shape, mma));
  if (shape.is_dgrad()) {
    for (const int64_t stride : shape.stride)
      if (stride > kMostStride)
        return Status::Error(Code::kUnsupportedGraphPattern, "dgrad's stride is {}, more than {}",
                             stride, kMostStride);
  }
  if (NumElements(shape.taps) > kMostUnrolledTaps)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the filter has {} taps, which would be unrolled; at most {} are",
                         NumElements(shape.taps), kMostUnrolledTaps);
  // The largest legal tile decides, so that no knob is refused.
  const DirectKnobs largest{.rows = 4, .cols = 4, .steps = 1, .run = 8};
  const int64_t products = Products(group, shape, largest, mma);
  if (products > kMostProducts)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "{} filter taps would unroll to {} products; at most {} are",
                         NumElements(shape.taps), products, kMostProducts);
  return DirectPlan(group, target, shape, mma);
}

constexpr int kNumerical[] = {kNoteTensorCore};

}  // namespace

const Engine kConvDirectEngine = EngineOf<PlanOf>(
    {.name = "conv_direct", .version = 3, .knobs = kKnobs, .numerical = kNumerical});

}  // namespace kiln::compiler
