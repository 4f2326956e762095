// GroupedProducts: products of matrices in one graph that need nothing of one another, found by
// structure in a graph of primitives. The weights' gradients of a recurrent network are such.
//
//   %left  [1,K,M]  in memory                     %c = concat(%first [t,B,N], %others [T-t,B,N])
//   %a     = transpose(%left)                     %b = reshape(%c)   [1,K,N], or in memory itself
//   %p     = matmul(%a [1,M,K], %b)
//   %q     = map add(%p, %before)                 maybe
//   %y     = cast(%q)
//
// or %a [1,M,K] in memory, as simplify leaves a transpose that nothing but products read.
//
//   %s     = reduce add(%left)  [1,1,M]           maybe, with the same maps after it, each once or
//   %z     = cast(map add(%s, %before2))          more: what ones would be multiplied to
//
// Partition makes one group of them where an engine takes it.
#pragma once

#include <vector>

#include "ir/graph/graph.h"

namespace kiln::compiler {

// The stored result of a sum, and what is added to it: kAbsent where that is nothing.
struct GroupedResult {
  graph::TensorId stored = graph::kAbsent, before = graph::kAbsent;
};

struct GroupedProduct {
  graph::TensorId left = graph::kAbsent;     // [1,K,M], or [1,M,K]
  bool is_turned = false;                    // the latter
  std::vector<graph::TensorId> rights = {};  // one or two, one behind the other along k
  GroupedResult result = {};                 // [1,M,N]
  std::vector<GroupedResult> sums = {};      // of left over k, [1,1,M]
  std::vector<graph::NodeId> members = {};   // the matmul and the maps behind it, and those of sums
};

// All products of a graph in its order; operands may be views.
std::vector<GroupedProduct> FindGroupedProducts(const graph::Graph& g);

}  // namespace kiln::compiler
