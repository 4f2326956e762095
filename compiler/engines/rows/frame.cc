#include "compiler/engines/rows/frame.h"

#include <algorithm>

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using tile::Block;
using tile::Expr;

Expr RowsFrame::TeamOfThread() const {
  return shape.side_by_side ? tx() % b.Idx(teams()) : tx() / b.Idx(shape.team);
}

Row RowOf(const RowsFrame& f, Block& out, const Expr& tile, const Expr& slot) {
  KernelBuilder& b = f.b;
  Row row{.slot = slot, .number = {}, .kept = {}};
  const Expr first = tile * b.Idx(f.shape.rows_of_block());
  row.number = b.Let(out, "row", first + slot * b.Idx(f.teams()) + f.TeamOfThread());
  Expr existing = row.number;
  if (f.MayBePast())
    existing = b.Let(out, "existing", tile::Op(ScalarOp::kMin, {row.number, f.count - b.Idx(1)}));
  row.kept = UnravelDims(b, out, f.plan.row, f.plan.row.kept, existing, 1, "k");
  return row;
}

void EachRow(const RowsFrame& f, Block& out, const Expr& tile,
             const std::function<void(Block&, const Row&)>& emit) {
  UnrolledLoop(f.b, out, "u", f.shape.rows,
               [&](Block& body, const Expr& u) { emit(body, RowOf(f, body, tile, u)); });
}

void IfExists(const RowsFrame& f, Block& out, const Row& row, Block inside) {
  if (!f.MayBePast())
    std::ranges::move(inside, std::back_inserter(out));
  else
    out.push_back({tile::If{tile::Lt(row.number, f.count), std::move(inside), {}}});
}

void EachVector(const RowsFrame& f, Block& out, const Row& row, const Expr& chunk,
                const std::function<void(Block&, const Place&)>& emit) {
  KernelBuilder& b = f.b;
  const RowsPlan& plan = f.plan;
  UnrolledLoop(b, out, "v", f.shape.vectors, [&](Block& body, const Expr& v) {
    const Expr at = chunk * b.Idx(f.shape.vectors) + v;
    const Expr vector = b.Let(body, "vector", at * b.Idx(f.shape.team) + f.lane);
    const bool all_exist = plan.vectors % (int64_t{f.shape.vectors} * f.shape.team) == 0;
    Block inside;
    Block& to = all_exist ? body : inside;
    Place place;
    place.index = UnravelDims(b, to, plan.row, plan.row.reduced, vector, plan.lanes, "r");
    place.index[plan.row.inner] = place.index[plan.row.inner] * b.Idx(plan.lanes);
    for (const int64_t d : plan.row.kept) place.index[d] = row.kept[d];
    place.slot = (row.slot * b.Idx(f.shape.vectors) + v) * b.Idx(plan.lanes);
    place.column = v * b.Idx(plan.lanes);
    if (f.shape.ring > 0) place.in_ring = vector * b.Idx(plan.lanes);
    emit(to, place);
    if (!all_exist) body.push_back({tile::If{tile::Lt(vector, f.vectors), std::move(inside), {}}});
  });
}

void EachLane(const RowsFrame& f, Block& out, const Index& index,
              const std::function<void(Block&, const Element&)>& emit) {
  UnrolledLoop(f.b, out, "l", f.plan.lanes, [&](Block& body, const Expr& lane) {
    Index at = index;
    at[f.plan.row.inner] = at[f.plan.row.inner] + lane;
    emit(body, {lane, at});
  });
}

}  // namespace kiln::compiler
