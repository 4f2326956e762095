// A graph that fails, made small: what is left is worth reading.
#pragma once

#include <functional>

#include "ir/graph/graph.h"

namespace kiln::graph {

// Legal graphs only are given to `fails`, which must be true of `graph`. Tries, as long as
// something helps: one output alone; operands of a node as inputs of the graph, without what made
// them; extents halved; strides without gaps; and gives what still fails.
Graph Shrink(const Graph& graph, const std::function<bool(const Graph&)>& fails,
             int most_tries = 400);

}  // namespace kiln::graph
