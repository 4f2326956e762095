#include "compiler/engines/conv_direct/ring_walk.h"

namespace kiln::compiler {

using tile::Block;
using tile::Expr;

namespace {

Expr Least(const Expr& a, const Expr& b) { return tile::Op(ScalarOp::kMin, {a, b}); }

}  // namespace

Expr RingContext::Inside(const Expr& i, const Expr& extent) const {
  return tile::And(tile::Ge(i, b.Idx(0)), tile::Lt(i, extent));
}

RingThread EnterThread(const RingContext& x, Block& body) {
  KernelBuilder& b = x.b;
  const RingPlan& p = x.p;
  const auto slab = b.Divide(body, Var(b, "bx"), b.Arg("slabs", p.slabs), p.slabs, "slab");
  RingThread at;
  at.split = slab.quotient;
  at.first_channel = b.Let(body, "first_channel", slab.remainder * b.Idx(p.slab));
  at.vector = b.Let(body, "vector", Var(b, "tx") % b.Idx(p.vectors));
  at.walker = b.Let(body, "walker", Var(b, "tx") / b.Idx(p.vectors));
  at.strip = b.Let(body, "strip", at.walker % b.Idx(p.strips));
  at.image = b.Let(body, "image", at.walker / b.Idx(p.strips));
  at.channel = b.Let(body, "channel", at.first_channel + at.vector * b.Idx(p.lanes));
  at.has_channel = b.Let(body, "has_channel", tile::Lt(at.channel, b.Extent(p.in, 1)));
  return at;
}

RingWalk::RingWalk(const RingContext& context) : x_(context) {
  KernelBuilder& b = x_.b;
  const RingPlan& p = x_.p;
  splits_ = b.Arg("splits", p.splits);
  units_ = b.Arg("units", p.units());
  bodies_ = b.Arg("bodies", p.bodies());
  turns_ = b.Arg("turns", p.steps() * p.bodies());
  walk_ = b.Arg("walk", p.walk());
  const auto count = [&](const char* name, int64_t n) {
    return n == 1 ? b.Idx(1) : b.Arg(name, n);
  };
  groups_ = {count("image_groups", p.image_groups), count("row_groups", p.row_groups),
             count("column_blocks", p.column_blocks)};
  rows_ = b.Arg("rows", p.rows);
}

RingTurn RingWalk::TurnAt(Block& out, const Expr& number, const Expr& split) const {
  KernelBuilder& b = x_.b;
  const RingPlan& p = x_.p;
  const auto at = b.Divide(out, number, bodies_, p.bodies(), "step");
  const Expr unit = b.Let(out, "unit", at.quotient * splits_ + split);
  const Index place =
      b.Unravel(out, unit, groups_, {p.image_groups, p.row_groups, p.column_blocks}, "unit");
  RingTurn turn;
  turn.exists = b.Let(out, "exists", tile::And(tile::Lt(unit, units_), tile::Lt(number, turns_)));
  turn.image = b.Let(out, "first_image", place[0] * b.Idx(p.images));
  turn.out_row = b.Let(out, "first_row", place[1] * rows_);
  turn.first_row = b.Let(out, "row", at.remainder * b.Idx(p.live));
  turn.step_row = b.Let(out, "step_row", at.remainder * b.Idx(p.period));
  turn.in_row =
      b.Let(out, "in_row", turn.out_row * b.Idx(p.row.stride) + turn.step_row - b.Idx(p.row.pad));
  turn.own = b.Let(out, "own_col", place[2] * b.Idx(p.columns));
  turn.first = turn.own;
  if (p.wgrad && p.column_blocks > 1)
    turn.first = b.Let(out, "first_col", Least(turn.own, b.Extent(p.out, 3) - b.Idx(p.columns)));
  return turn;
}

RingColumns RingWalk::ColumnsOf(Block& loop, const RingTurn& turn, const RingThread& thread) const {
  KernelBuilder& b = x_.b;
  const RingPlan& p = x_.p;
  const Expr first = thread.strip * b.Idx(p.strip);
  const Expr own = b.Let(loop, "own_col", turn.own + first);
  RingColumns at;
  at.col = own;
  if (p.wgrad) at.col = b.Let(loop, "col", Least(own, b.Extent(p.out, 3) - b.Idx(p.strip)));
  const Expr local = p.wgrad ? b.Let(loop, "local_col", at.col - turn.first) : first;
  const Expr vector = thread.vector * b.Idx(p.lanes);
  const Expr in_pixel = thread.image * b.Idx(p.staged_columns) + local * b.Idx(p.col.stride);
  at.in_place = b.Let(loop, "in_place", in_pixel * b.Idx(p.pitch) + vector);
  const Expr dy_pixel = thread.image * b.Idx(p.columns) + local;
  at.dy_place = b.Let(loop, "dy_place", dy_pixel * b.Idx(p.pitch) + vector);
  const Expr has_image = tile::Lt(turn.image + thread.image, b.Extent(p.out, 0));
  const Expr valid = tile::And(turn.exists, tile::And(thread.has_channel, has_image));
  for (int64_t j = 0; j < p.strip; ++j) {
    const Expr has = p.wgrad ? tile::Ge(at.col + b.Idx(j), own)
                             : tile::And(valid, tile::Lt(at.col + b.Idx(j), b.Extent(p.out, 3)));
    at.has_col.push_back(b.Let(loop, "has_col", has));
  }
  return at;
}

Expr RingWalk::IsWalked(const RingTurn& turn, int64_t u) const {
  return tile::Lt(turn.step_row + x_.b.Idx(u), walk_);
}

Expr RingWalk::HasOutput(const RingTurn& turn, const Expr& i) const {
  return tile::And(tile::Lt(i, rows_), tile::Lt(turn.out_row + i, x_.b.Extent(x_.p.out, 2)));
}

Expr RingWalk::HasOutput(const RingTurn& turn, const RingHit& hit) const {
  const Expr i = turn.first_row + x_.b.Idx(hit.row);
  const Expr has = HasOutput(turn, i);
  return hit.row < 0 ? tile::And(tile::Ge(i, x_.b.Idx(0)), has) : has;
}

}  // namespace kiln::compiler
