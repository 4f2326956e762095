// Uids for graphs that come from a file: a caller's tensors are told apart by them.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

// Gives a uid to each tensor that a caller passes and that has none: the smallest numbers from 1 on
// that no tensor has. A client's negative uids are replaced too, since only others reach a program;
// tensors that shared one, as the two versions of an in-place graph, share the new one. Virtual
// tensors and constants stay as they are.
void GiveUids(Graph& graph);

}  // namespace kiln::graph
