// TileFrame: the facts that the parts of the kernel of WindowTiles know, and the places of one
// tile. The kernel loads a tile's sources (tile_sources.h), computes its results (tile_results.h),
// and stores them (tiles.cc); all places are numbers from where the tile starts.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/engines/window/links.h"
#include "compiler/engines/window/tiles.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

struct TileFrame {
  const graph::Graph& g;
  const graph::Node& node;
  const graph::ResampleAttrs& attrs;
  const WindowTiles& tiles;
  KernelBuilder& b;
  bool in_pairs;  // maxima of 16-bit neighbours are found two at a time: tile::Largest

  bool forward() const { return IsForward(node); }
  bool is_max() const { return IsMax(node); }
  // The number of results that lie side by side in registers: channels, or a row of the tile.
  int CountOfRow() const { return tiles.along ? tiles.axes.back().tile : tiles.lanes; }
  // The tensor that has a maximum's tap, or kAbsent.
  graph::TensorId numbers() const {
    return node.outputs.size() > 1 ? node.outputs[1] : graph::kAbsent;
  }
  // True for results of 16 bits and less, which do not tell a product by 1 / n from a quotient.
  bool RoundsMore() const { return SizeOf(g[node.outputs[0]].dtype) <= 2; }
};

using Places = std::vector<int>;  // one along each axis

// All sources and all results of a tile, the last axis fastest.
std::vector<Places> SourcesOfTile(const WindowTiles& tiles);
std::vector<Places> ResultsOfTile(const WindowTiles& tiles);
// The first result of the row that `result` is part of.
Places RowOf(const TileFrame& f, Places result);

// A tap of a result: its source, and its number in the window.
struct TapOfResult {
  Places source;
  int number;
};
std::vector<TapOfResult> TapsOf(const TileFrame& f, const Places& result);

// The place of a thread's tile.
struct TilePosition {
  Index place;                         // of its first result
  std::map<int64_t, tile::Expr> from;  // by dim: source 0
};

// The registers of each row of a tile's results.
using ResultRows = std::map<std::pair<graph::TensorId, Places>, std::string>;

}  // namespace kiln::compiler
