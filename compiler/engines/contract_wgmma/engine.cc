// wgmma_sm90, wgmma_sm90_tf32, wgmma_sm90_3xtf32: contractions on Hopper's tensor cores, loaded by
// tensor maps.
//
// Takes: on sm_90a, operands that are both f16, bf16 or i8, or of 8-bit floats, and that tensor
// maps can read: channels innermost, or any of the four transpositions of a matmul, which 1x1
// filters make of NCHW images. The second engine takes f32 operands and rounds them to TF32; the
// third keeps f32 by three products of TF32 numbers for one.
//
// How: a persistent ring of TMA loads feeds warpgroups. A strided dgrad goes by phases; split k is
// summed within clusters or in a fixed order, or all tiles' steps are dealt evenly (stream-K). Up
// to two results, and up to two tensors of their shape that the epilogue reads, go by tensor maps
// where they can. Operands of the f32 engines that lie along their own axis go through registers or
// are turned in shared memory. plan.h says what becomes of an operation, contract_sm90.cuh how it
// runs. The text of a kernel is the configuration of the skeleton, its numbers, and the function
// that takes 8 neighbours of a tile through the epilogue:
//
//   function store(values: f32[8], batch, split, left, right) {
//     if left < left_size and right < right_size {
//       …index of the result from (batch, left, right)…
//       copy bias_r[0..8) <- bias[…]
//       for l in 0..8 { store y_w[l] = max(values[l] + bias_r[l], 0) }
//       copy y[…] <- y_w[0..8)
//     }
//   }
//
// Wins: for most convolutions and products on Hopper, where cuDNN 9.19 takes 1.25 times as long in
// the geometric mean of docs/results.md (H200).
//
// Declines: other GPUs and KILN_LAUNCH=minimal; an operand that a prologue computes; pixels, boxes
// or strides that tensor maps do not reach, with the sentence; more than 4 reductions of the
// result; for the third engine sums of fewer than 64 products.
#include "compiler/engines/contract_wgmma/engine.h"

#include <algorithm>
#include <cmath>

#include "compiler/engines/contract_wgmma/candidates.h"
#include "compiler/engines/contract_wgmma/plan.h"
#include "compiler/engines/contract_wgmma/tile.h"
#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/skeleton_functions.h"
#include "compiler/engines/contraction/split_sum.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

struct RegisterRow {
  int producer, consumer;
};
constexpr RegisterRow kRegisters = {40, 232};
// Where operands do not lie along k: a warp of the producer holds a panel.
constexpr RegisterRow kTurningRegisters = {72, 216}, kSplittingRegisters = {88, 208};
const RegisterRow& RegistersOf(const Sm90Plan& plan) {
  if (plan.terms == 2) return kSplittingRegisters;
  return plan.left_in_registers() || plan.prepares_right() ? kTurningRegisters : kRegisters;
}
constexpr int kVector = 8;  // neighbours that the skeleton hands over at once

// ---- the kernel
// --------------------------------------------------------------------------------------------

EpilogueAxes AxesOf(const Sm90Plan& plan) {
  return {.left_is_a = plan.left_is_a,
          .left_size = plan.left_size,
          .padded_channels = plan.padded_channels,
          .right_size = plan.right_size,
          .images = plan.images,
          .places = plan.places,
          .phases = plan.phases};
}

class Schedule {
 public:
  Schedule(const EpilogueReductions& group, const Target& target, const Sm90Plan& plan,
           const Sm90Tile& tile)
      : reductions_(group),
        group_(group.tile()),
        target_(target),
        plan_(plan),
        tile_(tile),
        b_(group.tile(), target,
           fmt::format("wgmma_sm90: tile {}x{}x{}, {} stages, cluster {}{}{}{}", tile.left,
                       tile.right, plan.depth(), StagesOf(plan, tile, target), tile.cluster,
                       tile.ping_pong ? ", ping-pong" : "", tile.fill ? ", fill" : "",
                       tile.stream     ? ", stream-K"
                       : tile.splits() ? ", split-K"
                                       : "")) {
    for (const char* reserved : {"bx", "shape", "store"}) b_.Name(reserved);
    if (!reductions_.empty())
      for (const char* reserved : {"start", "combine", "flush"}) b_.Name(reserved);
    c_ = DescribeContraction(b_, ContractionOf(group_));
  }

