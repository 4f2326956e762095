// The sources of a tile of window results, read once into registers.
#pragma once

#include "compiler/engines/window/tile_frame.h"

namespace kiln::compiler {

// An array of registers, and where a source's first lane is in it.
struct SourcePiece {
  std::string regs;
  int slot = 0;
};

struct TileSources {
  std::map<Places, tile::Expr> inside;  // whether a source lies in its tensor; null for always
  std::map<std::pair<graph::TensorId, Places>, SourcePiece> pieces;
};

TileSources LoadSources(const TileFrame& f, const TilePosition& at, tile::Block& out);

}  // namespace kiln::compiler
