// Wholes: sets of nodes that an engine may run as one group whatever partition would make of them
// node by node, found by structure before it starts (attention, layers of recurrent networks,
// products that need nothing of one another, chains of reductions along rows). Partition asks
// engines about each and drops those that none takes.
#pragma once

#include <set>
#include <vector>

#include "compiler/module.h"
#include "ir/graph/graph.h"
#include "ir/target.h"

namespace kiln::compiler {

// Nodes that an engine may run as one: attention, recurrent layers, products, or a chain along
// rows.
struct Whole {
  GroupKind kind;
  Dims domain;
  std::vector<graph::NodeId> members;  // ascending
};

// All that a graph has; attention first, since its rows are no chain where it is taken, and chains
// first with all that may join them.
std::vector<Whole> FindWholes(const graph::Graph& g, const Target& target);

// Views that make booleans of bits for a chain of reductions. Stored as bytes, they leave the chain
// its walk through memory, which a view among its operands would forbid.
std::set<graph::NodeId> UnpackedForChains(const graph::Graph& g, const std::vector<Whole>& all);

// The first ones that share no node, by index, without those that are dropped.
std::vector<size_t> Disjoint(const std::vector<Whole>& all, const std::vector<char>& dropped,
                             size_t nodes);

}  // namespace kiln::compiler
