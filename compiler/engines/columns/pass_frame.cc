#include "compiler/engines/columns/pass_frame.h"

#include <algorithm>

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

// Columns that are neighbours in memory: `width` threads side by side have `lanes` each.
ThreadColumns ColumnsAcross(const PassFrame& f, Block& out, const Expr& block) {
  KernelBuilder& b = f.b;
  const ReducePlan& row = f.row();
  ThreadColumns c;
  c.lane = b.Let(out, "lane", f.tx() % b.Idx(f.shape.width));
  c.walker = b.Let(out, "walker", f.tx() / b.Idx(f.shape.width));
  const auto tile = b.Divide(out, block, f.args.Arg("tiles", f.shape.tiles), f.shape.tiles, "tile");
  const Expr vectors = f.args.Arg("vectors", f.shape.vectors);
  const Expr vector = b.Let(out, "vector", tile.remainder * b.Idx(f.shape.width) + c.lane);
  c.exists = tile::Lt(vector, vectors);
  const Expr existing =
      b.Let(out, "existing", tile::Op(ScalarOp::kMin, {vector, vectors - b.Idx(1)}));
  std::vector<int64_t> outer = row.kept;
  std::erase(outer, row.inner);
  c.kept = UnravelDims(b, out, row, outer, tile.quotient, 1, "k");
  c.kept[row.inner] = b.Let(out, "inner", existing * b.Idx(f.plan.lanes));
  const Expr inner_extent = vectors * b.Idx(f.plan.lanes);
  const Expr first = b.Let(out, "first", tile.quotient * inner_extent);
  c.column = b.Let(out, "column", first + c.kept[row.inner]);
  c.first = b.Let(out, "first_of_tile",
                  first + tile.remainder * b.Idx(int64_t{f.shape.width} * f.plan.lanes));
  c.end = b.Let(out, "end", tile.quotient * inner_extent + inner_extent);
  return c;
}

using Visit = std::function<void(Block&, const std::vector<Expr>&)>;

void VisitTile(const PassFrame& f, const Expr& walker, Block& out, const Expr& tile,
               const Visit& visit) {
  const Expr first = f.b.Let(out, "place", tile * f.b.Idx(f.shape.tile()) + walker);
  std::vector<Expr> places;
  for (int u = 0; u < f.shape.unroll; ++u)
    places.push_back(first + f.b.Idx(int64_t{u} * f.shape.walkers));
  visit(out, places);
}

// The places of a tile that is not full.
void VisitRest(const PassFrame& f, const Expr& walker, Block& out, const Expr& start,
               const Visit& visit) {
  KernelBuilder& b = f.b;
  const std::string u = b.Name("u");
  Block loop, inside;
  const Expr place =
      b.Let(loop, "place", start + tile::Var(u, f.type()) * b.Idx(f.shape.walkers) + walker);
  visit(inside, {place});
  loop.push_back(
      {tile::If{tile::Lt(place, f.args.Arg("places", f.shape.places)), std::move(inside), {}}});
  out.push_back({tile::For{u, f.type(), b.Idx(f.shape.unroll), Bind::kSerial, std::move(loop)}});
}

// A pass that reduces: a block takes every splits-th tile.
void WalkToReduce(const PassFrame& f, const Expr& walker, Block& out, const Visit& visit) {
  KernelBuilder& b = f.b;
  const Expr has_more = tile::Lt(f.by(), f.args.Owner());
  const Expr turns =
      b.Let(out, "turns", f.args.Turns() + tile::Select(has_more, b.Idx(1), b.Idx(0)));
  const std::string k = b.Name("turn");
  Block loop;
  const Expr from_first = tile::Var(k, f.type());
  const Expr turn = f.is_backward() ? turns - b.Idx(1) - from_first : from_first;
  VisitTile(f, walker, loop, b.Let(loop, "tile", turn * f.splits + f.by()), visit);
  Block rest, owned;
  VisitRest(f, walker, owned, f.args.Arg("whole", f.shape.full * f.shape.tile()), visit);
  rest.push_back(
      {tile::If{tile::Op(ScalarOp::kEq, {f.by(), f.args.Owner()}), std::move(owned), {}}});
  if (f.is_backward()) std::ranges::move(rest, std::back_inserter(out));
  out.push_back({tile::For{k, f.type(), turns, Bind::kSerial, std::move(loop)}});
  if (!f.is_backward()) std::ranges::move(rest, std::back_inserter(out));
}

// A pass that stores: a block has a few tiles behind one another.
void WalkToStore(const PassFrame& f, const Expr& walker, Block& out, const Visit& visit) {
  KernelBuilder& b = f.b;
  const std::string k = b.Name("turn");
  Block loop, full, rest;
  const Expr split = f.is_backward() ? f.splits - b.Idx(1) - f.by() : f.by();
  const Expr from_first = tile::Var(k, f.type());
  const Expr turn = f.is_backward() ? b.Idx(f.shape.stores - 1) - from_first : from_first;
  const Expr tile = b.Let(loop, "tile", split * b.Idx(f.shape.stores) + turn);
  VisitTile(f, walker, full, tile, visit);
  const Expr start = b.Let(rest, "start", tile * b.Idx(f.shape.tile()));
  VisitRest(f, walker, rest, start, visit);
  loop.push_back({tile::If{tile::Lt(tile, f.args.Arg("full", f.shape.full)), std::move(full),
                           std::move(rest)}});
  out.push_back({tile::For{k, f.type(), b.Idx(f.shape.stores), Bind::kSerial, std::move(loop)}});
}

