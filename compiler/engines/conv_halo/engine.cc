// conv_halo_sm90: convolutions of stride 1 with few channels on Hopper's tensor cores, from tiles
// whose halo is loaded once.
//
// Takes: on sm_90a, fprop and dgrad with up to 64 channels along k and wgrad with any, one group,
// f16 or bf16, f32 sums, filters of 1 to 3 spatial dims.
//
// How: a tile and its halo stand in shared memory once; a tap is another start of wgmma's operand.
// Filters with planes along depth add them up one by one, weights coming anew for each pair of
// tiles. plan.h says what becomes of an operation, conv_halo_sm90.cuh and wgrad_halo_sm90.cuh how
// it runs; here are knobs and the kernels' text: the configuration of the skeletons, their numbers,
// and the functions that take a tile through the epilogue.
//
// Wins: for 3x3, 3x3x3 and the like with 64 channels, where im2col is bound by the L2 cache: 80.3
// us instead of 128.4 for 64 channels @56x56, N 256 (H200).
//
// Declines: another stride; groups; an operand that a prologue computes; results that are reduced
// in the group; filters, halos or rows that do not fit a box; sums longer than one chain of
// products may be.
#include "compiler/engines/conv_halo/engine.h"

#include <algorithm>
#include <utility>

#include "compiler/engines/contraction/skeleton_functions.h"
#include "compiler/engines/contraction/split_sum.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/conv_halo/plan.h"
#include "compiler/engines/engine_of.h"
#include "compiler/engines/knob_types.h"
#include "compiler/kernel/halo_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

// No rows: the model's choice of both knobs. No width: that of the image.
constexpr int kRowsDomain[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32};
constexpr int kWidthDomain[] = {0,  248, 240, 224, 192, 160, 128, 120, 112, 96, 84,
                                80, 75,  64,  62,  60,  56,  48,  40,  32,  28};
