#include "compiler/patterns/memory_view.h"

#include <algorithm>

#include "ir/graph/ops.h"
#include "ir/shape.h"

namespace kiln::compiler {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;

namespace {

// Strides of `dims` over elements that lie at `strides` as [from], in the same row-major order.
// Neighbouring dims of `from` that lie one behind the other are one run, and each run has to be
// whole dims of the result.
std::optional<Dims> ReshapedStrides(const Dims& from, const Dims& strides, const Dims& dims) {
  if (from.empty() || NumElements(dims) == 0) return std::nullopt;
  Dims result(dims.size(), 1);
  size_t e = dims.size();
  int64_t run = 1, taken = 1, step = strides.back();
  for (size_t d = from.size(); d-- > 0;) {
    run *= from[d];
    const bool goes_on = d > 0 && (from[d - 1] == 1 || strides[d - 1] == run * step);
    if (goes_on) continue;
    while (e > 0 && (taken < run || dims[e - 1] == 1)) {
      --e;
      result[e] = taken * step;
      taken *= dims[e];
    }
    if (taken != run) return std::nullopt;
    if (d > 0) step = strides[d - 1];
    run = taken = 1;
  }
  return e == 0 ? std::optional(result) : std::nullopt;
}

}  // namespace

bool IsRowMajor(const Tensor& t) { return t.strides == PackedStrides(t.dims); }

std::optional<MemoryPlace> PlaceOfView(const Graph& g, const Node& node, const MemoryPlace& x) {
  const Tensor &from = g[node.inputs[0]], &to = g[node.outputs[0]];
  if (from.dtype != to.dtype) return std::nullopt;
  MemoryPlace y = {.memory = x.memory, .strides = {}, .offset = x.offset};
  switch (node.op) {
    case GraphOp::kTranspose:
      for (const int64_t d : node.As<graph::TransposeAttrs>().permutation)
        y.strides.push_back(x.strides[static_cast<size_t>(d)]);
      return y;
    case GraphOp::kSlice: {
      const auto& slice = node.As<graph::SliceAttrs>();
      if (std::ranges::any_of(slice.step, [](int64_t step) { return step < 1; }))
        return std::nullopt;
      for (size_t d = 0; d < x.strides.size(); ++d) {
        y.strides.push_back(x.strides[d] * slice.step[d]);
        y.offset += x.strides[d] * slice.start[d];
      }
      return y;
    }
    case GraphOp::kReshape: {
      // A reshape of a tensor that is dense in another order than its dims' keeps the memory.
      if (!IsRowMajor(to) || (!IsRowMajor(from) && graph::ReshapeKeepsMemory(from, to)))
        return std::nullopt;
      auto strides = ReshapedStrides(from.dims, x.strides, to.dims);
      if (!strides) return std::nullopt;
      y.strides = *std::move(strides);
      return y;
    }
    default:
      return std::nullopt;
  }
}

std::optional<MemoryPlace> PlaceInMemory(const Graph& g, const std::vector<NodeId>& producers,
                                         TensorId id) {
  std::vector<NodeId> views;
  while (id != graph::kAbsent && producers[id] >= 0) {
    views.push_back(producers[id]);
    const Node& view = g.nodes[views.back()];
    if (!Has(view, graph::kView)) return std::nullopt;
    id = view.inputs[0];
  }
  if (id == graph::kAbsent || g[id].by_value || g[id].is_constant()) return std::nullopt;
  std::optional<MemoryPlace> place = MemoryPlace{.memory = id, .strides = g[id].strides};
  for (size_t i = views.size(); i-- > 0 && place;)
    place = PlaceOfView(g, g.nodes[views[i]], *place);
  return place;
}

}  // namespace kiln::compiler