  void Lower(Lowered& lowered) {
    Call call{.skeleton = !reductions_.empty()       ? "contract_reduced_sm90"
                          : tile_.slot() > 0         ? "contract_full_sm90"
                          : IsPhased() || tile_.fill ? "contract_phased_sm90"
                          : tile_.stream             ? "contract_stream_sm90"
                                                     : "contract_sm90"};
    call.maps = {b_.Map("left_map", plan_.left.id, Boxed(plan_.left_map, plan_.left, tile_.left)),
                 b_.Map("right_map", plan_.right.id,
                        Boxed(plan_.right_map, plan_.right, tile_.right / tile_.cluster))};
    call.wgmma = {.columns = tile_.columns(),
                  .type = group_.graph[plan_.left.id].dtype,
                  .right_type = group_.graph[plan_.right.id].dtype,
                  .left_is_outer = plan_.left.is_outer,
                  .right_is_outer = plan_.right.is_outer};
    call.shared_bytes = SharedBytes(plan_, tile_, target_);
    Configure(call);
    const int64_t tiles = Shape(call);
    const int64_t workers = tile_.stream ? StreamWorkers(plan_, tile_, target_) : tiles;
    if (tile_.stream) {
      // Of each group: a part, and the stamp that says that it lies there.
      const int64_t blocks = workers * tile_.cluster;
      lowered.scratch_bytes = {blocks * tile_.left * tile_.right * 4, blocks * kSm90Groups * 8};
      call.buffers = {b_.Scratch(0, Accumulator(), false), b_.Scratch(1, DType::kI64, false)};
    }
    if (tile_.direct) DirectOutput(call);
    if (!tile_.direct || tile_.fill) call.functions.push_back(StoreFunction(lowered));
    PartialResults partial = Partial();
    if (!reductions_.empty()) {
      call.config.push_back({"kKeepsSums", KeepsSums() ? 1 : 0});
      partial.Allocate(lowered);
      AddReductionFunctions(b_, reductions_, partial, plan_.left_size,
                            {.images = plan_.images, .parts_of_image = TileParts()}, call);
    }
    // Persistent, but where a cluster sums: its stages hold the sums when the next tile's would
    // come.
    const int64_t blocks = tile_.split_cluster > 1 ? tiles * tile_.split_cluster
                                                   : std::min(workers, Slots()) * tile_.cluster;
    Block inner, body;
    inner.push_back({std::move(call)});
    body.push_back(
        {tile::For{"bx", t(), b_.Arg("blocks", blocks), tile::Bind::kBlockX, std::move(inner)}});
    b_.Finish(std::move(body), {blocks, 1, 1}, 128 * (kSm90Groups + 1), lowered, 1);
    lowered.kernels.back().cluster = tile_.cluster * tile_.split_cluster;
    partial.Finish(target_, lowered);
  }

 private:
  DType t() const { return b_.index_type(); }
  DType Accumulator() const { return plan_.type == DType::kI8 ? DType::kI32 : DType::kF32; }
  bool IsPhased() const { return tile_.direct && !plan_.phases.empty(); }

  TensorMapSpec Boxed(TensorMapSpec map, const Sm90Operand& operand, int rows) const {
    SetBox(map, plan_, operand, rows);
    if (plan_.terms == 2) map.type = DType::kI32;  // not rounded to tf32
    return map;
  }

