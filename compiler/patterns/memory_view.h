// Views of memory: the place of what a view shows, as far as strides say it.
//
//   %part = slice(x) %m = reshape(%part) %t = transpose(%m)   %t lies in x, from some element on
#pragma once

#include <optional>
#include <vector>

#include "ir/graph/graph.h"

namespace kiln::compiler {

struct MemoryPlace {
  graph::TensorId memory = graph::kAbsent;  // whose memory it is
  Dims strides = {};
  int64_t offset = 0;  // elements from the beginning of `memory`
};

bool IsRowMajor(const graph::Tensor& t);

// The place of the result of a view whose operand stands at `x`; nothing where it is not a view, or
// no strides say it.
std::optional<MemoryPlace> PlaceOfView(const graph::Graph& g, const graph::Node& node,
                                       const MemoryPlace& x);

// The place of a tensor in memory: the tensor itself where nothing of the graph makes it, or what
// it is a view of; nothing where it is computed, or is no memory.
std::optional<MemoryPlace> PlaceInMemory(const graph::Graph& g,
                                         const std::vector<graph::NodeId>& producers,
                                         graph::TensorId id);

}  // namespace kiln::compiler
