// The operands of the rows engine's kernel: the arrays that hold what was read of a tile's rows,
// and the statements that fill them. Wide leaves are held in registers or in a ring in shared
// memory; values of rows that lie in memory come ahead of a tile.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/engines/rows/frame.h"

namespace kiln::compiler {

using Arrays = std::map<graph::TensorId, std::string>;  // their names

// The tile at hand. A caller that adds arrays does so to a copy, so that another tile does not see
// what is not defined there.
struct RowsTile {
  tile::Expr number;
  tile::Expr turn;          // the number of tiles before it, in a block that walks
  Arrays held = {};         // registers of held leaves, and of what stages keep
  Arrays inputs = {};       // registers of the values of rows that are read, beside a walk
  Arrays ring = {};         // shared memory
  tile::Expr ring_at = {};  // of the tile's row
};

// ---- held leaves

// Registers for all vectors of these leaves; they replace those that `held` has.
void AllocHeld(const RowsFrame& f, tile::Block& out, const std::vector<graph::TensorId>& leaves,
               Arrays& held);
void ReadHeld(const RowsFrame& f, tile::Block& out, const tile::Expr& tile,
              const std::vector<graph::TensorId>& leaves, const tile::Expr& chunk,
              const Arrays& held);
// Allocates and reads leaves.
void Hold(const RowsFrame& f, tile::Block& out, const std::vector<graph::TensorId>& leaves,
          const tile::Expr& chunk, RowsTile& tile);
// Reads regs[slot .. +lanes) = a vector of `leaf`.
void Fetch(const RowsFrame& f, tile::Block& out, graph::TensorId leaf, const Index& index,
           const std::string& regs, const tile::Expr& slot);

// ---- values of rows

Arrays AllocRowInputs(const RowsFrame& f, tile::Block& out);
void ReadRowInputs(const RowsFrame& f, tile::Block& out, const tile::Expr& tile,
                   const Arrays& inputs);
// Moves `inputs` = `next`, for each of the tile's rows.
void MoveRowInputs(const RowsFrame& f, tile::Block& out, const tile::Expr& tile,
                   const Arrays& inputs, const Arrays& next);

// ---- the ring

// Copies a vector to the ring. Each thread copies what it will read itself, so that it waits for
// nobody else.
void CopyVector(const RowsFrame& f, tile::Block& out, const Arrays& ring, const tile::Expr& base,
                const Row& row, const Place& place);
// A tile's rows into one slot, as one group of copies.
void CopyToRing(const RowsFrame& f, tile::Block& out, const Arrays& ring, const tile::Expr& tile,
                const tile::Expr& slot);

}  // namespace kiln::compiler
