// Factors of the weights of a softmax: for finding attention, and for what its weights need not
// compute.
#pragma once

#include <optional>
#include <vector>

#include "compiler/patterns/graph_view.h"

namespace kiln::compiler {

// From the weights of the second product back to an exponential, through factors.
struct Factors {
  graph::TensorId exp = graph::kAbsent;
  std::vector<graph::TensorId> multiplied, divided;
};
// Finds the exponential. Values from which none is found are looked at once. All that is found
// becomes members of one group.
std::optional<Factors> FindExp(const GraphView& view, graph::TensorId id);

}  // namespace kiln::compiler
