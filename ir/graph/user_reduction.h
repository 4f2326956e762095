// A reduction by a client's own operator, which is a sub-graph of pointwise operations:
//
//   acc = init
//   for each element along the reduced dims, the last dim fastest:
//     acc = combine(acc, x)            tuples, as a maximum with its place or a mean with its
//   y = acc                            squared distances are
//
// Spelled out in one of three ways, the first that is right:
//
//   acc op f(x), op of + * min max     a map, a reduction, and `op` with the initial value
//   an associative operator            runs of some neighbours in order, then runs of these
//   any other                          one step behind the other: an output is one lane's work, and
//                                      the graph grows with the elements, so that these are limited
//
// Whether an operator is associative is found out by evaluating it on five hundred triples of
// numbers (small integers, which tie, fractions, large ones, and the sub-graph's constants): what
// holds for these is taken for a law.
#pragma once

#include <map>
#include <vector>

#include "ir/base/result.h"
#include "ir/graph/graph.h"

namespace kiln::graph {

struct UserReduction {
  Graph combine;  // sorted; tensors are known by their uids, and extents mean nothing
  std::vector<int64_t> accumulators, currents, outputs;  // uids in it, one for each result
  std::vector<double> init;
  std::vector<DType> types;  // what accumulators are rounded to between steps
  Dims dims;                 // reduced, ascending; y has 1 there
  std::vector<TensorId> x, y;
  // Tensors of one element that `combine` reads as well, by their uid in it; they are in the graph
  // and have the rank of x.
  std::map<int64_t, TensorId> others;
};

// The uids that `others` must have: operands of `combine` that are no accumulator, current or
// constant.
Result<std::vector<int64_t>> OthersOf(const UserReduction& parts);
Status SpellUserReduction(Graph& graph, const UserReduction& parts);

}  // namespace kiln::graph
