// Questions about a graph's operations that decide what a ranking has to look at. They are answered
// from the nodes alone, before anything is grouped.
#pragma once

#include <initializer_list>

#include "ir/graph/graph.h"

namespace kiln::api {

// True if the graph may hold what is grouped by who asks for it: attention, layers of a recurrent
// network, products that need nothing of one another. Each holds two products or loops over time.
bool MayHoldWholes(const graph::Graph& graph);

// True if a product (or what becomes some) has an operand of one of these types.
bool Multiplies(const graph::Graph& graph, std::initializer_list<DType> types);

// True if there is a convolution.
bool Convolves(const graph::Graph& graph);

}  // namespace kiln::api
