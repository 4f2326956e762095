// The epilogue of wgmma_sm90's kernels: the functions that the skeleton calls with sums, and the
// maps by which results leave. See contract_wgmma/kernel.h.
#include <string>
#include <utility>
#include <vector>

#include "compiler/engines/contract_wgmma/candidates.h"
#include "compiler/engines/contract_wgmma/kernel.h"
#include "compiler/engines/contraction/skeleton_functions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/contract_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

namespace {

void AddResultMap(const Sm90Context& x, const char* name, TensorId id, TensorMapSpec map,
                  Call& call) {
  if (map.type == DType::kF32) map.type = DType::kI32;  // not rounded to tf32
  map.channels = 128 / x.tile.result_bytes;
  map.pixels = BoxColumns(x.tile);
  map.box = {map.channels, map.pixels, 1, 1, 1};
  call.maps.push_back(x.b.Map(name, id, map));
}

// The maps of the results, of each phase where there are several, and of the full operands.
void AddDirectMaps(const Sm90Context& x, Call& call) {
  const std::vector<TensorId> results = graph::Outputs(x.group.graph);
  const auto add = [&](const char* name, TensorId id) {
    AddResultMap(x, name, id, *PlanSm90Matrix(x.group, id, x.plan), call);
  };
  if (x.is_phased()) {
    const auto maps = PlanSm90Phases(x.group.graph[results[0]], x.plan);
    for (const TensorMapSpec& map : *maps) AddResultMap(x, "out_map", results[0], map, call);
  } else {
    for (const TensorId id : results) add("out_map", id);
  }
  if (x.tile.slot() == 0) return;
  const std::vector<TensorId> full =
      FullOperands(x.group.graph, ContractionOf(x.group), LeftDim(x.group, x.plan));
  for (const TensorId id : full) add("full_map", id);
  call.config.push_back({contract::kFullBf16, Bf16Mask(x.group.graph, full)});
}

// The parameters of function store.
struct StoreParameters {
  std::string values;
  Expr batch, split, left, right;
  std::string sums;  // sums[neighbour][reduction]; empty where nothing is reduced
};

// Split-K: the partial sums, to be added up by SumSplits.
void StoreSlice(const Sm90Context& x, Block& out, const StoreParameters& at, Lowered& lowered) {
  KernelBuilder& b = x.b;
  const DType type = x.accumulator();
  const int64_t pitch = AlignUp(x.plan.left_size, kSm90Vector);
  lowered.scratch_bytes = {int64_t{x.tile.slices()} * x.plan.batches * x.plan.right_size * pitch *
                           SizeOf(type)};
  const std::string slices = b.Scratch(0, type, false);
  const Expr right_size = b.Arg("right_size", x.plan.right_size);
  Block inside;
  Expr row = at.split;
  if (x.plan.batches > 1) row = row * b.Arg("slice_batches", x.plan.batches) + at.batch;
  const Expr pitch_arg = b.Arg("slice_pitch", pitch);
  const Expr to = b.Let(inside, "at", (row * right_size + at.right) * pitch_arg + at.left);
  WideCopy(inside, type, slices, to, at.values, b.Idx(0), kSm90Vector);
  out.push_back({tile::If{tile::And(tile::Lt(at.left, pitch_arg), tile::Lt(at.right, right_size)),
                          std::move(inside),
                          {}}});
}

// The group's maps; what the skeleton calls a split is the phase of a strided dgrad here.
void StoreResult(const Sm90Context& x, Block& out, const StoreParameters& at) {
  EpilogueAxes axes = x.axes();
  axes.along_right = StoresAlongRight(x.plan, x.tile);
  ContractionEpilogue epilogue(x.group, x.b, x.c, axes);
  ReduceNeighbour reduce;
  if (!x.reductions.empty())
    reduce = [&](Block& one, ValueScope& scope, const Index& index, const Expr& neighbour) {
      AddToSums(x.b, x.reductions, at.sums, one, scope, index, neighbour);
    };
  StoreNeighbours(x.b, epilogue, out, at.values, x.accumulator(), kSm90Vector, at.batch, at.left,
                  at.right, at.split, reduce);
}

}  // namespace

EpilogueAxes Sm90Context::axes() const {
  return {.left_is_a = plan.left_is_a,
          .left_size = plan.left_size,
          .padded_channels = plan.padded_channels,
          .right_size = plan.right_size,
          .images = plan.images,
          .places = plan.places,
          .phases = plan.phases};
}

void AddSm90DirectOutput(const Sm90Context& x, Call& call) {
  AddDirectMaps(x, call);
  ContractionEpilogue epilogue(x.group, x.b, x.c, x.axes());
  std::vector<TensorId> also;
  for (const EpilogueReduction& r : x.reductions.list()) also.push_back(r.operand);
  const std::vector<TensorId> results = graph::Outputs(x.group.graph);
  also.insert(also.end(), results.begin() + 1, results.end());
  const bool is_i32 = x.group.graph[results[0]].dtype == DType::kI32;
  if (x.tile.result_bytes == 4) call.config.push_back({contract::kIntResults, is_i32 ? 1 : 0});
  AddRowFunctions(x.b, epilogue, Bf16Mask(x.group.graph, results), call, also, x.tile.full,
                  is_i32 ? DType::kI32 : DType::kF32);
  if (!x.reductions.empty()) AddRightEnd(x.b, x.plan.right_size, call);
}

Call::Function MakeSm90StoreFunction(const Sm90Context& x, Lowered& lowered) {
  Call::Function f{.name = "store"};
  const DType index = x.b.index_type();
  StoreParameters at;
  at.values = AddArray(x.b, f, "values", x.accumulator(), kSm90Vector);
  at.batch = AddScalar(x.b, f, "batch", index);
  at.split = AddScalar(x.b, f, "split", index);
  at.left = AddScalar(x.b, f, "left", index);
  at.right = AddScalar(x.b, f, "right", index);
  if (!x.reductions.empty())
    at.sums =
        AddArray(x.b, f, "sums", DType::kF32, int64_t{kSm90Vector} * x.reductions.count(), true);
  if (x.tile.slices() > 1) {
    StoreSlice(x, f.body, at, lowered);
  } else {
    StoreResult(x, f.body, at);
  }
  return f;
}

}  // namespace kiln::compiler
