#include "compiler/engines/contraction/skeleton_functions.h"

#include <algorithm>

#include "compiler/kernel/contract_members.h"
#include "compiler/kernel/skeleton_call.h"

namespace kiln::compiler {

using tile::Block;
using tile::Call;
using tile::Expr;

void AddRowFunctions(KernelBuilder& b, ContractionEpilogue& epilogue, int64_t bf16, Call& call,
                     const std::vector<graph::TensorId>& also, int full, DType type) {
  const int operands = std::max(epilogue.row_operands(), 1);
  call.config.push_back({contract::kOperands, epilogue.row_operands()});
  call.config.push_back({contract::kPackBf16, bf16});
  Call::Function rows{.name = "rows"}, apply{.name = "apply"};
  const Expr batch = AddScalar(b, rows, "batch", b.index_type());
  const Expr left = AddScalar(b, rows, "left", b.index_type());
  epilogue.Rows(rows.body, batch, left, AddArray(b, rows, "operands", DType::kF32, operands, true));
  const DType accumulator = call.wgmma.type == DType::kI8 ? DType::kI32 : DType::kF32;
  const Expr value = AddScalar(b, apply, "value", accumulator);
  const std::string taken = AddArray(b, apply, "operands", DType::kF32, operands);
  std::string read;
  if (full > 0) read = AddArray(b, apply, "full", DType::kF32, full);
  const auto results = static_cast<int64_t>(1 + also.size());
  epilogue.Apply(apply.body, value,
                 {.operands = taken,
                  .full = read,
                  .result = AddArray(b, apply, "result", type, results, true),
                  .type = type},
                 also);
  call.functions.push_back(std::move(rows));
  call.functions.push_back(std::move(apply));
}

int64_t Bf16Mask(const graph::Graph& graph, const std::vector<graph::TensorId>& tensors) {
  int64_t mask = 0;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (graph[tensors[i]].dtype == DType::kBF16) mask |= int64_t{1} << i;
  return mask;
}

void StoreNeighbours(KernelBuilder& b, ContractionEpilogue& epilogue, Block& out,
                     const std::string& values, DType type, int vector, const Expr& batch,
                     const Expr& left, const Expr& right, const Expr& phase,
                     const ReduceNeighbour& reduce) {
  const int lanes = std::min(vector, epilogue.lanes());
  for (int first = 0; first < vector; first += lanes) {
    const Expr at = b.Let(out, "at", (epilogue.along_right() ? right : left) + b.Idx(first));
    ContractionEpilogue::Taken taken;
    if (reduce)
      taken = [&](Block& one, ValueScope& scope, const Index& index, const Expr& lane) {
        reduce(one, scope, index, b.Idx(first) + lane);
      };
    epilogue.Store(
        out, batch, epilogue.along_right() ? left : at, epilogue.along_right() ? at : right, lanes,
        [&](const Expr& lane) { return tile::Load(values, type, b.Idx(first) + lane); }, phase,
        taken);
  }
}

void AddRightEnd(KernelBuilder& b, int64_t right_size, Call& call) {
  Call::Function f{.name = "right_end"};
  const std::string end = AddArray(b, f, "end", b.index_type(), 1, true);
  f.body.push_back({tile::Store{end, b.Idx(0), b.Arg("right_size", right_size)}});
  call.functions.push_back(std::move(f));
}

void AddReductionFunctions(KernelBuilder& b, const EpilogueReductions& reductions,
                           PartialResults& partial, int64_t left_size, const ImageParts& parts,
                           Call& call) {
  const int count = reductions.count();
  call.config.push_back({contract::kReduced, count});
  Call::Function start{.name = "start"}, combine{.name = "combine"}, flush{.name = "flush"};
  const std::string first = AddArray(b, start, "sums", DType::kF32, count, true);
  const std::string sums = AddArray(b, combine, "sums", DType::kF32, count, true);
  const std::string others = AddArray(b, combine, "others", DType::kF32, count);
  Expr batch = AddScalar(b, flush, "batch", b.index_type());
  Expr part = AddScalar(b, flush, "part", b.index_type());
  const Expr left = AddScalar(b, flush, "left", b.index_type());
  const std::string whole = AddArray(b, flush, "sums", DType::kF32, count);
  Block inside;
  if (parts.images > 1) {
    const auto split =
        b.Divide(inside, batch, b.Arg("images", parts.images), parts.images, "image");
    batch = split.quotient;
    part = b.Let(inside, "image_part",
                 split.remainder * b.Arg("image_parts", parts.parts_of_image) + part);
  }
  for (int r = 0; r < count; ++r) {
    const EpilogueReduction& reduction = reductions.list()[static_cast<size_t>(r)];
    const Expr at = b.Idx(r);
    start.body.push_back({tile::Store{first, at, reduction.Identity()}});
    const Expr both =
        reduction.Combined(tile::Load(sums, DType::kF32, at), tile::Load(others, DType::kF32, at));
    combine.body.push_back({tile::Store{sums, at, both}});
    partial.Store(b, inside, static_cast<size_t>(r), batch, left, part,
                  tile::Load(whole, DType::kF32, at));
  }
  flush.body.push_back(
      {tile::If{tile::Lt(left, b.Arg("left_size", left_size)), std::move(inside), {}}});
  for (Call::Function* f : {&start, &combine, &flush}) call.functions.push_back(std::move(*f));
}

void AddToSums(KernelBuilder& b, const EpilogueReductions& reductions, const std::string& sums,
               Block& out, ValueScope& values, const Index& index, const Expr& neighbour) {
  for (int r = 0; r < reductions.count(); ++r) {
    const EpilogueReduction& reduction = reductions.list()[static_cast<size_t>(r)];
    const Expr slot = neighbour * b.Idx(reductions.count()) + b.Idx(r);
    const Expr value = tile::Cast(DType::kF32, values.Value(reduction.operand, index));
    out.push_back(
        {tile::Store{sums, slot, reduction.Combined(tile::Load(sums, DType::kF32, slot), value)}});
  }
}

}  // namespace kiln::compiler
