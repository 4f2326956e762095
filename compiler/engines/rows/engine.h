// rows: groups of chained reductions along rows, and maps around them (norms, softmax and their
// gradients): one kernel, in which a team of threads keeps a row in registers from the one time
// that it is read until its results are stored. GPUs only. It needs no workspace: where none is to
// be had it takes every chain, rows that lie side by side and rows of any length among them.
#pragma once

#include "compiler/engines/engine.h"
#include "compiler/engines/reduction/rows_plan.h"

namespace kiln::compiler {

extern const Engine kRowsEngine;

// The kernel (rows/kernel.cc).
Lowered LowerRows(const RowsPlan& plan, const Target& target, const RowsShape& shape);

}  // namespace kiln::compiler
