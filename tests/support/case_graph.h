// A case as a graph of the compiler: the same problem that client.h builds through the C API, for
// tests that choose engines themselves.
#pragma once

#include "ir/graph/graph.h"
#include "tests/support/cases.h"

namespace kiln::testing {

// Contractions, pointwise operations, reductions and statistics. Tensor i of the case is tensor i
// of the graph, with its uid, unless nothing names it. An error where the case has something else.
Result<graph::Graph> ToGraph(const Case& c);

}  // namespace kiln::testing
