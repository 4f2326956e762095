// cudnn-frontend's JSON form of a graph (graph.serialize(json&), or what it logs at validate),
// before or after build_operation_graph.
#pragma once

#include <string_view>

#include "ir/graph/graph.h"

namespace kiln::graph {

// Returns a legal graph, or a sentence. Nodes that are no operation of ours yet are kNotSupported
// with the node's tag.
Result<Graph> ImportFrontend(std::string_view json);

}  // namespace kiln::graph