  void Configure(Call& call) const {
    const RegisterRow& registers = RegistersOf(plan_);
    call.config = {
        {"kTileLeft", tile_.left},
        {"kTileRight", tile_.right},
        {"kRowBytes", plan_.row_bytes},
        {"kTerms", plan_.terms},
        {"kFolds", FoldsOf(plan_, tile_, target_)},
        {"kStages", StagesOf(plan_, tile_, target_)},
        {"kCluster", tile_.cluster},
        {"kGroupsLeft", tile_.groups_left()},
        {"kGroupsRight", tile_.groups_right()},
        {"kPingPong", tile_.ping_pong ? 1 : 0},
        {"kProducerRegisters", registers.producer},
        {"kConsumerRegisters", registers.consumer},
        {"kLeft", plan_.left.is_pixels ? 1 : 0},
        {"kRight", plan_.right.is_pixels ? 1 : 0},
        {"kSpatial", plan_.spatial},
        {"kBatched", plan_.batches > 1 ? 1 : 0},
        {"kSplit", tile_.splits() ? 1 : 0},
        {"kSplitCluster", tile_.split_cluster},
        {"kStream", tile_.stream ? 1 : 0},
        {"kPhased", plan_.phases.empty() ? 0 : 1},
        {"kMayBeEmpty", plan_.has_empty_phases() && !tile_.fill ? 1 : 0},
        {"kFills", tile_.fill ? 1 : 0},
        {"kVectorLeft", StoresAlongRight() ? 0 : 1},
        {"kBuffers", BuffersOf(plan_, tile_, target_)},
        {"kSlot", tile_.slot()},
        {"kFull", tile_.full},
        {"kResults", tile_.results},
        {"kResultBytes", tile_.result_bytes},
    };
  }

  // The output by tensor map; the epilogue as two functions of an accumulator.
  void DirectOutput(Call& call) {
    const TensorId y = graph::Outputs(group_.graph)[0];
    const auto add_map = [&](const char* name, TensorId id, TensorMapSpec map) {
      if (map.type == DType::kF32) map.type = DType::kI32;  // not rounded to tf32
      map.channels = 128 / tile_.result_bytes;
      map.pixels = BoxColumns(tile_);
      map.box = {map.channels, map.pixels, 1, 1, 1};
      call.maps.push_back(b_.Map(name, id, map));
    };
    const auto add = [&](const char* name, TensorId id) {
      add_map(name, id, *PlanSm90Matrix(group_, id, plan_));
    };
    if (IsPhased()) {
      const Result<std::vector<TensorMapSpec>> maps = PlanSm90Phases(group_.graph[y], plan_);
      for (const TensorMapSpec& map : *maps) add_map("out_map", y, map);
    } else {
      for (const TensorId id : graph::Outputs(group_.graph)) add("out_map", id);
    }
    if (tile_.slot() > 0) {
      const std::vector<TensorId> full =
          FullOperands(group_.graph, ContractionOf(group_), LeftDim(group_, plan_));
      for (const TensorId id : full) add("full_map", id);
      call.config.push_back({"kFullBf16", Bf16Mask(group_.graph, full)});
    }
    ContractionEpilogue epilogue(group_, b_, c_, AxesOf(plan_));
    std::vector<TensorId> also;
    for (const EpilogueReduction& r : reductions_.list()) also.push_back(r.operand);
    const std::vector<TensorId> results = graph::Outputs(group_.graph);
    also.insert(also.end(), results.begin() + 1, results.end());
    const bool is_i32 = group_.graph[y].dtype == DType::kI32;
    if (tile_.result_bytes == 4) call.config.push_back({"kIntResults", is_i32 ? 1 : 0});
    AddRowFunctions(b_, epilogue, Bf16Mask(group_.graph, results), call, also, tile_.full,
                    is_i32 ? DType::kI32 : DType::kF32);
    if (!reductions_.empty()) AddRightEnd(b_, plan_.right_size, call);
  }

  PartialResults Partial() const {
    const PartialAxis left{plan_.left_size, TileParts() * plan_.images};
    return {reductions_, plan_.batches / plan_.images, left, left, !plan_.left_is_a};
  }

