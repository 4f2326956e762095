// Values that one stage of the rows engine computes its wide tensors from: leaves, values of the
// row, and quotients that one reciprocal a row replaces.
#pragma once

#include <utility>
#include <vector>

#include "compiler/engines/rows/operands.h"
#include "compiler/engines/rows/totals.h"

namespace kiln::compiler {

// The known values of the row, computed from the reductions so far.
struct RowValues {
  std::vector<std::pair<graph::TensorId, tile::Expr>> known;
  struct Quotient {
    graph::NodeId node;
    tile::Expr scale, reciprocal;
  };
  std::vector<Quotient> quotients;
};

// The scope of a row's values: what was read of it, and its totals.
ValueScope RowScope(const RowsFrame& f, const RowsTotals& totals, const RowsTile& tile,
                    tile::Block& out, const Row& row);
RowValues RowValuesFor(const RowsFrame& f, const RowsTotals& totals, const RowsTile& tile,
                       tile::Block& out, const Row& row, const RowsPlan::Stage& stage);

// The stage's leaves at one vector.
struct StageLeaves {
  const RowsPlan::Stage& stage;
  const Arrays& held;
  Arrays others;  // registers of those that are not held, of one vector
};
// Reads the leaves that are not held.
StageLeaves FetchLeaves(const RowsFrame& f, const RowsTile& tile, tile::Block& out,
                        const RowsPlan::Stage& stage, const Place& place);
// Binds everything that the stage's wide tensors are computed from, at one element of a vector.
void BindLeaves(const RowsFrame& f, tile::Block& out, ValueScope& values, const StageLeaves& leaves,
                const RowValues& of_row, const Place& place, const Element& element);

// Emits for the whole row at once, or for one chunk of it after the other: emit(out, chunk, tile
// with the chunk's leaves held).
void EachChunk(const RowsFrame& f, const RowsTile& tile, tile::Block& out,
               const RowsPlan::Stage& stage,
               const std::function<void(tile::Block&, const tile::Expr&, const RowsTile&)>& emit);

}  // namespace kiln::compiler
