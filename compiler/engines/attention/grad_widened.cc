#include "compiler/engines/attention/grad_widened.h"

#include <algorithm>

#include "compiler/engines/attention/problem.h"
#include "compiler/kernel/vectors.h"
#include "ir/base/check.h"

namespace kiln::compiler {

using graph::Graph;
using graph::Tensor;
using tile::Block;
using tile::Expr;

namespace {

constexpr int kPiece = 16;     // elements that a thread widens
constexpr int kThreads = 256;  // of a block
constexpr int64_t kMostIndex = (int64_t{1} << 31) - 1;

// The operand as it lies in the scratch buffer.
Tensor Widened(const Graph& g, const OperandRows& rows) {
  const Tensor& x = g[rows.id];
  Tensor y{.name = x.name, .dtype = DType::kF16};
  y.dims.assign(x.dims.begin(), x.dims.end() - 2);
  y.dims.push_back(x.dims[rows.places]);
  y.dims.push_back(AlignUp(x.dims[rows.depth], kPiece));
  y.strides.resize(y.dims.size());
  int64_t stride = 1;
  for (size_t d = y.dims.size(); d-- > 0; stride *= y.dims[d]) y.strides[d] = stride;
  y.alignment = 256;
  return y;
}

// Elements of a row from a column on; those behind its end are 0.
void LoadPiece(KernelBuilder& b, Block& out, const OperandRows& rows, const Index& at,
               const std::string& to) {
  const Graph& g = b.graph();
  const Tensor& x = g[rows.id];
  const int lanes = std::min(WidestVector(g, {rows.id}, rows.depth), kPiece);
  for (int c = 0; c < kPiece; c += lanes) {
    Index place = at;
    place[rows.depth] = place[rows.depth] + b.Idx(c);
    Block load;
    if (lanes > 1)
      WideCopy(load, x.dtype, to, b.Idx(c), b.Pointer(rows.id), b.Offset(rows.id, place), lanes);
    else
      load.push_back({tile::Store{
          to, b.Idx(c), tile::Load(b.Pointer(rows.id), x.dtype, b.Offset(rows.id, place))}});
    if (x.dims[rows.depth] % kPiece == 0) {
      for (tile::Stmt& stmt : load) out.push_back(std::move(stmt));
      continue;
    }
    Block none;
    for (int i = c; i < c + lanes; ++i)
      none.push_back({tile::Store{to, b.Idx(i), tile::Cast(x.dtype, tile::Float(0))}});
    out.push_back({tile::If{tile::Lt(place[rows.depth], b.Extent(rows.id, rows.depth)),
                            std::move(load), std::move(none)}});
  }
}

}  // namespace

int64_t WidenedBytes(const Graph& g, const OperandRows& rows) {
  return NumElements(Widened(g, rows).dims) * SizeOf(DType::kF16);
}

TensorMapSpec WidenedMap(const Graph& g, const OperandRows& rows, int box_rows) {
  const Tensor y = Widened(g, rows);
  Result<TensorMapSpec> map = AttentionMapOf(y, y.rank() - 2, y.rank() - 1, box_rows);
  CHECK(map.ok(), "whole rows of f16 have a map");
  return *map;
}

void AddWidened(const Group& group, const Target& target, const char* engine,
                const OperandRows& rows, int scratch, Lowered& lowered) {
  const Graph& g = group.graph;
  const Tensor& x = g[rows.id];
  const Tensor y = Widened(g, rows);
  const int64_t elements = NumElements(y.dims), pieces = y.dims.back() / kPiece;
  KernelBuilder b(group, target, fmt::format("{}: {} as f16", engine, x.name),
                  elements > kMostIndex ? DType::kI64 : IndexTypeInMemory(g));
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  const std::string to = b.Scratch(scratch, DType::kF16, false);
  const std::string narrow = b.Name("narrow"), wide = b.Name("wide");
  const int64_t blocks = CeilDiv(elements / kPiece, kThreads);
  const DType t = b.index_type();
  Block out, inside;
  const Expr number =
      b.Let(out, "number", tile::Var("bx", t) * b.Idx(kThreads) + tile::Var("tx", t));
  const auto piece = b.Divide(inside, number, b.Arg("pieces", pieces), pieces, "piece");
  const auto row =
      b.Divide(inside, piece.quotient, b.Extent(rows.id, rows.places), x.dims[rows.places], "row");
  Index at = OwnHeads(b, rows.id)(inside, row.quotient);
  at[rows.places] = row.remainder;
  at[rows.depth] = piece.remainder * b.Idx(kPiece);
  inside.push_back({tile::Alloc{narrow, x.dtype, tile::Space::kReg, kPiece}});
  inside.push_back({tile::Alloc{wide, DType::kF16, tile::Space::kReg, kPiece}});
  LoadPiece(b, inside, rows, at, narrow);
  for (int i = 0; i < kPiece; ++i)
    inside.push_back({tile::Store{wide, b.Idx(i),
                                  tile::Cast(DType::kF16, tile::Load(narrow, x.dtype, b.Idx(i)))}});
  WideCopy(inside, DType::kF16, to, number * b.Idx(kPiece), wide, b.Idx(0), kPiece);
  out.push_back(
      {tile::If{tile::Lt(number, b.Arg("count", elements / kPiece)), std::move(inside), {}}});
  b.Finish(BlockAndThread(t, b.Arg("blocks", blocks), kThreads, std::move(out)), {blocks, 1, 1},
           kThreads, lowered);
}

}  // namespace kiln::compiler