  int64_t Slots() const { return std::max(1, target_.multiprocessors / tile_.cluster); }

  // Whether every tile of a block has the same places of left.
  bool KeepsSums() const {
    return tile_.direct && plan_.batches == 1 && plan_.phases.empty() &&
           plan_.left_size <= int64_t{tile_.left} * tile_.cluster;
  }

  // Consumer groups of one batch that share a place of left: of tiles, or of blocks.
  int64_t TileParts() const {
    if (KeepsSums())
      return std::min(TilesOf(plan_, tile_), Slots()) *
             (tile_.ping_pong ? kSm90Groups : tile_.groups_right());
    return CeilDiv(plan_.right_size, tile_.right) * NumElements(plan_.phases) *
           tile_.groups_right();
  }

  bool StoresAlongRight() const { return kiln::compiler::StoresAlongRight(plan_, tile_); }

  // Returns the number of tiles, in clusters.
  int64_t Shape(Call& call) {
    const int64_t left_tiles = CeilDiv(plan_.left_size, int64_t{tile_.left} * tile_.cluster);
    const int64_t right_tiles = CeilDiv(plan_.right_size, tile_.right);
    const auto one = [&](const std::string& member, const std::string& name, int64_t value) {
      call.shape.push_back({member, b_.Arg(name, value)});
    };
    const auto add = [&](const std::string& name, int64_t value) {
      if (!IsSm90Divisor(name)) return one(name, name, value);
      const Magic magic = MagicFor(std::max<int64_t>(value, 1));
      one(name + ".value", name, value);
      one(name + ".mul", name + "_mul", static_cast<int32_t>(magic.mul));
      one(name + ".shift", name + "_shift", magic.shift);
    };
    const int64_t bands = CeilDiv(left_tiles, tile_.raster);
    add("left_tiles", left_tiles);
    add("right_tiles", right_tiles);
    add("band_tiles", tile_.raster * right_tiles);
    add("raster", tile_.raster);
    add("last_band", bands - 1);
    add("last_raster", left_tiles - (bands - 1) * tile_.raster);
    add("k_steps", plan_.k_steps);
    if (plan_.batches > 1) {
      add("batches", plan_.batches);
      add("batch_tiles", left_tiles * right_tiles);
    }
    if (tile_.stream) {
      const int64_t workers = StreamWorkers(plan_, tile_, target_);
      const int64_t steps = TilesOf(plan_, tile_) * plan_.k_steps;
      add("workers", workers);
      add("tile_steps", plan_.k_steps);
      add("worker_steps", steps / workers);
      add("longer_workers", steps % workers);
      // Of `n` neighbouring steps the first and the last may belong to tiles of others.
      add("worker_tiles", CeilDiv(CeilDiv(steps, workers) - 1, plan_.k_steps) + 1);
    }
    if (tile_.splits()) {
      add("splits", tile_.split_k);
      add("slices", tile_.slices());
      add("whole_tiles", left_tiles * right_tiles * plan_.batches);
    }
    if (!plan_.phases.empty()) {
      const int64_t phases = NumElements(plan_.phases);
      const int64_t clusters = std::max(1, target_.multiprocessors / tile_.cluster);
      add("phases", phases);
      add("turn", std::max<int64_t>(clusters / phases, 1));
      if (tile_.fill) add("fill_steps", plan_.all_steps / (phases - plan_.tap_phases));
    }
    for (const auto& [name, value] : plan_.shape) add(name, value);
    return TilesOf(plan_, tile_) * tile_.slices() * NumElements(plan_.phases);
  }

