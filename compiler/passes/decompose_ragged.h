// Loads and stores of ragged tensors as primitives, for `decompose`:
//
//   %place = slice(%offsets) + the sum over dims but the first of iota * stride
//   %place = select(%place < slice(%offsets, start=1), %place, -1)
//   %y = gather(%memory, %place)   or   %memory = scatter(%x, %place, %memory_before)
#pragma once

#include "ir/graph/graph.h"

namespace kiln::compiler {

void DecomposeRaggedLoad(graph::Graph& g, const graph::Node& node);
void DecomposeRaggedStore(graph::Graph& g, const graph::Node& node);

}  // namespace kiln::compiler