// The index of a place along reduced dims.
Index IndexOfPlace(const PassFrame& f, Block& out, const Expr& place) {
  const ReducePlan& row = f.row();
  Index extents;
  Dims values;
  for (const int64_t d : row.reduced) {
    const bool vectors = d == row.inner && f.plan.lanes != 1;
    values.push_back(row.extent(d) / (vectors ? f.plan.lanes : 1));
    extents.push_back(vectors ? f.args.Arg("inner_vectors", values.back())
                              : f.b.Extent(row.input, d));
  }
  const Index split = f.b.Unravel(out, place, extents, values, "r");
  Index index(f.graph()[row.input].dims.size(), f.b.Idx(0));
  for (size_t k = 0; k < split.size(); ++k) {
    const int64_t d = row.reduced[k];
    index[d] = d == row.inner ? split[k] * f.b.Idx(f.plan.lanes) : split[k];
  }
  return index;
}

}  // namespace

ThreadColumns FindColumns(const PassFrame& f, Block& out) {
  Expr block = tile::Var("bx", f.type());
  if (f.is_backward()) block = f.b.Let(out, "block", f.blocks - f.b.Idx(1) - block);
  if (f.plan.across) return ColumnsAcross(f, out, block);
  return {.walker = f.tx(),
          .column = block,
          .kept = UnravelDims(f.b, out, f.row(), f.row().kept, block, 1, "k")};
}

Index IndexOfColumn(const PassFrame& f, const ThreadColumns& columns, const Expr& lane) {
  Index at = columns.kept;
  if (f.plan.across) at[f.row().inner] = at[f.row().inner] + lane;
  return at;
}

void WalkPlaces(const PassFrame& f, const ThreadColumns& columns, Block& out, const Visit& visit) {
  if (f.shape.stores != 0)
    WalkToStore(f, columns.walker, out, visit);
  else
    WalkToReduce(f, columns.walker, out, visit);
}

Arrays ReadColumnValues(const PassFrame& f, const ThreadColumns& columns, Block& out) {
  KernelBuilder& b = f.b;
  Arrays all;
  for (const TensorId id : f.stage.row_values) {
    const Tensor& t = f.graph()[id];
    const DType type = ArithmeticType(t.dtype);
    const std::string& regs = all[id] = b.Name(t.name + "_c");
    const int count = f.columns_of_thread();
    out.push_back({tile::Alloc{regs, type, tile::Space::kReg, count}});
    if (!f.is_first()) {
      WideCopy(out, type, regs, b.Idx(0), f.args.Scratch(f.scratch.values.at(id), type, true),
               columns.column, count);
      continue;
    }
    UnrolledLoop(b, out, "l", count, [&](Block& body, const Expr& lane) {
      const Index at = IndexOfColumn(f, columns, lane);
      const Expr value = ValueScope(b, body).Value(id, BroadcastIndex(b, t, at));
      body.push_back({tile::Store{regs, lane, value}});
    });
  }
  return all;
}

std::vector<LoadedPlace> LoadPlaces(const PassFrame& f, const ThreadColumns& columns, Block& out,
                                    const std::vector<Expr>& places) {
  std::vector<LoadedPlace> all;
  for (const Expr& p : places) {
    LoadedPlace place{.index = IndexOfPlace(f, out, p), .leaves = {}};
    for (const int64_t d : f.row().kept) place.index[d] = columns.kept[d];
    for (const TensorId leaf : f.stage.leaves) {
      const Tensor& t = f.graph()[leaf];
      const std::string& regs = place.leaves[leaf] = f.b.Name(t.name + "_r");
      out.push_back({tile::Alloc{regs, t.dtype, tile::Space::kReg, f.plan.lanes}});
      FetchLanes(f.b, out, leaf, place.index, f.row().inner, f.plan.lanes, regs, f.b.Idx(0));
    }
    all.push_back(std::move(place));
  }
  return all;
}

void EachLane(const PassFrame& f, const Arrays& column_values, Block& out,
              const std::vector<LoadedPlace>& places,
              const std::function<void(Block&, LaneOfPlaces&)>& emit) {
  const graph::Graph& g = f.graph();
  UnrolledLoop(f.b, out, "l", f.plan.lanes, [&](Block& body, const Expr& lane) {
    LaneOfPlaces all{.lane = lane, .scopes = {}, .indices = {}};
    for (const LoadedPlace& place : places) {
      Index at = place.index;
      at[f.row().inner] = at[f.row().inner] + lane;
      ValueScope& values = all.scopes.emplace_back(f.b, body);
      for (const auto& [id, regs] : column_values)
        values.Bind(id, BroadcastIndex(f.b, g[id], at),
                    tile::Load(regs, ArithmeticType(g[id].dtype), f.ColumnOfLane(lane)));
      for (const TensorId leaf : f.stage.leaves) {
        const Tensor& t = g[leaf];
        const Expr loaded = tile::Load(place.leaves.at(leaf), t.dtype, lane);
        values.Bind(leaf, BroadcastIndex(f.b, t, at), tile::Cast(ArithmeticType(t.dtype), loaded));
      }
      all.indices.push_back(std::move(at));
    }
    emit(body, all);
  });
}

}  // namespace kiln::compiler