  Call::Function StoreFunction(Lowered& lowered) {
    Call::Function f{.name = "store"};
    const DType accumulator = Accumulator();
    const std::string values = AddArray(b_, f, "values", accumulator, kVector);
    const Expr batch = AddScalar(b_, f, "batch", t()), split = AddScalar(b_, f, "split", t());
    const Expr left = AddScalar(b_, f, "left", t()), right = AddScalar(b_, f, "right", t());
    std::string sums;
    if (!reductions_.empty())
      sums = AddArray(b_, f, "sums", DType::kF32, int64_t{kVector} * reductions_.count(), true);
    if (tile_.slices() > 1) {
      StoreSlice(f.body, lowered, values, accumulator, batch, split, left, right);
    } else {
      StoreResult(f.body, values, accumulator, batch, split, left, right, sums);
    }
    return f;
  }

  // split-K: the partial sums, to be added up by SumSplits.
  void StoreSlice(Block& out, Lowered& lowered, const std::string& values, DType type,
                  const Expr& batch, const Expr& split, const Expr& left, const Expr& right) {
    const int64_t pitch = AlignUp(plan_.left_size, kVector);
    lowered.scratch_bytes = {int64_t{tile_.slices()} * plan_.batches * plan_.right_size * pitch *
                             SizeOf(type)};
    const std::string slices = b_.Scratch(0, type, false);
    const Expr right_size = b_.Arg("right_size", plan_.right_size);
    Block inside;
    Expr row = split;
    if (plan_.batches > 1) row = row * b_.Arg("slice_batches", plan_.batches) + batch;
    const Expr pitch_arg = b_.Arg("slice_pitch", pitch);
    const Expr at = b_.Let(inside, "at", (row * right_size + right) * pitch_arg + left);
    WideCopy(inside, type, slices, at, values, b_.Idx(0), kVector);
    out.push_back({tile::If{
        tile::And(tile::Lt(left, pitch_arg), tile::Lt(right, right_size)), std::move(inside), {}}});
  }

  // `phase` is that of a strided dgrad; sums[neighbour][reduction] takes in what is reduced.
  void StoreResult(Block& out, const std::string& values, DType type, const Expr& batch,
                   const Expr& phase, const Expr& left, const Expr& right,
                   const std::string& sums) {
    EpilogueAxes axes = AxesOf(plan_);
    axes.along_right = StoresAlongRight();
    ContractionEpilogue epilogue(group_, b_, c_, axes);
    ReduceNeighbour reduce;
    if (!reductions_.empty())
      reduce = [&](Block& one, ValueScope& scope, const Index& index, const Expr& neighbour) {
        AddToSums(b_, reductions_, sums, one, scope, index, neighbour);
      };
    StoreNeighbours(b_, epilogue, out, values, type, kVector, batch, left, right, phase, reduce);
  }

  const EpilogueReductions& reductions_;
  const Group& group_;  // what its tiles make
  const Target& target_;
  const Sm90Plan& plan_;
  const Sm90Tile& tile_;
  KernelBuilder b_;
  Contraction c_{};
};

// ---- the engine's row
// --------------------------------------------------------------------------------------

constexpr int kMostReductions = 4;

// Reductions over the right axis alone, or over both.
Status SupportsReductions(const Group& group, const Sm90Plan& plan) {
  if (CountReductions(group) == 0) return {};
  const EpilogueReductions reductions(group);
  if (reductions.count() > kMostReductions)
    return Status::Error(Code::kUnsupportedGraphPattern, "the result is reduced {} times; {} fit",
                         reductions.count(), kMostReductions);
  for (const EpilogueReduction& r : reductions.list()) {
    if (r.type != DType::kF32)
      return Status::Error(Code::kUnsupportedDataType, "{} is computed in {}, not f32",
                           group.graph[r.result].name, Info(r.type).text);
    if (plan.padded_channels != 0 || (plan.left_is_a ? r.keeps.n : r.keeps.m))
      return Status::Error(Code::kUnsupportedGraphPattern,
                           "{} reduces the axis that is contiguous in the result",
                           group.graph[r.result].name);
  }
  return {};
}

bool IsOperandType(DType type) {
  constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8};
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

