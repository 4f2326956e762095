#include "compiler/engines/window/tile_sources.h"

#include <algorithm>
#include <limits>

namespace kiln::compiler {
namespace {

using graph::PaddingTap;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;

// The value that stands for sources outside.
double Beyond(const TileFrame& f) {
  const PaddingTap padding = graph::PaddingTapOf(f.attrs);
  // Pairs drop a NaN, also where all else is -infinity, and its tap is not inside.
  if (f.in_pairs && !f.attrs.propagate_nan && padding == PaddingTap::kSkipped)
    return std::numeric_limits<double>::quiet_NaN();
  const bool lowest = f.forward() && (padding == PaddingTap::kNegInf ||
                                      (f.is_max() && padding == PaddingTap::kSkipped));
  return lowest ? -std::numeric_limits<double>::infinity() : 0;
}

// A condition: `count` neighbours from a source on lie in its tensor; null for always.
Expr Inside(const TileFrame& f, const TilePosition& at, const WindowTiles::Axis& axis, int source,
            int count = 1) {
  const int64_t extent = f.g[f.node.inputs[0]].dims[axis.dim];
  const int64_t tiles = CeilDiv(f.g[f.node.outputs[0]].dims[axis.dim], int64_t{axis.tile});
  const Expr first = at.from.at(axis.dim) + f.b.Idx(source);
  Expr inside;
  if (source < 0) inside = tile::Ge(first, f.b.Idx(0));
  if ((tiles - 1) * axis.step + source + count > extent) {
    const Expr below = tile::Lt(first + f.b.Idx(count - 1), f.b.Extent(f.node.inputs[0], axis.dim));
    inside = inside ? tile::And(inside, below) : below;
  }
  return inside;
}

// Reads `count` neighbours of a tensor, or fills their registers with what stands for them.
SourcePiece Fetch(const TileFrame& f, const TilePosition& position, Block& out, TensorId id,
                  const Places& at, int count, const Expr& inside) {
  KernelBuilder& b = f.b;
  const WindowTiles& tiles = f.tiles;
  const Tensor& t = f.g[id];
  SourcePiece piece{.regs = b.Name(t.name + "_r")};
  out.push_back({tile::Alloc{piece.regs, t.dtype, tile::Space::kReg, count}});
  Index index = position.place;
  for (size_t s = 0; s < at.size(); ++s)
    index[tiles.axes[s].dim] = position.from.at(tiles.axes[s].dim) + b.Idx(at[s]);
  Block read, fill;
  const Expr offset = b.Offset(id, index);
  if (WalkOf(t, tiles.lane_dim) == Walk::kContiguous && count > 1) {
    WideCopy(read, t.dtype, piece.regs, b.Idx(0), b.Pointer(id), offset, count);
  } else {
    for (int l = 0; l < count; ++l)
      read.push_back({tile::Store{
          piece.regs, b.Idx(l),
          tile::Load(b.Pointer(id), t.dtype, offset + b.Idx(l) * b.Stride(id, tiles.lane_dim))}});
  }
  if (!inside) {
    std::ranges::move(read, std::back_inserter(out));
    return piece;
  }
  const double beyond = id == f.node.inputs[0] ? Beyond(f) : 0;
  const Expr value = IsFloat(t.dtype) ? tile::Float(beyond) : tile::Int(0);
  for (int l = 0; l < count; ++l)
    fill.push_back({tile::Store{piece.regs, b.Idx(l), tile::Cast(t.dtype, value)}});
  // Known where one tile has all results along the axis.
  if (tile::IsConst(inside, 0))
    std::ranges::move(fill, std::back_inserter(out));
  else
    out.push_back({tile::If{inside, std::move(read), std::move(fill)}});
  return piece;
}

// The conditions that sources lie in their tensor, each named once.
class Conditions {
 public:
  Conditions(const TileFrame& f, const TilePosition& at, Block& out) : f_(f), at_(at), out_(out) {
    if (f.tiles.chunk != 0) of_chunk_ = Inside(f, at, f.tiles.axes.back(), 0, f.tiles.chunk);
  }

  // `in_chunk`: the source comes with the chunk, which is inside as a whole or not at all.
  Expr Of(const Places& source, bool in_chunk) {
    Expr inside;
    for (size_t s = 0; s < source.size(); ++s) {
      const bool by_chunk = in_chunk && s + 1 == source.size();
      const Expr here = by_chunk ? of_chunk_ : Along(f_.tiles.axes[s], source[s]);
      if (here) inside = inside ? tile::And(inside, here) : here;
    }
    return inside ? f_.b.Let(out_, "exists", inside) : inside;
  }

 private:
  Expr Along(const WindowTiles::Axis& axis, int source) {
    auto [it, is_new] = known_.try_emplace({axis.dim, source});
    if (is_new)
      if (const Expr inside = Inside(f_, at_, axis, source))
        it->second = f_.b.Let(out_, "inside", inside);
    return it->second;
  }

  const TileFrame& f_;
  const TilePosition& at_;
  Block& out_;
  Expr of_chunk_;
  std::map<std::pair<int64_t, int>, Expr> known_;
};

}  // namespace

TileSources LoadSources(const TileFrame& f, const TilePosition& position, Block& out) {
  TileSources sources;
  Conditions conditions(f, position, out);
  const WindowTiles& tiles = f.tiles;
  for (const Places& at : SourcesOfTile(tiles)) {
    const bool in_chunk = at.back() >= 0 && at.back() < tiles.chunk;
    const Expr inside = sources.inside[at] = conditions.Of(at, in_chunk);
    for (const TensorId id : SourcesOf(f.node)) {
      if (!in_chunk) {
        sources.pieces[{id, at}] = Fetch(f, position, out, id, at, tiles.lanes, inside);
        continue;
      }
      Places first = at;
      first.back() = 0;
      if (!sources.pieces.contains({id, first}))
        sources.pieces[{id, first}] = Fetch(f, position, out, id, first, tiles.chunk, inside);
      sources.pieces[{id, at}] = {sources.pieces[{id, first}].regs, at.back()};
    }
  }
  return sources;
}

}  // namespace kiln::compiler
