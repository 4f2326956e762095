// Questions of the pattern of attention's gradients about the operands and results of its products:
// which memory they are, and which of their places are masked, since clients limit the extents of
// all five products by the lengths of a batch's sequences.
#pragma once

#include <optional>
#include <vector>

#include "compiler/patterns/attention.h"
#include "compiler/patterns/graph_view.h"

namespace kiln::compiler {

// A tensor in memory, read with its dims in another order.
struct Alias {
  int64_t uid = -1;
  Dims dims, strides;
  bool operator==(const Alias&) const = default;
};
std::optional<Alias> AliasOf(const GraphView& view, graph::TensorId id);
Alias Swapped(Alias alias);  // its last two dims

// The value `id` before casts, and views that move nothing.
graph::TensorId Plain(const GraphView& view, graph::TensorId id);

// Bounds of places of the scores: row * i + column * j + offsets compared with 0.
class PlaceBounds {
 public:
  explicit PlaceBounds(const GraphView& view) : view_(view) {}
  // False where a condition is no conjunction of bounds. `swapped`: its rows are keys.
  bool Add(graph::TensorId condition, bool swapped);
  void Add(const PlaceBounds& other);
  bool Has(const IndexBound& bound) const;
  bool HasAll(const PlaceBounds& other) const;
  bool empty() const { return all_.empty(); }
  // The bounds that `other` lacks.
  PlaceBounds Without(const PlaceBounds& other) const;

 private:
  bool Same(const IndexBound& a, const IndexBound& b) const;
  const GraphView& view_;
  std::vector<IndexBound> all_;
};

// The left operand of a product, before casts, exchanges of the last two dims, and selections of
// zeroes for places outside bounds.
struct MaskedOperand {
  graph::TensorId id;
  bool transposed = false;
};
MaskedOperand OperandOf(const GraphView& view, graph::TensorId id, PlaceBounds& bounds);

// The selection's node where `id` is select(visible, value, 0), else null.
const graph::Node* ZeroMask(const GraphView& view, graph::TensorId id);

// The scatter that alone reads a tensor, as where its rows are ragged; or -1.
graph::NodeId ScatterAfter(const GraphView& view, graph::TensorId id);

// Walks from a product of keys to what is stored: summed over the heads that share one of the
// operand of these dims, cast, zero outside bounds. False where it is anything else; `is_open`: it
// may then be so up to some `result`, which others follow.
bool GradResult(const GraphView& view, graph::TensorId product, const Dims& operand, bool is_open,
                PlaceBounds& bounds, graph::TensorId& result);

}  // namespace kiln::compiler
