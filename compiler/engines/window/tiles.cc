// The kernel of WindowTiles: a thread's tile is found, its sources are loaded, its results computed
// and stored.
#include "compiler/engines/window/tiles.h"

#include <algorithm>

#include "compiler/engines/window/tile_results.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Block;
using tile::Expr;

std::string TileText(const WindowTiles& tiles) {
  std::string text;
  for (const WindowTiles::Axis& axis : tiles.axes)
    text += fmt::format("{}{}", text.empty() ? "" : "x", axis.tile);
  return text;
}

// Results of a thread along a dim.
int64_t SizeAlong(const WindowTiles& tiles, int64_t dim) {
  if (!tiles.along && dim == tiles.lane_dim) return tiles.lanes;
  for (const WindowTiles::Axis& axis : tiles.axes)
    if (axis.dim == dim) return axis.tile;
  return 1;
}

struct LocatedTile {
  TilePosition position;
  int64_t tiles;  // of all threads
};
LocatedTile LocateTile(const TileFrame& f, Block& body) {
  const graph::Tensor& y = f.g[f.node.outputs[0]];
  Index extents;
  Dims values;
  const Dims order = MemoryOrder(f.g[graph::Outputs(f.g)[0]].strides);
  for (const int64_t d : order) {
    const int64_t size = SizeAlong(f.tiles, d);
    values.push_back(CeilDiv(y.dims[d], size));
    extents.push_back(size == 1 ? f.b.Extent(f.node.outputs[0], d)
                                : f.b.Arg("tiles", values.back()));
  }
  const Expr i = tile::Var("i", f.b.index_type());
  const Index split = f.b.Unravel(body, i, extents, values, "i");
  TilePosition at{.place = Index(order.size()), .from = {}};
  for (size_t k = 0; k < order.size(); ++k) {
    const int64_t d = order[k];
    at.place[d] = f.b.Let(body, "at", split[k] * f.b.Idx(SizeAlong(f.tiles, d)));
    for (const WindowTiles::Axis& axis : f.tiles.axes)
      if (axis.dim == d) at.from[d] = f.b.Let(body, "from", split[k] * f.b.Idx(axis.step));
  }
  return {std::move(at), NumElements(values)};
}

// A condition: a result exists; null for always.
Expr Exists(const TileFrame& f, const TilePosition& at, TensorId id, const WindowTiles::Axis& axis,
            int result) {
  if (f.g[id].dims[axis.dim] % axis.tile == 0) return nullptr;
  return tile::Lt(at.place[axis.dim] + f.b.Idx(result), f.b.Extent(id, axis.dim));
}

void AppendIf(Block& out, const Expr& condition, Block inside) {
  if (condition)
    out.push_back({tile::If{condition, std::move(inside), {}}});
  else
    std::ranges::move(inside, std::back_inserter(out));
}

void StoreRow(const TileFrame& f, const TilePosition& at, Block& out, TensorId id,
              const Index& index, const std::string& regs) {
  KernelBuilder& b = f.b;
  const WindowTiles& tiles = f.tiles;
  const DType type = f.g[id].dtype;
  const Expr offset = b.Let(out, f.g[id].name + "_at", b.Offset(id, index));
  const int count = f.CountOfRow();
  const bool wide =
      tiles.along ? tiles.wide_store : WalkOf(f.g[id], tiles.lane_dim) == Walk::kContiguous;
  if (wide || count == 1) return WideCopy(out, type, b.Pointer(id), offset, regs, b.Idx(0), count);
  for (int l = 0; l < count; ++l) {
    Block one;
    one.push_back({tile::Store{b.Pointer(id), offset + b.Idx(l) * b.Stride(id, tiles.lane_dim),
                               tile::Load(regs, type, b.Idx(l))}});
    const Expr exists = tiles.along ? Exists(f, at, id, tiles.axes.back(), l) : nullptr;
    AppendIf(out, exists, std::move(one));
  }
}

void StoreResults(const TileFrame& f, const TilePosition& at, const ResultRows& rows, Block& out) {
  for (const auto& [of, regs] : rows) {
    const auto& [id, row] = of;
    Index index = at.place;
    Expr exists;
    for (size_t s = 0; s < row.size(); ++s) {
      const WindowTiles::Axis& axis = f.tiles.axes[s];
      index[axis.dim] = at.place[axis.dim] + f.b.Idx(row[s]);
      if (f.tiles.along && s + 1 == row.size()) continue;
      const Expr here = Exists(f, at, id, axis, row[s]);
      if (here) exists = exists ? tile::And(exists, here) : here;
    }
    Block store;
    StoreRow(f, at, store, id, index, regs);
    AppendIf(out, exists, std::move(store));
  }
}

}  // namespace

Lowered LowerWindowTiles(const Group& group, const Target& target, const WindowTiles& tiles,
                         int threads) {
  const graph::Graph& g = group.graph;
  KernelBuilder b(group, target,
                  fmt::format("window, tiles of {}, {} lanes, threads={}", TileText(tiles),
                              tiles.lanes, threads));
  for (const char* reserved : {"bx", "tx", "i"}) b.Name(reserved);
  const TileFrame f{g,     g.nodes[0], g.nodes[0].As<graph::ResampleAttrs>(),
                    tiles, b,          PairsSuffice(g, tiles, target)};
  Block body;
  const LocatedTile located = LocateTile(f, body);
  const TileSources sources = LoadSources(f, located.position, body);
  const ResultRows rows = ComputeResults(f, located.position, sources, body);
  StoreResults(f, located.position, rows, body);
  return LaunchItems(b, std::move(body), located.tiles, threads);
}

}  // namespace kiln::compiler
