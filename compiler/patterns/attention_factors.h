// What the weights of a softmax are a multiple of: for finding attention, and for what its weights
// need not compute.
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
// Values from which no exponential is found are looked at once. All that is found becomes members
// of one group.
std::optional<Factors> FindExp(const GraphView& view, graph::TensorId id);

}  // namespace kiln::compiler
