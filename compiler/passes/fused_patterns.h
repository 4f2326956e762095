// FusedPattern: a set of nodes that an engine may run as one group, whatever partition would make
// of them node by node. Patterns are found by structure before partition starts (attention, layers
// of recurrent networks, products that need nothing of one another, chains of reductions along
// rows). Partition asks engines about each and drops those that none takes.
#pragma once

#include <set>
#include <vector>

#include "compiler/module.h"
#include "ir/graph/graph.h"
#include "ir/target.h"

namespace kiln::compiler {

struct FusedPattern {
  GroupKind kind;
  Dims domain;
  std::vector<graph::NodeId> members;  // ascending
};

// All patterns of a graph. Attention comes first, since its rows are no chain where it is taken,
// and each chain comes first with all that may join it.
std::vector<FusedPattern> FindFusedPatterns(const graph::Graph& g, const Target& target);

// Views that make booleans of bits for a chain of reductions. Stored as bytes, they leave the chain
// its walk through memory, which a view among its operands would forbid.
std::set<graph::NodeId> UnpackedForChains(const graph::Graph& g,
                                          const std::vector<FusedPattern>& all);

// Indices of the first patterns that share no node, without those that are dropped.
std::vector<size_t> Disjoint(const std::vector<FusedPattern>& all, const std::vector<char>& dropped,
                             size_t nodes);

}  // namespace kiln::compiler
