// The derivative of a chain of pointwise nodes, in reverse: what stands between the scores and the
// softmax of attention as one operation has no gradient of its own in the API
// (attention_gradient.h).
//
//   y = f(x, …)                    gradients add up where x is read more than once
//   dx = dy * df/dx
//
// Comparisons and logical modes are steps, through which nothing flows. Of equal operands of a
// maximum or a minimum the first has the gradient, and |x| has none at 0. Modes without a
// derivative (floor, mod, …), integers, and nodes that are not pointwise are refused by name where
// they lie between x and y.
#pragma once

#include "ir/base/result.h"
#include "ir/graph/graph.h"

namespace kiln::graph {

struct PointwiseChain {
  size_t first = 0, last = 0;  // its nodes, the last not included
  TensorId x = kAbsent, y = kAbsent;
  TensorId dy = kAbsent;
  // True if dy is 0 wherever y is -inf, as before a softmax: selections of -inf on the way then
  // need no selection of the gradient.
  bool hidden_have_none = false;
  // Extents of one more operand of a sum whose gradient is asked for: the only operand of these
  // extents that no node writes. Empty: none is asked for.
  Dims addend = {};
};
struct ChainGradient {
  TensorId dx = kAbsent;
  TensorId addend = kAbsent;  // of y's extents: to be summed to the operand's
};
Result<ChainGradient> SpellChainGradient(Graph& graph, const PointwiseChain& chain);

}  // namespace kiln::graph
