// The graphs that clients of cuDNN have been seen to build, tests/data/recorded_graphs.jsonl.
#pragma once

#include <vector>

#include "ir/graph/graph.h"

namespace kiln::testing {

struct Recorded {
  int line = 0;  // of the file
  graph::Graph graph;
};

// The recorded graphs that import.
std::vector<Recorded> RecordedGraphs();

// True if the graph has a part that several GPUs compute together, which the CPU device declines.
bool NeedsSeveralGpus(const graph::Graph& graph);

// A graph with each extent above 16 replaced by a small one, the same one wherever it stands; those
// of convolutions, windows and parts only where their geometry allows it. An error where extents
// depend on each other in other ways than by being equal.
Result<graph::Graph> WithSmallExtents(graph::Graph graph);

// About how many products and results it has.
double Work(const graph::Graph& graph);

}  // namespace kiln::testing
