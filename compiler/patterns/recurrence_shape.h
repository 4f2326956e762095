// RecurrenceShape: the extents of a recurrence or of its gradient, and what its tensors are made
// of.
#pragma once

#include "compiler/module.h"
#include "ir/graph/graph.h"
#include "ir/graph/rnn.h"

namespace kiln::compiler {

struct RecurrenceShape {
  const graph::Node* node = nullptr;
  graph::RecurrenceAttrs attrs;
  graph::CellBlocks blocks;
  int64_t steps = 0, batch = 0, directions = 1, hidden = 0, projected = 0;
  int64_t stages = 1;  // of a stack (recurrence_stack.h), each as a direction of its own
  bool is_grad = false, is_projected = false;
  DType type = DType::kF32;         // of states
  DType accumulator = DType::kF32;  // f64 where it computes so
};
RecurrenceShape RecurrenceShapeOf(const Group& group);

}  // namespace kiln::compiler
