// Removes nodes whose results nobody reads and no caller gets. A helper of passes, not a pass.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::compiler {

// True if a node went. The tensors stay, so that ids remain valid.
bool RemoveDeadNodes(graph::Graph& graph);

}  // namespace kiln::compiler
