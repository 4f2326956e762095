// Graphs of the compiler as cases, which clients of the C interface make: case_graph.h backwards.
#pragma once

#include "ir/graph/graph.h"
#include "tests/support/cases.h"

namespace kiln::testing {

// An error names what the cases' language, or the C interface, has no word for.
Result<Case> ToCase(const graph::Graph& graph);

}  // namespace kiln::testing
