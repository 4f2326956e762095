// A backend graph as recorded between a client and libcudnn: operation descriptors with their
// attributes, the prefixes CUDNN_BACKEND_ and CUDNN_ATTR_ dropped, and the tensors by uid. Lists of
// one element are bare.
#pragma once

#include <string_view>

#include "ir/graph/graph.h"

namespace kiln::graph {

// Returns a legal graph, or a sentence. Operations and tensor features that we do not have yet are
// kNotSupported, the message starting with the name of the first missing one and a colon.
Result<Graph> ImportRecorded(std::string_view line);

}  // namespace kiln::graph
