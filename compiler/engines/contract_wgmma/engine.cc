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
// are turned in shared memory. plan.h says how an operation lies on tensor maps, tile.h what knobs
// make of that, kernel.cc how a kernel is written, contract_sm90.cuh how it runs. The text of a
// kernel is the configuration of the skeleton, its numbers, and the function
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
#include <utility>

#include "compiler/engines/contract_wgmma/candidates.h"
#include "compiler/engines/contract_wgmma/kernel.h"
#include "compiler/engines/contract_wgmma/plan.h"
#include "compiler/engines/contract_wgmma/tile.h"
#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/engine_of.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;

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

Status CheckTypes(const Group& group, const Target& target, bool tf32) {
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
  return {};
}

class WgmmaPlan {
 public:
  WgmmaPlan(const Group& group, const Target& target, Sm90Plan plan)
      : group_(group), target_(target), model_(group, target, std::move(plan)) {}

  std::vector<Proposal> Proposals() const {
    std::vector<Proposal> all;
    const std::vector<Sm90Tile> useful = UsefulSm90Tiles(target_, model_);
    all.reserve(useful.size());
    for (const Sm90Tile& knobs : useful) {
      const Sm90Tile tile = model_.Tile(knobs);
      all.push_back({.knobs = KnobsOf(tile),
                     .seconds = model_.Seconds(tile),
                     .shared_bytes = SharedBytes(plan(), tile, target_),
                     .preference = Sm90Preference(plan(), tile)});
    }
    return all;
  }

  Estimate EstimateOf(std::span<const int> knobs) const {
    const Sm90Tile tile = TileWith(knobs);
    return {.seconds = model_.Seconds(tile), .shared_bytes = SharedBytes(plan(), tile, target_)};
  }

  Result<Lowered> Lower(std::span<const int> knobs) const {
    const Sm90Tile tile = TileWith(knobs);
    if (!IsLegal(plan(), tile, target_))
      return Status::Error(Code::kUnsupportedShape, "no kernel has the tile {}",
                           KnobText(kSm90Knobs, knobs));
    return LowerSm90(group_, target_, plan(), tile);
  }

 private:
  const Sm90Plan& plan() const { return model_.plan(); }
  Sm90Tile TileWith(std::span<const int> knobs) const {
    return model_.Tile(WithRoomForTotals(plan(), TileOf(knobs), target_));
  }

  const Group& group_;
  const Target& target_;
  Sm90TileModel model_;
};

// Seen on an H200: sums of 9 products are off by up to 6 * 2^-24 of their magnitudes, half as much
// again as 4 of them may be in f32. Over long sums f32 itself rounds more.
constexpr int64_t kShortestSum3xTf32 = 64;

template <bool tf32, int kTerms>
Result<WgmmaPlan> PlanOf(const Group& group, const Target& target) {
  RETURN_IF_ERROR(CheckTypes(group, target, tf32));
  ASSIGN_OR_RETURN(Sm90Plan plan, PlanSm90(group, kTerms));
  if (const int64_t sum = plan.k_steps * plan.depth(); kTerms == 2 && sum < kShortestSum3xTf32)
    return Status::Error(Code::kUnsupportedShape, "{} products are summed, fewer than {}", sum,
                         kShortestSum3xTf32);
  RETURN_IF_ERROR(SupportsReductions(group, plan));
  return WgmmaPlan(group, target, std::move(plan));
}

constexpr int kNumerical[] = {kNoteTensorCore};
constexpr int kNumericalTf32[] = {kNoteTensorCore, kNoteDownConvertInputs};

}  // namespace

const Engine kWgmmaSm90Engine = EngineOf<PlanOf<false, 1>>(
    {.name = "wgmma_sm90", .version = 6, .knobs = kSm90Knobs, .numerical = kNumerical});

// Tensor maps round f32 to TF32 on the way; wgmma takes it along k only, other operands go through
// registers or are turned in shared memory.
const Engine kWgmmaSm90Tf32Engine = EngineOf<PlanOf<true, 1>>(
    {.name = "wgmma_sm90_tf32", .version = 4, .knobs = kSm90Knobs, .numerical = kNumericalTf32});

// f32 operands with all their bits: each the sum of two TF32 numbers, of whose four products the
// three are summed that count.
const Engine kWgmmaSm903xTf32Engine = EngineOf<PlanOf<true, 2>>({.name = "wgmma_sm90_3xtf32",
                                                                 .version = 1,
                                                                 .knobs = kSm90Knobs3xTf32,
                                                                 .numerical = kNumerical});

}  // namespace kiln::compiler