constexpr KnobRow kKnobs[] = {
    {.name = "tile_rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
    {.name = "tile_width", .cudnn_type = kKnobTileCols, .domain = kWidthDomain},
};
enum { kRowsKnob, kWidthKnob };

constexpr int kVector = 8;  // neighbours that conv_halo_sm90 hands over at once
constexpr int kPair = 2;    // wgrad_halo_sm90

// Registers of the producer's threads and of the others', by the number of consumer groups. One
// group has what it needs from the start.
struct RegisterSplit {
  int producer, consumer;
};
constexpr RegisterSplit kRegisters[] = {{}, {0, 0}, {40, 232}, {32, 160}};

// The tiles that have a kernel, none taller or wider than the image asks for.
std::vector<HaloTile> LegalTiles(const HaloPlan& plan, const Target& target) {
  std::vector<HaloTile> all;
  for (const int rows : kRowsDomain) {
    if (rows == 0 || rows / 2 >= plan.places_h) continue;
    for (const int width : kWidthDomain) {
      const HaloTile tile{.rows = rows, .width = width};
      if (width < plan.places_w && CheckTile(plan, tile, target).ok()) all.push_back(tile);
    }
  }
  return all;
}

// The fastest of `tiles` beside what memory takes; where there is none, one that no kernel has.
HaloTile FastestOf(const HaloPlan& plan, const std::vector<HaloTile>& tiles, const Target& target) {
  const auto best = std::ranges::min_element(
      tiles, {}, [&](const HaloTile& tile) { return HaloSeconds(plan, tile, target, 0); });
  return best == tiles.end() ? HaloTile{} : *best;
}

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, HaloPlan plan, const HaloTile& tile)
      : group_(group),
        target_(target),
        plan_(std::move(plan)),
        g_(GeometryOf(plan_, tile, target)),
        b_(group, target,
           fmt::format("conv_halo_sm90: tile {}x{}, {} buffers{}", g_.rows, g_.width, g_.buffers,
                       g_.is_strips ? ", strips" : "")) {
    for (const char* reserved : {"bx", "shape", "store", "rows", "apply"}) b_.Name(reserved);
    c_ = DescribeContraction(b_, ContractionOf(group));
    HaloBoxes(plan_, g_);
  }

  void Lower(Lowered& lowered) {
    Call call{.skeleton = plan_.is_wgrad       ? "wgrad_halo_sm90"
                          : plan_.is_deep      ? "conv_halo_deep_sm90"
                          : plan_.full.empty() ? "conv_halo_sm90"
                                               : "conv_halo_full_sm90",
              .wgmma = {.columns = g_.columns,
                        .type = plan_.type,
                        .right_type = plan_.type,
                        .left_is_outer = plan_.is_wgrad || plan_.left_is_outer,
                        .right_is_outer = plan_.is_wgrad},
              .shared_bytes = g_.shared_bytes};
    Configure(call);
    if (plan_.is_wgrad)
      Wgrad(call, lowered);
    else
      FpropOrDgrad(call);
    Shape(call);
    Block inner, body;
    inner.push_back({std::move(call)});
    body.push_back(
        {tile::For{"bx", t(), b_.Arg("blocks", g_.blocks), tile::Bind::kBlockX, std::move(inner)}});
    b_.Finish(std::move(body), {g_.blocks, 1, 1}, 128 * (plan_.groups() + 1), lowered, 1);
    if (plan_.is_wgrad) SumSplits(group_, target_, Slices(), lowered);
  }

 private:
  DType t() const { return b_.index_type(); }

  void Configure(Call& call) const {
    const RegisterSplit registers = kRegisters[plan_.groups()];
    call.config = {
        {halo::kTileRows, g_.rows},
        {halo::kTileWidth, g_.width},
        {halo::kStrips, g_.is_strips ? 1 : 0},
        {halo::kFilterH, plan_.filter_h},
        {halo::kFilterW, plan_.filter_w},
        {halo::kDilationH, plan_.dilation_h},
        {halo::kDilationW, plan_.dilation_w},
        {halo::kColumns, g_.columns},
        {halo::kProducerRegisters, registers.producer},
        {halo::kConsumerRegisters, registers.consumer},
    };
    const auto add = [&](const ConfigMember& member, int64_t value) {
      call.config.push_back({member, value});
    };
    add(halo::kFilterD, plan_.filter_d);
    add(halo::kDilationD, plan_.dilation_d);
    if (plan_.is_wgrad) {
      add(halo::kStages, g_.buffers);
      add(halo::kGroups, plan_.wgrad_groups);
      add(halo::kTapsOfWgmma, g_.columns / 64);
      return;
    }
    add(halo::kWeightRows, plan_.weight_rows());
    add(halo::kWeightBarriers, plan_.is_deep ? 2 * kDeepWeightRows : 1);
    add(halo::kBuffers, g_.buffers);
    add(halo::kBufferBytes, g_.buffer_bytes);
    add(halo::kFull, static_cast<int64_t>(plan_.full.size()));
    add(halo::kOutBytes, g_.out_bytes);
    add(halo::kRowBytes, plan_.row_bytes);
    add(halo::kSteps, g_.steps);
    add(halo::kMirrored, plan_.is_mirrored ? 1 : 0);
  }

  void Shape(Call& call) {
    const auto add = [&](const ShapeMember& member, int64_t value) {
      AddShapeMember(b_, call, member, value);
    };
    add(halo::left_tiles, plan_.left_tiles());
    if (plan_.is_wgrad) {
      add(halo::panels, plan_.panels());
      add(halo::sets, plan_.sets());
    } else {
      add(halo::places_h, plan_.places_h);
      add(halo::places_w, plan_.places_w);
    }
    add(halo::images, plan_.images);
    add(halo::strips_h, g_.strips_h);
    add(halo::strips_w, g_.strips_w);
    add(halo::low_h, plan_.low_h);
    add(halo::low_w, plan_.low_w);
    if (!plan_.is_deep) return;
    add(halo::depth, plan_.places_d);
    add(halo::in_depth, plan_.in_depth);
    add(halo::low_d, plan_.low_d);
  }

  void FpropOrDgrad(Call& call) {
    call.maps = {b_.Map("weights_map", plan_.conv.w, plan_.left),
                 b_.Map("pixels_map", plan_.conv.in, plan_.right)};
    ContractionEpilogue epilogue(group_, b_, c_,
                                 {.left_size = plan_.left_size, .right_size = ResultSize()});
    if (plan_.is_direct) {
      const TensorId y = graph::Outputs(group_.graph)[0];
      call.maps.push_back(b_.Map("out_map", y, plan_.out));
      for (size_t i = 0; i < plan_.full.size(); ++i)
        call.maps.push_back(b_.Map("full_map", plan_.full[i], plan_.full_maps[i]));
      if (!plan_.full.empty())
        call.config.push_back({halo::kFullBf16, Bf16Mask(group_.graph, plan_.full)});
      AddRowFunctions(b_, epilogue, Bf16Mask(group_.graph, {y}), call, {},
                      static_cast<int>(plan_.full.size()));
      return;
    }
    Call::Function f{.name = "store"};
    const std::string values = AddArray(b_, f, "values", DType::kF32, kVector);
    const Expr batch = AddScalar(b_, f, "batch", t());
    AddScalar(b_, f, "split", t());
    const Expr left = AddScalar(b_, f, "left", t()), right = AddScalar(b_, f, "right", t());
    StoreNeighbours(b_, epilogue, f.body, values, DType::kF32, kVector, batch, left, right);
    call.functions.push_back(std::move(f));
  }

  int64_t ResultSize() const {
    return plan_.images * plan_.places_d * plan_.places_h * plan_.places_w;
  }

  // ---- wgrad: slices, to be added up by SumSplits

  SplitSlices Slices() const {
    const int64_t taps = plan_.taps();
    const int64_t padded = int64_t{plan_.panels()} * 64;
    return {
        .splits = g_.blocks / plan_.parts(),
        .left_pitch = taps * padded,
        .axes = {
            .left_size = taps * padded, .padded_channels = padded, .right_size = plan_.left_size}};
  }

  void Wgrad(Call& call, Lowered& lowered) {
    call.maps = {b_.Map("dy_map", plan_.conv.y, plan_.left),
                 b_.Map("x_map", plan_.conv.x, plan_.right)};
    const SplitSlices s = Slices();
    lowered.scratch_bytes = {s.splits * s.axes.right_size * s.left_pitch * SizeOf(s.accumulator)};
    const std::string slices = b_.Scratch(0, s.accumulator, false);
    const Expr right_size = b_.Arg("right_size", s.axes.right_size);
    const Expr pitch = b_.Arg("slice_pitch", s.left_pitch);
    Call::Function f{.name = "store"};
    const std::string values = AddArray(b_, f, "values", s.accumulator, kPair);
    const Expr split = AddScalar(b_, f, "split", t()), left = AddScalar(b_, f, "left", t());
    const Expr right = AddScalar(b_, f, "right", t());
    Block inside;
    const Expr at = b_.Let(inside, "at", (split * right_size + right) * pitch + left);
    WideCopy(inside, s.accumulator, slices, at, values, b_.Idx(0), kPair);
    f.body.push_back({tile::If{tile::Lt(right, right_size), std::move(inside), {}}});
    call.functions.push_back(std::move(f));
  }

  const Group& group_;
  const Target& target_;
  HaloPlan plan_;
  const HaloGeometry g_;
  KernelBuilder b_;
  Contraction c_{};
};

