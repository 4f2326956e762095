// The results of a tile of windows, computed from its sources in registers.
#pragma once

#include "compiler/engines/window/tile_sources.h"

namespace kiln::compiler {

// Declares registers for all rows of results, and fills them.
ResultRows ComputeResults(const TileFrame& f, const TilePosition& at, const TileSources& sources,
                          tile::Block& out);

// Maxima of neighbours of 16 bits are found two at a time (tile_pairs.cc) where PairsSuffice says
// so.
bool PairsSuffice(const graph::Graph& g, const WindowTiles& tiles, const Target& target);
void ComputeInPairs(const TileFrame& f, const TileSources& sources, const ResultRows& rows,
                    tile::Block& out);

}  // namespace kiln::compiler
