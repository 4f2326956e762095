// A grouped matmul as primitives (ir/graph/ops_moe.cc): all tokens times all experts' weights, of
// which each row keeps its own expert's. A selection, not a product with 0: what other experts'
// weights hold, NaN or infinity, leaves no trace.
//   %c[E, R, N] = matmul(%token[1, R, K], %weight[E, K, N])
//   %y[1, R, N] = reduce_add(select(iota(E) == %expert[1, R, 1], %c, 0))
#include "compiler/passes/decompose_parts.h"
#include "compiler/passes/primitive_writer.h"

namespace kiln::compiler {

using graph::Combine;
using graph::Graph;
using graph::MoeMode;
using graph::Node;
using graph::TensorId;

void DecomposeMoeGroupedMatmul(Graph& g, const Node& node) {
  const auto& attrs = node.As<graph::MoeGroupedMatmulAttrs>();
  const TensorId token = node.inputs[0], weight = node.inputs[1], y = node.outputs[0];
  const int64_t experts = g[weight].dims[0], depth = g[token].dims[2], rows = g[y].dims[1];
  PrimitiveWriter at(g, DType::kI64, g[y].name), w(g, ArithmeticType(node.compute), g[y].name);
  const auto wide = [&](TensorId id) { return at.Cast(id, DType::kI64); };
  const Dims row_dims = {1, rows, 1};

  TensorId slot = wide(at.Iota(1, row_dims)), routed = token;
  if (attrs.mode == MoeMode::kGather) {
    routed = w.Gather(token, node.inputs[3], 1, {1, rows, depth});
  } else if (attrs.mode == MoeMode::kScatter) {
    const TensorId k = at.Number(static_cast<double>(attrs.top_k));
    const TensorId row = at.Add(at.Mul(wide(node.inputs[3]), k), wide(node.inputs[4]));
    const TensorId match = at.Map(ScalarOp::kEq, {at.Reshape(row, {1, 1, rows}), slot});
    const TensorId from = wide(at.Iota(2, {1, 1, rows}));
    slot = at.Reduce(Combine::kMax, at.Select(match, from, at.Number(-1)), row_dims);
    routed = w.Gather(token, slot, 1, {1, rows, depth});
  }
  const TensorId begun = at.Map(ScalarOp::kLe, {wide(node.inputs[2]), slot});  // [groups, R, 1]
  const TensorId count =
      at.Reduce(Combine::kAdd, at.Select(begun, at.Number(1), at.Number(0)), row_dims);
  const TensorId group = at.Sub(count, at.Number(1));  // -1 before the first
  TensorId expert = group;
  if (g[node.inputs[2]].dims[0] != experts) {
    // No remainder of -1 tells those rows from the first expert's: -1 mod 1 is 0.
    const TensorId rest = at.Map(ScalarOp::kMod, {group, at.Number(static_cast<double>(experts))});
    expert = at.Select(at.Map(ScalarOp::kLt, {group, at.Number(0)}), group, rest);
  }
  const TensorId own = at.Map(ScalarOp::kEq, {wide(at.Iota(0, {experts, 1, 1})), expert});
  const TensorId all = w.Matmul(routed, weight);
  w.Write(w.Reduce(Combine::kAdd, w.Select(own, all, w.Number(0)), g[y].dims), y);
}

}  // namespace kiln::compiler
