#include "compiler/engines/conv_first_layer/dgrad_stages.h"

#include <algorithm>
#include <utility>

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

// ---- pieces

DgradPieces::DgradPieces(const DgradContext& context, Expr steps, Expr grid)
    : x_(context), steps_(std::move(steps)), grid_(std::move(grid)) {
  KernelBuilder& b = x_.b;
  const FirstLayerDgradPlan& p = x_.p;
  pieces_ = b.Arg("pieces", p.pieces);
  row_blocks_ = p.row.blocks == 1 ? b.Idx(1) : b.Arg("row_blocks", p.row.blocks);
  col_blocks_ = p.col.blocks == 1 ? b.Idx(1) : b.Arg("col_blocks", p.col.blocks);
}

DgradPiece DgradPieces::At(Block& out, const Expr& step) const {
  KernelBuilder& b = x_.b;
  const FirstLayerDgradPlan& p = x_.p;
  const Expr number = b.Let(out, "piece", step * grid_ + Var(b, "bx"));
  const Index at =
      b.Unravel(out, number, {b.Extent(x_.shape.x, 0), row_blocks_, col_blocks_},
                {x_.group.graph[x_.shape.x].dims[0], p.row.blocks, p.col.blocks}, "piece");
  DgradPiece piece;
  piece.image = at[0];
  piece.first_row = b.Let(out, "first_row", at[1] * b.Idx(p.block_rows()));
  piece.first_col = b.Let(out, "first_col", at[2] * b.Idx(p.block_cols()));
  piece.exists = b.Let(out, "exists", tile::And(tile::Lt(step, steps_), tile::Lt(number, pieces_)));
  return piece;
}

// ---- stages

DgradStages::DgradStages(const DgradContext& context, std::string array, Block& body)
    : x_(context), array_(std::move(array)) {
  constexpr int64_t kMostKept = 12;
  for (int64_t turn = 0; turns() <= kMostKept && turn < turns(); ++turn)
    kept_.push_back(PlaceAt(body, x_.b.Idx(turn)));
}

int64_t DgradStages::turns() const {
  return CeilDiv(x_.p.staged_pixels() * x_.vectors(), kDgradThreads);
}

Expr DgradStages::PixelOf(const Expr& turn) const {
  KernelBuilder& b = x_.b;
  return turn * b.Idx(kDgradThreads / x_.vectors()) + Var(b, "tx") / b.Idx(x_.vectors());
}

DgradStages::Place DgradStages::PlaceAt(Block& out, const Expr& turn) const {
  KernelBuilder& b = x_.b;
  const ConvShape& shape = x_.shape;
  const Expr pixel = b.Let(out, "pixel", PixelOf(turn));
  Place at;
  at.row = b.Let(out, "staged_row", pixel / b.Idx(x_.p.staged_cols()));
  at.col = b.Let(out, "staged_col", pixel - at.row * b.Idx(x_.p.staged_cols()));
  Expr from = at.col * b.Stride(shape.y, shape.spatial + 1);
  if (!x_.is_flat()) from = from + at.row * b.Stride(shape.y, 2);
  at.from = b.Let(out, "staged_from", from);
  return at;
}

DgradStages::Stage::Range DgradStages::RangeOf(Block& out, const Expr& first, int64_t dim) const {
  KernelBuilder& b = x_.b;
  return {b.Let(out, "begin", b.Idx(0) - first),
          b.Let(out, "end", b.Extent(x_.shape.y, dim) - first)};
}

DgradStages::Stage DgradStages::Enter(Block& out, const DgradPiece& piece, const Expr& chunk,
                                      const Expr& number) const {
  KernelBuilder& b = x_.b;
  const ConvShape& shape = x_.shape;
  const FirstLayerDgradPlan& p = x_.p;
  const Expr part = Var(b, "tx") % b.Idx(x_.vectors()) * b.Idx(kDgradVector);
  const Expr k = b.Let(out, "k", chunk * b.Idx(p.chunk) + part);
  const Expr first_q = b.Let(out, "first_q", piece.first_col + b.Idx(p.col.first));
  Stage stage;
  Index index = {piece.image, k};
  if (!x_.is_flat()) {
    index.push_back(b.Let(out, "first_p", piece.first_row + b.Idx(p.row.first)));
    stage.rows = RangeOf(out, index.back(), 2);
  }
  stage.cols = RangeOf(out, first_q, shape.spatial + 1);
  index.push_back(first_q);
  stage.from = b.Let(out, "from", b.Offset(shape.y, index));
  const Expr slot = number % b.Idx(2) * b.Idx(p.staged_elements());
  const Expr pixel = Var(b, "tx") / b.Idx(x_.vectors()) * b.Idx(p.pitch());
  stage.to = b.Let(out, "to", slot + pixel + part);
  stage.valid = b.Let(out, "valid", tile::And(piece.exists, tile::Lt(k, b.Extent(shape.y, 1))));
  return stage;
}

void DgradStages::Start(Block& out, const Stage& stage, const Expr& turn, const Place& place,
                        bool is_last) const {
  KernelBuilder& b = x_.b;
  Expr valid = stage.valid;
  const auto within = [&](const Expr& at, const Stage::Range& range) {
    valid = tile::And(valid, tile::And(tile::Ge(at, range.first), tile::Lt(at, range.end)));
  };
  if (!x_.is_flat()) within(place.row, stage.rows);
  within(place.col, stage.cols);
  const Expr to = stage.to + turn * b.Idx(kDgradThreads / x_.vectors() * x_.p.pitch());
  Block copy;
  copy.push_back({tile::CopyAsync{array_, to, b.Pointer(x_.shape.y), stage.from + place.from,
                                  static_cast<int>(kDgradVector), valid}});
  if (!is_last) {
    out.push_back(std::move(copy[0]));
    return;
  }
  When(out, tile::Lt(PixelOf(turn), b.Idx(x_.p.staged_pixels())), std::move(copy));
}

void DgradStages::StartKept(Block& out, const Stage& stage, size_t turn) const {
  Start(out, stage, x_.b.Idx(static_cast<int64_t>(turn)), kept_[turn], turn + 1 == kept_.size());
}

void DgradStages::StartAll(Block& out, const Stage& stage) const {
  for (size_t turn = 0; turn < kept_.size(); ++turn) StartKept(out, stage, turn);
  if (kept_.empty())
    Loop(x_.b, out, "i", x_.b.Idx(turns()), Bind::kSerial,
         [&](Block& one, const Expr& i) { Start(one, stage, i, PlaceAt(one, i), true); });
}

}  // namespace kiln::compiler
