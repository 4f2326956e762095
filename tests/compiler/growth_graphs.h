// Graphs of as many nodes as are asked for, in the shapes that tempt a compiler to look at the same
// nodes again and again: for tests of how its time, texts and stack grow.
#pragma once

#include <span>
#include <string_view>

#include "ir/graph/graph.h"

namespace kiln::compiler {

struct GrowthShape {
  std::string_view name;
  graph::Graph (*make)(int nodes, const Dims& dims);  // [rows, columns] of most tensors
};

std::span<const GrowthShape> GrowthShapes();
graph::Graph GrowthGraph(std::string_view name, int nodes, const Dims& dims);

}  // namespace kiln::compiler
