// The batch of a graph: how many images its leading operand has, and the same graph with another
// number of them. Callers use it for facts that hold of a network whatever its batch.
#pragma once

#include <cstdint>

#include "ir/graph/graph.h"

namespace kiln::graph {

// Dim 0 of the first operand of the first node; 0 where there is none.
int64_t BatchOf(const Graph& graph);

// The graph with `images` in the place of the batch, in every tensor that has it as dim 0 and is no
// filter. Strides stay: batches are outermost, or the tensor is not what a client would have made.
Graph WithBatch(Graph graph, int64_t images);

}  // namespace kiln::graph
