// Operands of 8 bits as f16 in scratch buffers, one row behind another, for kernels whose tensor
// maps read them there: whatever the layout of the operands.
#pragma once

#include "compiler/engines/attention/moves.h"
#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

// The bytes of the scratch buffer, whose rows are whole pieces of 16 elements.
int64_t WidenedBytes(const graph::Graph& graph, const OperandRows& rows);
// The map of the buffer, in boxes of 64 columns by `box_rows`.
TensorMapSpec WidenedMap(const graph::Graph& graph, const OperandRows& rows, int box_rows);
// Adds the kernel that widens the operand.
void AddWidened(const Group& group, const Target& target, const char* engine,
                const OperandRows& rows, int scratch, Lowered& lowered);

}  // namespace kiln::compiler