// ---- the engine's row

class HaloEnginePlan {
 public:
  HaloEnginePlan(const Group& group, const Target& target, HaloPlan plan,
                 std::vector<HaloTile> legal)
      : group_(group),
        target_(target),
        plan_(std::move(plan)),
        legal_(std::move(legal)),
        floor_bytes_(static_cast<double>(FloorBytes(group))),
        scattered_(ScatteredSeconds(group, target)) {}

  std::vector<Proposal> Proposals() const;

  Estimate EstimateOf(std::span<const int> knobs) const {
    const HaloTile tile = TileOf(knobs);
    Estimate of{.shared_bytes = GeometryOf(plan_, tile, target_).shared_bytes};
    if (CheckTile(plan_, tile, target_).ok())
      of.seconds = HaloSeconds(plan_, tile, target_, floor_bytes_) + scattered_;
    return of;
  }

  Result<Lowered> Lower(std::span<const int> knobs) const {
    const HaloTile tile = TileOf(knobs);
    RETURN_IF_ERROR(CheckTile(plan_, tile, target_));
    Lowered lowered;
    Schedule(group_, target_, plan_, tile).Lower(lowered);
    return lowered;
  }

 private:
  HaloTile TileOf(std::span<const int> knobs) const {
    if (knobs[kRowsKnob] > 0) return {.rows = knobs[kRowsKnob], .width = knobs[kWidthKnob]};
    return FastestOf(plan_, legal_, target_);
  }

