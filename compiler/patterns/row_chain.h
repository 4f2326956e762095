// RowChain: reductions along the same dims of one space of rows, and the maps that bring their
// results back along the rows, found by structure in a graph of primitives:
//
//   max   = reduce max(x)      [N,1]          mean = reduce add(x) / n
//   exp   = exp(x - max)       [N,C]          d    = x - mean
//   sum   = reduce add(exp)    [N,1]          var  = reduce add(d * d) / n
//   y     = exp / sum          [N,C]          y    = d * rsqrt(var + eps) * scale + bias
//
// Softmax and norms are such chains, however clients spell them, and so is anything else of that
// form. Each reduction of a chain reads what the ones before it have made, so that apart they are a
// kernel and a pass over memory each; one kernel that keeps a row reads it once. Partition makes
// one group of a chain where an engine takes that.
#pragma once

#include <vector>

#include "ir/graph/graph.h"

namespace kiln::compiler {

struct RowChain {
  Dims domain;                         // extents of the space of rows
  std::vector<graph::NodeId> members;  // ascending
  // Reductions across all rows of what the chain reads or makes (dgamma and dbeta of a norm's
  // gradient), which may join it.
  std::vector<graph::NodeId> columns = {};
  // True if the chain is worth one kernel without them, too.
  bool stands_alone = true;
};

// All chains of a graph, in its order. They share no node. Nothing that a member reads follows from
// another node that reads a member.
std::vector<RowChain> FindRowChains(const graph::Graph& graph);

}  // namespace kiln::compiler
