// PlaceNodes: the first half of partition. Each node, in order, opens a group, joins one, or
// floats, which means that it is computed again wherever it is read.
#pragma once

#include <set>
#include <vector>

#include "compiler/passes/fused_patterns.h"
#include "compiler/passes/group_draft.h"
#include "compiler/patterns/memory_places.h"
#include "ir/target.h"

namespace kiln::compiler {

struct PlacingRules {
  const Target& target;
  bool stores_little;                         // true if least workspace is asked for
  std::set<graph::NodeId> stored;             // nodes that may not float
  std::vector<const FusedPattern*> patterns;  // are one group each, and share no node
  const std::vector<Assembly>& assemblies;    // results that their parts make
};

Placement PlaceNodes(const LinkedGraph& linked, PlacingRules rules);

}  // namespace kiln::compiler
