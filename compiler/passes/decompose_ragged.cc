#include "compiler/passes/decompose_ragged.h"

#include "compiler/passes/primitive_writer.h"
#include "ir/graph/attrs.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::TensorId;

TensorId Offsets(PrimitiveWriter& w, TensorId offsets, int64_t start, int64_t count) {
  Dims dims = w.graph()[offsets].dims, first(dims.size(), 0);
  dims[0] = count;
  first[0] = start;
  return w.Slice(offsets, std::move(first), std::move(dims));
}

// The place in memory of each element of `dims`, -1 where it has none.
TensorId Places(Graph& g, const Node& node, const Dims& dims, int64_t extent) {
  const TensorId offsets = node.inputs[1];
  const bool is_wide = g[offsets].dtype == DType::kI64 || extent > INT32_MAX;
  PrimitiveWriter w(g, is_wide ? DType::kI64 : DType::kI32, "ragged");
  const Dims& strides = node.As<graph::RaggedAttrs>().strides;
  TensorId place = Offsets(w, offsets, 0, dims[0]);
  for (size_t d = 1; d < dims.size(); ++d) {
    if (dims[d] == 1) continue;
    Dims line(dims.size(), 1);
    line[d] = dims[d];
    const TensorId step = w.Iota(static_cast<int64_t>(d), line);
    place = w.Add(place, w.Mul(step, w.Number(static_cast<double>(strides[d]), kLaunchNumberUid)));
  }
  const TensorId end = Offsets(w, offsets, 1, dims[0]);
  const TensorId inside = w.Map(ScalarOp::kLt, {place, end});
  return w.Select(inside, place, w.Number(-1));
}

}  // namespace

void DecomposeRaggedLoad(Graph& g, const Node& node) {
  const TensorId flat = node.inputs[0], y = node.outputs[0];
  const Dims dims = g[y].dims;
  const TensorId places = Places(g, node, dims, g[flat].dims[0]);
  g.AddNode({.op = GraphOp::kGather,
             .inputs = {flat, places},
             .outputs = {y},
             .compute = node.compute,
             .attrs = graph::GatherAttrs{.axis = 0},
             .name = node.name});
}

void DecomposeRaggedStore(Graph& g, const Node& node) {
  const TensorId x = node.inputs[0], y = node.outputs[0];
  const Dims dims = g[x].dims;
  const TensorId places = Places(g, node, dims, g[y].dims[0]);
  g.AddNode({.op = GraphOp::kScatter,
             .inputs = {x, places, node.inputs[2]},
             .outputs = {y},
             .compute = node.compute,
             .attrs = graph::ScatterAttrs{},
             .name = node.name});
}

}  // namespace kiln::compiler