Status SupportsOperands(const Tensor& a, const Tensor& b, bool tf32) {
  if (tf32) {
    if (a.dtype == DType::kF32 && b.dtype == DType::kF32) return {};
    return Status::Error(Code::kUnsupportedDataType, "operands are {} and {}; both must be f32",
                         Info(a.dtype).text, Info(b.dtype).text);
  }
  const bool floats8 =
      SizeOf(a.dtype) == 1 && IsFloat(a.dtype) && SizeOf(b.dtype) == 1 && IsFloat(b.dtype);
  if ((a.dtype == b.dtype || floats8) && IsOperandType(a.dtype)) return {};
  return Status::Error(Code::kUnsupportedDataType,
                       "operands are {} and {}; both must be one of f16, bf16, e4m3, e5m2, i8",
                       Info(a.dtype).text, Info(b.dtype).text);
}

// Seen on an H200: sums of 9 products are off by up to 6 * 2^-24 of their magnitudes, half as much
// again as 4 of them may be in f32. Over long sums f32 itself rounds more.
constexpr int64_t kShortestSum3xTf32 = 64;

Status SupportsTypes(const Group& group, const Target& target, bool tf32, int terms = 1) {
  if (group.kind != GroupKind::kContract)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group has no contraction as its anchor");
  if (!target.is_cuda() || target.sm_version != 90)
    return Status::Error(Code::kArchMismatch, "wgmma needs sm_90a, the target is {}", target.arch);
  if (target.minimal_launch)
    return Status::Error(Code::kArchMismatch,
                         "KILN_LAUNCH=minimal allows neither tensor maps nor clusters");
  const graph::Node& anchor = ContractionOf(group);
  const Tensor &a = group.graph[anchor.inputs[0]], &b = group.graph[anchor.inputs[1]];
  RETURN_IF_ERROR(SupportsOperands(a, b, tf32));
  const DType arithmetic = a.dtype == DType::kI8 ? DType::kI32 : DType::kF32;
  if (ArithmeticType(anchor.compute) != arithmetic)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is not {}",
                         Info(anchor.compute).text, Info(arithmetic).text);
  const auto producers = graph::Producers(group.graph);
  for (const TensorId id : anchor.inputs) {
    if (producers[id] >= 0 || group.graph[id].by_value)
      return Status::Error(Code::kUnsupportedGraphPattern,
                           "operand {} is computed by a prologue; tensor maps read memory as it is",
                           group.graph[id].name);
  }
  ASSIGN_OR_RETURN(const Sm90Plan plan, PlanSm90(group, terms));
  if (const int64_t sum = plan.k_steps * plan.depth(); terms == 2 && sum < kShortestSum3xTf32)
    return Status::Error(Code::kUnsupportedShape, "{} products are summed, fewer than {}", sum,
                         kShortestSum3xTf32);
  return SupportsReductions(group, plan);
}

Status Supports(const Group& group, const Target& target) {
  return SupportsTypes(group, target, false);
}
template <int kTerms>
Status SupportsF32(const Group& group, const Target& target) {
  return SupportsTypes(group, target, true, kTerms);
}

template <int kTerms>
Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(const Sm90Plan plan, PlanSm90(group, kTerms));
  const Sm90Tile tile =
      Sm90TileModel(group, target, plan).Tile(WithRoomForTotals(plan, TileOf(knobs), target));
  if (!IsLegal(plan, tile, target))
    return Status::Error(Code::kUnsupportedShape, "no kernel has the tile {}",
                         KnobText(kWgmmaSm90Engine, knobs));
  Lowered lowered;
  const EpilogueReductions reductions(group);
  Schedule(reductions, target, plan, tile).Lower(lowered);
  if (tile.slices() > 1) {
    SumSplits(group, target,
              {.splits = tile.slices(),
               .batches = plan.batches,
               .left_pitch = AlignUp(plan.left_size, kVector),
               .accumulator = plan.type == DType::kI8 ? DType::kI32 : DType::kF32,
               .axes = AxesOf(plan)},
              lowered);
  }
  return lowered;
}

