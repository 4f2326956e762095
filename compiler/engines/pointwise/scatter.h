// Stores at computed places, for the pointwise engine: a scatter, which has each place once, and a
// sum of what meets in one place (scatter_add), by atomic additions. Each walks what it stores, in
// a group of its own.
#pragma once

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

// The node that scatters; null in any other group.
const graph::Node* ScatterOf(const graph::Graph& g);
// The node that adds at computed places; null in any other group.
const graph::Node* ScatterAddOf(const graph::Graph& g);

// Writes if (0 <= place and place < n) y[place] = x[index].
void StoreScattered(KernelBuilder& b, tile::Block& out, const graph::Node& scatter,
                    const Index& index);

// Lowers a scatter_add as two launches: y = before, and y[place] += x[index] for each x, all x of
// an index by one thread, which has a `share` of indices on a GPU.
Lowered LowerScatterAdd(const Group& group, const Target& target, int threads, const Share& share);

}  // namespace kiln::compiler
