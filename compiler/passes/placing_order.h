// PlacingOrder: the order in which partition places nodes, a fused pattern as one.
#pragma once

#include <vector>

#include "compiler/passes/fused_patterns.h"
#include "compiler/passes/group_draft.h"

namespace kiln::compiler {

struct PlacingOrder {
  // A pattern's first node stands for it. Where there is a choice the graph's order is kept. Empty
  // if there is no such order.
  std::vector<graph::NodeId> nodes;
  std::vector<int> pattern_of;  // of each node: the pattern that it belongs to, or kNoPattern
  int tangled = kNoPattern;     // a pattern that stands on a cycle, where there is no order
};

PlacingOrder OrderOf(const LinkedGraph& linked, const std::vector<const FusedPattern*>& patterns);

}  // namespace kiln::compiler
