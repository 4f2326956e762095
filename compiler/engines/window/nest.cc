// The kernel of WindowNest: values that lie in memory are loaded, windows computed, results stored;
// maps between them are computed where their values are asked for.
#include "compiler/engines/window/nest.h"

#include <algorithm>

#include "compiler/engines/window/nest_places.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;
using Place = WindowNest::Place;

std::string TileText(const WindowNest& nest) {
  std::string text;
  for (const WindowNest::Axis& axis : nest.axes)
    text += fmt::format("{}{}", text.empty() ? "" : "x", axis.tile);
  return text;
}

int TileOf(const WindowNest& nest, int64_t dim) {
  const auto it = std::ranges::find(nest.axes, dim, &WindowNest::Axis::dim);
  return it == nest.axes.end() ? 1 : it->tile;
}

// Results along the innermost axis, as one wide copy where they lie so.
void StoreRow(KernelBuilder& b, const WindowNest& nest, NestPlaces& places, Block& out,
              ValueScope& values, TensorId id, Place place) {
  const Tensor& t = b.graph()[id];
  const int64_t d = nest.axes.back().dim;
  const int count = nest.axes.back().tile;
  const bool wide = WalkOf(t, d) == Walk::kContiguous && t.dims[d] % count == 0 &&
                    WidestVector(b.graph(), {id}, d) >= std::min(count, 16 / SizeOf(t.dtype));
  const std::string regs = b.Name(t.name + "_w");
  out.push_back({tile::Alloc{regs, t.dtype, tile::Space::kReg, count}});
  place.push_back(0);
  for (int l = 0; l < count; ++l) {
    place.back() = l;
    const Expr value = values.Value(id, places.IndexOf(out, id, place));
    out.push_back({tile::Store{regs, b.Idx(l), tile::Cast(t.dtype, value)}});
  }
  for (int l = 0; l < (wide ? 1 : count); ++l) {
    place.back() = l;
    const Expr exists = places.Inside(out, id, place, wide ? count : 1);
    const Expr offset = b.Offset(id, places.IndexOf(out, id, place));
    Block store;
    if (wide && count > 1)
      WideCopy(store, t.dtype, b.Pointer(id), offset, regs, b.Idx(0), count);
    else
      store.push_back({tile::Store{b.Pointer(id), offset, tile::Load(regs, t.dtype, b.Idx(l))}});
    if (exists)
      out.push_back({tile::If{exists, std::move(store), {}}});
    else
      std::ranges::move(store, std::back_inserter(out));
  }
}

// All rows of the tile, along the axes before the innermost one.
std::vector<Place> RowsOfTile(const WindowNest& nest) {
  std::vector<Place> rows = {{}};
  for (size_t k = 0; k + 1 < nest.axes.size(); ++k) {
    std::vector<Place> longer;
    for (const Place& row : rows) {
      for (int i = 0; i < nest.axes[k].tile; ++i) {
        longer.push_back(row);
        longer.back().push_back(i);
      }
    }
    rows = std::move(longer);
  }
  return rows;
}

}  // namespace

Lowered LowerWindowNest(const Group& group, const Target& target, const WindowNest& nest,
                        int threads) {
  const TensorId lead = graph::Outputs(group.graph)[0];
  const Tensor& y = group.graph[lead];
  KernelBuilder b(group, target,
                  fmt::format("window, nest of {}, threads={}", TileText(nest), threads));
  for (const char* reserved : {"bx", "tx", "i"}) b.Name(reserved);
  const Dims order = MemoryOrder(y.strides);
  Index extents;
  Dims counts;
  for (const int64_t d : order) {
    const int tile = TileOf(nest, d);
    counts.push_back(CeilDiv(y.dims[d], int64_t{tile}));
    extents.push_back(tile == 1 ? b.Extent(lead, d) : b.Arg("tiles", counts.back()));
  }
  Block body;
  const Index split = b.Unravel(body, tile::Var("i", b.index_type()), extents, counts, "i");
  Index tile_at(order.size());
  for (size_t k = 0; k < order.size(); ++k) tile_at[order[k]] = b.Let(body, "at", split[k]);
  NestPlaces places(b, nest, lead, std::move(tile_at));
  ValueScope values(b, body);
  LoadNest(b, nest, places, body, values);
  ComputeNest(b, nest, places, body, values);
  for (const TensorId id : graph::Outputs(group.graph))
    for (const Place& row : RowsOfTile(nest)) StoreRow(b, nest, places, body, values, id, row);
  return LaunchItems(b, std::move(body), NumElements(counts), threads);
}

}  // namespace kiln::compiler
