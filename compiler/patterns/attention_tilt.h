// Scores that are a product's multiple and a multiple of the distance of row and column, as alibi
// makes them: for products that start from the latter, so that it costs an addition less than
// scores that are put together from both.
#pragma once

#include <optional>
#include <utility>

#include "compiler/patterns/attention.h"
#include "compiler/patterns/graph_view.h"

namespace kiln::compiler {

// tilted = product * factor + (column - row) * sign * slope, which nothing but masks with known
// bounds follows; factor and slope are the same for all places of a head. Selections between
// product and factor change nothing where those masks let through.
struct ScoreTilt {
  graph::TensorId tilted = -1, factor = -1, slope = -1;
  int sign = 1;
};
std::optional<ScoreTilt> TiltOf(const graph::Graph& graph, const Attention& attention);

// The numbers (i, j) of a whole number row * i + column * j, of the places along the last two dims
// alone.
std::optional<std::pair<int, int>> PlacesIn(const GraphView& view, graph::TensorId id);

}  // namespace kiln::compiler
