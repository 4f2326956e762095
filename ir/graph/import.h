// Graphs from files: Kiln's text, cudnn-frontend's JSON, recorded backend graphs. The tool's GRAPH
// arguments and the tests read through here.
#pragma once

#include <string_view>

#include "ir/graph/graph.h"

namespace kiln::graph {

// Recognises the format by its first characters and returns a legal graph (builder.h: Legalize).
// Errors of syntax name line and column; others the place as a path, "nodes[3].inputs.X".
Result<Graph> ImportAny(std::string_view text);

}  // namespace kiln::graph
