// Checks of kernels that read and write memory as it is: conditions on a group, and the sentences
// that say no.
#pragma once

#include <initializer_list>

#include "ir/base/result.h"
#include "ir/graph/graph.h"

namespace kiln::compiler {

// Checks for an engine that reads memory as it is that none of these is computed by the group.
Status CheckInMemory(const graph::Graph& graph, std::initializer_list<graph::TensorId> operands);
Status CheckKeptAsF32(const graph::Graph& graph, std::initializer_list<graph::TensorId> tensors);
Status CheckComputesInF32(const graph::Graph& graph);

}  // namespace kiln::compiler
