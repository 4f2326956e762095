#include "compiler/engines/attention/places.h"

#include "compiler/engines/attention/functions.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

namespace {

constexpr int kVector = 8;  // neighbours of 16 bits
enum Elsewhere : int { kNowhere = -1, kPieceByPiece = -2 };

struct RowFunction {
  Call::Function f;
  Expr head, row;
  std::string result;
};

RowFunction BeginPlace(KernelBuilder& b, const std::string& name) {
  RowFunction p{.f = {.name = name + "_place", .params = {}, .body = {}}};
  p.head = AddScalar(b, p.f, "head", b.index_type());
  p.row = AddScalar(b, p.f, "row", b.index_type());
  p.result = AddArray(b, p.f, "result", b.index_type(), 1, true);
  return p;
}

// A row's offset, and whether its first and last elements are there, from which its place follows.
struct RowEnds {
  Expr offset;       // of the first
  Expr first, last;  // whether they are
};
Expr PlaceOfEnds(KernelBuilder& b, Block& out, const RowEnds& ends) {
  const Expr aligned = tile::Op(ScalarOp::kEq, {ends.offset % b.Idx(kVector), b.Idx(0)});
  const Expr together = tile::And(tile::And(ends.first, ends.last), aligned);
  const Expr some = tile::Op(ScalarOp::kOr, {ends.first, ends.last});
  return b.Let(out, "place_of",
               tile::Select(together, ends.offset,
                            tile::Select(some, b.Idx(kPieceByPiece), b.Idx(kNowhere))));
}

Expr Both(const Expr& a, const Expr& b) { return b ? tile::And(a, b) : a; }

}  // namespace

bool AddRowPlaces(KernelBuilder& b, Call& call, const std::string& name, const std::string& memory,
                  const OperandRows& rows, const HeadIndex& heads) {
  const graph::Graph& g = b.graph();
  const TensorId id = rows.id;
  const auto places = static_cast<size_t>(rows.places), depth = static_cast<size_t>(rows.depth);
  const Neighbours neighbours = NeighboursOf(g, id, rows.depth);
  RowFunction p = BeginPlace(b, name);
  Block& out = p.f.body;
  Index at = heads(out, p.head);
  // Tensors that are read on the way there (pages) are read for rows that there are.
  at[places] =
      b.Let(out, "row_of", tile::Op(ScalarOp::kMin, {p.row, b.Extent(id, rows.places) - b.Idx(1)}));
  at[depth] = b.Idx(0);
  const Expr valid = tile::Lt(p.row, b.Extent(id, rows.places));
  std::string source;
  ValueScope values(b, out);
  Expr place;
  if (graph::Producers(g)[static_cast<size_t>(id)] < 0) {
    source = b.Pointer(id);
    place = tile::Select(valid, b.Offset(id, at), b.Idx(kNowhere));
  } else {
    const auto first = values.PlaceOf(id, at);
    source = b.Pointer(first->tensor);
    if (neighbours == Neighbours::kAligned) {
      place = tile::Select(Both(valid, first->inside), first->offset, b.Idx(kNowhere));
    } else {
      at[depth] = b.Extent(id, rows.depth) - b.Idx(1);
      const auto last = values.PlaceOf(id, at);
      place = PlaceOfEnds(b, out,
                          {.offset = first->offset,
                           .first = Both(valid, first->inside),
                           .last = Both(valid, last->inside)});
    }
  }
  out.push_back({tile::Store{p.result, b.Idx(0), place}});
  call.functions.push_back(std::move(p.f));

  Call::Function piece{.name = name + "_piece", .params = {}, .body = {}};
  const Expr to = AddScalar(b, piece, "to", b.index_type());
  const Expr from = AddScalar(b, piece, "place", b.index_type());
  const Expr column = AddScalar(b, piece, "column", b.index_type());
  const Expr there =
      tile::And(tile::Ge(from, b.Idx(0)), tile::Lt(column, b.Extent(id, rows.depth)));
  piece.body.push_back({tile::CopyAsync{memory, to, source, column + from, kVector, there}});
  call.functions.push_back(std::move(piece));
  return neighbours != Neighbours::kAligned;
}

bool AddStorePlaces(KernelBuilder& b, Call& call, const std::string& name, TensorId id,
                    const graph::Node* scatter) {
  const graph::Graph& g = b.graph();
  const TensorId y = scatter != nullptr ? scatter->outputs[0] : id;
  const bool is_together =
      scatter != nullptr ? AreScatteredTogether(g, *scatter) : AreStoredTogether(g, id);
  const int64_t last_dim = g[id].rank() - 1;
  RowFunction p = BeginPlace(b, name);
  Block& out = p.f.body;
  Expr place = b.Idx(kPieceByPiece);
  if (is_together) {
    Index at = ScoreIndex(b, out, id, p.head, p.row, b.Idx(0));
    if (scatter == nullptr) {
      place = b.Offset(id, at);
    } else {
      ValueScope values(b, out);
      const ScatterPlace first = ScatterPlaceOf(b, values, out, *scatter, at);
      at.back() = b.Extent(id, last_dim) - b.Idx(1);
      const ScatterPlace last = ScatterPlaceOf(b, values, out, *scatter, at);
      place =
          PlaceOfEnds(b, out, {.offset = first.offset, .first = first.inside, .last = last.inside});
    }
  }
  out.push_back({tile::Store{p.result, b.Idx(0), place}});
  call.functions.push_back(std::move(p.f));

  Call::Function piece{.name = name + "_piece", .params = {}, .body = {}};
  const std::string from = AddArray(b, piece, "values", g[id].dtype, kVector);
  const Expr to = AddScalar(b, piece, "place", b.index_type());
  const Expr column = AddScalar(b, piece, "column", b.index_type());
  if (is_together) {
    Block there;
    WideCopy(there, g[y].dtype, b.Pointer(y), to + column, from, b.Idx(0), kVector);
    piece.body.push_back({tile::If{tile::Ge(to, b.Idx(0)), std::move(there), {}}});
  }
  call.functions.push_back(std::move(piece));
  return !is_together || scatter != nullptr;
}

}  // namespace kiln::compiler
