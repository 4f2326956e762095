// Numbers of types that tensors have in memory alone (e2m1, i4, u4, b1, u32), as primitives: their
// codes, their values, and their places in memory. plain_types.h says why.
#pragma once

#include <string>

#include "ir/graph/graph.h"

namespace kiln::compiler {

inline bool IsNarrow(DType type) { return IsPacked(type) || type == DType::kU32; }

// The type that holds their values in the graph.
DType CarrierOf(DType type);

// The numbers of a tensor: values in the carrier's type, and codes as they lie in memory, in i32;
// the latter may be absent.
struct NarrowNumbers {
  graph::TensorId value = graph::kAbsent, code = graph::kAbsent;
};

// Rounds `raw`, any numbers, to `type`.
NarrowNumbers RoundNarrow(graph::Graph& g, DType type, graph::TensorId raw, std::string name);

// Reads a tensor in memory: `id` becomes its bytes (of u32, its words as i32), the result is its
// values.
graph::TensorId ReadNarrow(graph::Graph& g, graph::TensorId id);

// Writes numbers of its dims to a tensor in memory, which becomes bytes (of u32, words as i32). Its
// layout has a PackedRun.
void WriteNarrow(graph::Graph& g, const NarrowNumbers& numbers, graph::TensorId id);

// The words of `raw`, any numbers, rounded to u32: what a node writes to a part of such memory.
graph::TensorId WordsOf(graph::Graph& g, graph::TensorId raw, std::string name);

}  // namespace kiln::compiler
