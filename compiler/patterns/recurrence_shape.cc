#include "compiler/patterns/recurrence_shape.h"

#include <algorithm>

#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::kAbsent;
using graph::Node;
using graph::Tensor;

namespace {

const Node& LoopOf(const Group& group) {
  const auto& nodes = group.graph.nodes;
  const auto it =
      std::ranges::find_if(nodes, [](const Node& node) { return Has(node, graph::kRecurrence); });
  CHECK(it != nodes.end(), "a recurrence group without a recurrence");
  return *it;
}

}  // namespace

RecurrenceShape RecurrenceShapeOf(const Group& group) {
  namespace fwd = graph::recurrence;
  namespace bwd = graph::recurrence_grad;
  const Node& node = LoopOf(group);
  const graph::Graph& g = group.graph;
  const bool is_grad = node.op == graph::GraphOp::kRecurrenceGrad;
  const Tensor &blocked = g[node.inputs[is_grad ? size_t{bwd::kGates} : size_t{fwd::kXg}]],
               &r = g[node.inputs[is_grad ? size_t{bwd::kR} : size_t{fwd::kR}]];
  const auto& attrs = node.As<graph::RecurrenceAttrs>();
  const graph::CellBlocks blocks = graph::BlocksOf(attrs.cell);
  const size_t projection = is_grad ? size_t{bwd::kProjection} : size_t{fwd::kProjection};
  return {.node = &node,
          .attrs = attrs,
          .blocks = blocks,
          .steps = blocked.dims[0],
          .batch = blocked.dims[1],
          .directions = blocked.dims[2],
          .hidden = r.dims[1] / blocks.gates,
          .projected = r.dims[2],
          .is_grad = is_grad,
          .is_projected = projection < node.inputs.size() && node.inputs[projection] != kAbsent,
          .type = g[node.outputs[0]].dtype,
          .accumulator = node.compute};
}

}  // namespace kiln::compiler
