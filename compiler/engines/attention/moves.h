// Functions that move rows of operands and results where tensor maps do not: 8 neighbours of a row,
// 4 of f32, between memory of any strides and panels in shared memory. The skeletons of attention
// call them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

// Rows of a tensor along `depth`, one for each place of `places`.
struct OperandRows {
  graph::TensorId id;
  int64_t places, depth;
};
// The index of the dims before the last two, for a head; what it has of the others is overwritten.
using HeadIndex = std::function<Index(tile::Block& out, const tile::Expr& head)>;
// The index for a `head` that counts the tensor's own dims.
HeadIndex OwnHeads(KernelBuilder& b, graph::TensorId id);

// The way in which 8 neighbours along a dim lie in memory: apart or to be computed; together, from
// multiples of as many elements on; or together, from anywhere on, with an end that may lie among
// them (rows of ragged tensors, whose places are numbers in memory).
enum class Neighbours : uint8_t { kApart, kAligned, kTogether };
Neighbours NeighboursOf(const graph::Graph& graph, graph::TensorId id, int64_t dim);

// The place to which a scatter puts the element of its operand at an index, and whether it does.
struct ScatterPlace {
  tile::Expr offset, inside;
};
ScatterPlace ScatterPlaceOf(KernelBuilder& b, ValueScope& values, tile::Block& out,
                            const graph::Node& scatter, const Index& at);

// True for types so narrow that neighbours may be copied.
inline bool AreCopied(DType type) { return SizeOf(type) <= 4; }

// True if all pieces of 8 of a row are stored at once: where the row lies itself; where a scatter
// puts it, as long as it begins at a multiple of 16 bytes and is inside whole.
bool AreStoredTogether(const graph::Graph& graph, graph::TensorId id);
bool AreScatteredTogether(const graph::Graph& graph, const graph::Node& scatter);

// Adds function name(to, head, row, column): zeroes outside of the tensor. Returns whether copies
// are asynchronous: of neighbours that lie together, as they are.
bool AddRowsLoad(KernelBuilder& b, tile::Call& call, const char* name, const std::string& memory,
                 const OperandRows& rows, const HeadIndex& heads);
// Adds function name(values, head, row, column), of rows that there are; columns may lie outside.
// With `scatter` they go where that puts them. Values of 8 bits come as f16.
void AddRowsStore(KernelBuilder& b, tile::Call& call, const char* name, graph::TensorId id,
                  const graph::Node* scatter = nullptr);

}  // namespace kiln::compiler
