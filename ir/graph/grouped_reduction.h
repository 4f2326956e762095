// A reduction of groups of rows that begin at offsets in memory, as tokens of experts do, spelled
// by a mask:
//
//   begun  = number of offsets that are not above the row        [1,rows,1…]
//   inside = group + 1 == begun                                  [groups,rows,1…]
//   y      = reduction(inside ? x : what changes nothing)        x[1,rows,…], y[groups,1,…]
//
// Each group reads all rows: the work is groups * rows. A group without rows is the reduction of
// nothing: 0, 1 of a product, infinities of a maximum and a minimum, NaN of a mean.
#pragma once

#include "ir/base/result.h"
#include "ir/graph/graph.h"

namespace kiln::graph {

struct GroupedReduction {
  TensorId x = kAbsent, offsets = kAbsent, y = kAbsent;
  ReductionAttrs attrs = {};
  DType compute = DType::kF32;
};
Status SpellGroupedReduction(Graph& graph, const GroupedReduction& parts);

}  // namespace kiln::graph