template <int kTerms>
double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  const auto plan = PlanSm90(group, kTerms);
  if (!plan.ok()) return kNoSeconds;
  const Sm90TileModel model(group, target, *plan);
  return model.Seconds(model.Tile(WithRoomForTotals(*plan, TileOf(knobs), target)));
}

template <int kTerms>
int64_t SharedBytesOf(const Group& group, const Target& target, std::span<const int> knobs) {
  const auto plan = PlanSm90(group, kTerms);
  if (!plan.ok()) return 0;
  const Sm90Tile tile = WithRoomForTotals(*plan, TileOf(knobs), target);
  return SharedBytes(*plan, Sm90TileModel(group, target, *plan).Tile(tile), target);
}

template <int kTerms>
std::vector<Proposal> Proposals(const Group& group, const Target& target) {
  const auto plan = PlanSm90(group, kTerms);
  if (!plan.ok()) return {};
  const Sm90TileModel model(group, target, *plan);
  std::vector<Proposal> all;
  for (const Sm90Tile& knobs : UsefulSm90Tiles(*plan, target, model)) {
    const Sm90Tile tile = model.Tile(knobs);
    all.push_back({.knobs = KnobsOf(tile),
                   .seconds = model.Seconds(tile),
                   .shared_bytes = SharedBytes(*plan, tile, target),
                   .preference = Sm90Preference(*plan, tile)});
  }
  return all;
}

template <int kTerms>
std::vector<std::vector<int>> Candidates(const Group& group, const Target& target) {
  const auto plan = PlanSm90(group, kTerms);
  if (!plan.ok()) return {DefaultKnobs(kWgmmaSm90Engine)};
  const Sm90TileModel model(group, target, *plan);
  std::vector<std::vector<int>> all;
  for (const Sm90Tile& tile : UsefulSm90Tiles(*plan, target, model)) all.push_back(KnobsOf(tile));
  return all;
}

constexpr int kBehavior[] = {kNoteRuntimeCompilation};
constexpr int kNumerical[] = {kNoteTensorCore};
constexpr int kNumericalTf32[] = {kNoteTensorCore, kNoteDownConvertInputs};

}  // namespace

const Engine kWgmmaSm90Engine = {.name = "wgmma_sm90",
                                 .version = 6,
                                 .knobs = kSm90Knobs,
                                 .notes = {.numerical = kNumerical, .behavioral = kBehavior},
                                 .supports = Supports,
                                 .cost = Cost<1>,
                                 .lower = Lower<1>,
                                 .shared_bytes = SharedBytesOf<1>,
                                 .candidates = Candidates<1>,
                                 .propose = Proposals<1>};

// Tensor maps round f32 to TF32 on the way; wgmma takes it along k only, other operands go through
// registers or are turned in shared memory.
const Engine kWgmmaSm90Tf32Engine = {
    .name = "wgmma_sm90_tf32",
    .version = 4,
    .knobs = kSm90Knobs,
    .notes = {.numerical = kNumericalTf32, .behavioral = kBehavior},
    .supports = SupportsF32<1>,
    .cost = Cost<1>,
    .lower = Lower<1>,
    .shared_bytes = SharedBytesOf<1>,
    .candidates = Candidates<1>,
    .propose = Proposals<1>};

// f32 operands with all their bits: each the sum of two TF32 numbers, of whose four products the
// three are summed that count.
const Engine kWgmmaSm903xTf32Engine = {.name = "wgmma_sm90_3xtf32",
                                       .version = 1,
                                       .knobs = kSm90Knobs3xTf32,
                                       .notes = {.numerical = kNumerical, .behavioral = kBehavior},
                                       .supports = SupportsF32<2>,
                                       .cost = Cost<2>,
                                       .lower = Lower<2>,
                                       .shared_bytes = SharedBytesOf<2>,
                                       .candidates = Candidates<2>,
                                       .propose = Proposals<2>};

}  // namespace kiln::compiler
