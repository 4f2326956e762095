// The two kinds of stages of the rows engine's kernel: those that reduce, and the last one, which
// stores.
#pragma once

#include "compiler/engines/rows/across_rows.h"
#include "compiler/engines/rows/stage_values.h"

namespace kiln::compiler {

// Writes the stage's reductions over a tile's rows. Returns the tile with what the stage keeps.
// `distances`: the next stage, whose moment is made together with its sum, or null.
RowsTile ReduceStage(const RowsFrame& f, RowsTotals& totals, tile::Block& out, RowsTile tile,
                     const RowsPlan::Stage& stage, const RowsPlan::Stage* distances);

// Writes the last stage's maps; results go out as vectors. `columns` takes them in where sums
// across rows are wanted, else it is null.
void StoreStage(const RowsFrame& f, const RowsTotals& totals, tile::Block& out,
                const RowsTile& tile, const RowsPlan::Stage& stage, RowsColumns* columns);

}  // namespace kiln::compiler
