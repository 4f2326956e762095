// How the skeletons of attention on mma.sync get at rows of operands and results: functions that
// move 8 neighbours of a row, between memory of any strides and panels in shared memory.
#pragma once

#include <functional>
#include <string>

#include "compiler/engines/kernel_builder.h"

namespace kiln::compiler {

// Rows of a tensor along `depth`, one for each place of `places`.
struct OperandRows {
  graph::TensorId id;
  int64_t places, depth;
};
// The index of the dims before the last two, for a head; what it has of the others is overwritten.
using HeadIndex = std::function<Index(tile::Block& out, const tile::Expr& head)>;
// Where `head` counts the tensor's own dims.
HeadIndex OwnHeads(KernelBuilder& b, graph::TensorId id);

// Adds function name(to, head, row, column): zeroes outside of the tensor. Returns whether copies
// are asynchronous: of neighbours that lie together, as they are.
bool AddRowsLoad(KernelBuilder& b, tile::Call& call, const char* name, const std::string& memory,
                 const OperandRows& rows, const HeadIndex& heads);
// Adds function name(values, head, row, column), of rows that there are; columns may lie outside.
void AddRowsStore(KernelBuilder& b, tile::Call& call, const char* name, graph::TensorId id);

}  // namespace kiln::compiler