  const Group& group_;
  const Target& target_;
  HaloPlan plan_;
  std::vector<HaloTile> legal_;
  double floor_bytes_, scattered_;
};

// The tile for many images is the one that all batch sizes share.
constexpr int64_t kManyImages = 1024;

std::vector<Proposal> HaloEnginePlan::Proposals() const {
  HaloPlan many = plan_;
  many.images = kManyImages;
  const HaloTile shared = FastestOf(many, LegalTiles(many, target_), target_);
  const HaloTile best = FastestOf(plan_, legal_, target_);
  std::vector<Proposal> all;
  for (const HaloTile& tile : legal_) {
    all.push_back({.knobs = {tile.rows, tile.width},
                   .seconds = HaloSeconds(plan_, tile, target_, floor_bytes_) + scattered_,
                   .shared_bytes = GeometryOf(plan_, tile, target_).shared_bytes,
                   .preference = tile == shared ? 0 : Proposal::kNotPreferred});
    if (tile == best) std::rotate(all.begin(), all.end() - 1, all.end());
  }
  return all;
}

Result<HaloEnginePlan> PlanOf(const Group& group, const Target& target) {
  if (!IsConvolution(group))
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group has no convolution as its anchor");
  if (CountReductions(group) > 0)
    return Status::Error(Code::kUnsupportedGraphPattern, "the result is reduced in its group");
  if (!target.is_cuda() || target.sm_version != 90)
    return Status::Error(Code::kArchMismatch, "wgmma needs sm_90a, the target is {}", target.arch);
  if (target.minimal_launch)
    return Status::Error(Code::kArchMismatch, "KILN_LAUNCH=minimal allows no tensor maps");
  const graph::Node& anchor = ContractionOf(group);
  const Tensor &a = group.graph[anchor.inputs[0]], &b = group.graph[anchor.inputs[1]];
  if (a.dtype != b.dtype || (a.dtype != DType::kF16 && a.dtype != DType::kBF16))
    return Status::Error(Code::kUnsupportedDataType,
                         "operands are {} and {}; both must be f16 or bf16", Info(a.dtype).text,
                         Info(b.dtype).text);
  if (ArithmeticType(anchor.compute) != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is not f32",
                         Info(anchor.compute).text);
  const auto producers = graph::Producers(group.graph);
  for (const TensorId id : anchor.inputs) {
    if (producers[id] >= 0 || group.graph[id].by_value)
      return Status::Error(Code::kUnsupportedGraphPattern,
                           "operand {} is computed by a prologue; tensor maps read memory as it is",
                           group.graph[id].name);
  }
  ASSIGN_OR_RETURN(HaloPlan plan, PlanHalo(group));
  if (plan.parts() > target.multiprocessors)
    return Status::Error(Code::kUnsupportedShape,
                         "{} blocks stand side by side for all channels; the device runs {}",
                         plan.parts(), target.multiprocessors);
  std::vector<HaloTile> legal = LegalTiles(plan, target);
  if (legal.empty())
    RETURN_IF_ERROR(
        CheckTile(plan, {.rows = 1, .width = kWidthDomain[std::size(kWidthDomain) - 1]}, target));
  return HaloEnginePlan(group, target, std::move(plan), std::move(legal));
}

constexpr int kNumerical[] = {kNoteTensorCore};

}  // namespace

const Engine kConvHaloSm90Engine = EngineOf<PlanOf>(
    {.name = "conv_halo_sm90", .version = 2, .knobs = kKnobs, .numerical = kNumerical});

}  // namespace kiln::compiler
