// ValueScope::PlaceOf: where an element lies that is moved, but not computed.
#include "compiler/kernel/kernel_builder.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using tile::Expr;

namespace {

Expr Both(Expr a, const Expr& b) { return a ? tile::And(std::move(a), b) : b; }

bool IsZero(const Tensor& t) { return t.is_constant() && *t.value == 0; }

}  // namespace

std::optional<ValueScope::Place> ValueScope::PlaceOf(TensorId tensor, const Index& index) {
  const graph::Graph& g = b_.graph();
  const DType type = g[tensor].dtype;
  Index at = index;
  Expr inside;
  while (b_.producers_[static_cast<size_t>(tensor)] >= 0) {
    const Node& node = g.nodes[static_cast<size_t>(b_.producers_[static_cast<size_t>(tensor)])];
    // f32 has all values of smaller types.
    if (g[tensor].dtype != type && g[tensor].dtype != DType::kF32) return std::nullopt;
    TensorId source = node.inputs.empty() ? graph::kAbsent : node.inputs[0];
    if (node.op == GraphOp::kMap) {
      const auto& map = node.As<graph::MapAttrs>();
      const bool selects =
          !map.identity && map.op == ScalarOp::kSelect && IsZero(g[node.inputs[2]]);
      if (!map.identity && !selects) return std::nullopt;
      if (selects) {
        const TensorId condition = node.inputs[0];
        inside = Both(inside, tile::Cast(DType::kBool,
                                         Value(condition, BroadcastIndex(b_, g[condition], at))));
        source = node.inputs[1];
      }
      if (g[source].dims != g[tensor].dims) return std::nullopt;
    } else if (node.op == GraphOp::kGather) {
      if (NumElements(g[source].dims) == 0) return std::nullopt;
      Expr found;
      at = SourceIndex(node, at, &found);
      inside = Both(inside, found);
    } else if (Has(node, graph::kView)) {
      at = SourceIndex(node, at, nullptr);
    } else {
      return std::nullopt;
    }
    tensor = source;
  }
  if (g[tensor].dtype != type || g[tensor].by_value) return std::nullopt;
  return Place{tensor, b_.Offset(tensor, at), inside};
}

}  // namespace kiln::compiler
