// ColumnsPlan: a group of kind kRows as passes over memory by all blocks, for places that share a
// result of the reductions without lying together, or that are too many for one block. A column is
// all that is reduced into one result:
//
//   pass 0    partial sum(x), sum((x - mean)^2)    every block has some places of some columns
//   finish    their totals, what follows from them alone (mean, running mean), and what later
//             passes want of it (mean, inv)
//   pass 1    y = (x - mean) * inv * s             walks backwards: the L2 cache has the end of x
//
// The sum of squared distances from a mean is made in the pass that makes the mean: parts have
// their own, exact to their size, and are corrected when the mean of all is known:
//   sum over parts of  m2 + n * (mean of the part - mean)^2
#pragma once

#include <vector>

#include "compiler/engines/reduction/rows_plan.h"

namespace kiln::compiler {

struct ColumnsPlan {
  RowsPlan chain;           // moments stand in the stage of their sum
  std::vector<int> sum_of;  // of a reduction: the sum whose mean it is the squared distances from,
                            // or -1
  // Wide results that no reduction is needed for, stored by the pass that reduces them: the last
  // one reads them in place of what they are made of. They are no part of chain.wide_outputs.
  std::vector<graph::TensorId> early;
  bool across = false;  // columns are neighbours in memory: a thread has `lanes` of them; else
                        // it has `lanes` elements of one
  int lanes = 1;

  const graph::Graph& graph() const { return chain.row.group.graph; }
  const graph::Node& reduce(size_t r) const { return graph().nodes[chain.row.reduces[r]]; }
  int64_t columns() const { return chain.row.rows; }
  // The elements of one column that a thread reads at a time.
  int elements() const { return across ? 1 : lanes; }
  // The reductions of a stage in the order in which they can be finished: sums before moments.
  std::vector<size_t> InOrder(size_t stage) const;
  bool IsMoment(size_t r) const { return sum_of[r] >= 0; }
  bool HasMoment(size_t r) const;
  // True if a sum of the stage adds distances from the first element of its column. Results that
  // are stored early may lie where that element did.
  bool IsShifted(size_t stage, size_t r) const {
    return stage == 0 && early.empty() && HasMoment(r) && compiler::IsShifted(chain.row, r);
  }
};

ColumnsPlan PlanColumns(const Group& group);

struct ColumnsKnobs {
  int threads, unroll, splits;  // 0: what suits the group
};

// The way in which blocks share one pass. A place is a vector of a column, or one element of
// `lanes` columns; the places of a column are walked in tiles of `walkers * unroll`. In a pass that
// reduces, a block takes every splits-th tile, so that all blocks, as many as are resident, are at
// neighbouring places at a time. In a pass that stores, blocks are many and have a few tiles behind
// one another: some read while others write.
struct ColumnsShape {
  int threads = 256;
  int width = 1;  // threads beside one another, each with its own columns
  int walkers = 256;
  int unroll = 4;
  int resident = 1;                            // blocks of a multiprocessor
  int64_t vectors = 1, tiles = 1, blocks = 1;  // of columns: across, along the innermost dim
  int64_t places = 0, full = 0, splits = 1;    // of a column; tiles that are whole

  int tile() const { return walkers * unroll; }
  int stores = 0;                                  // tiles of a block of a pass that stores
  int64_t turns() const { return full / splits; }  // of every split
  int64_t owner() const { return full % splits; }  // has the rest; splits before it a turn more
  int64_t rest() const { return places - full * tile(); }
};
ColumnsShape ShapeOf(const ColumnsPlan& plan, const Target& target, size_t stage,
                     const ColumnsKnobs& knobs);

}  // namespace kiln::compiler
