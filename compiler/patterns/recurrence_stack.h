// RecurrenceStack: layers of a recurrent network one above the other, found by structure in a graph
// of primitives.
//
//   %y, …  = recurrence(%xg, …)                          a stage
//   %d     = map mul(%y, %scale)                         dropout, where there is some
//   %p     = matmul(%d [1,T*B,H], %w [1,H,G*H])          what lies between two stages: a link
//   %xg2   = map add(%p, %bias)
//   %y2, … = recurrence(%xg2, …)                         the next stage
//
//   %dgates, … = recurrence_grad(%dy, …)                 the last layer is the first stage
//   %p         = matmul(%dgates [1,T*B,G*H], %w)
//   %dy2       = map mul(%p, %scale)
//   %dgates2   = recurrence_grad(%dy2, …)
//
// Reshapes and casts may stand anywhere. A stage of a step needs no more of the stage before than
// that step, so that all stages may run at once, each a step behind the one before: a wavefront.
// Layers of both directions need the layer below as a whole, and are no stack. Partition makes one
// group of a stack where an engine takes it.
#pragma once

#include <vector>

#include "compiler/patterns/recurrence_shape.h"
#include "ir/graph/graph.h"

namespace kiln::compiler {

struct RecurrenceStack {
  std::vector<graph::NodeId> stages = {};  // in the order of data
  // A link from a stage to the next one.
  struct Link {
    graph::TensorId matrix = -1;  // [1, depth, units of all gates]
    graph::TensorId bias = -1;    // [1, 1, units of all gates]; absent: there is none
    graph::TensorId scale = -1;   // [T,B,H] or [1,T*B,H]; absent: there is no dropout
  };
  std::vector<Link> links = {};
  std::vector<graph::NodeId> members = {};  // ascending; all but what floats
};

// All stacks of a graph, the tallest first, and stacks of fewer layers of each.
std::vector<RecurrenceStack> FindRecurrenceStacks(const graph::Graph& g);

// The stack of a group, which is all of it; or why it has none.
Result<RecurrenceStack> RecurrenceStackOf(const Group& group);

}  // namespace kiln::compiler
