#include "compiler/passes/simplify.h"

#include <algorithm>
#include <map>
#include <string>

#include "compiler/passes/dead_code.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

// A virtual copy of x with x's own dtype and shape: readers may read x.
bool IsRedundantIdentity(const Graph& g, const Node& node) {
  if (node.op != GraphOp::kMap || !node.As<graph::MapAttrs>().identity) return false;
  const Tensor &x = g[node.inputs[0]], &y = g[node.outputs[0]];
  return y.is_virtual && x.dtype == y.dtype && x.dims == y.dims;
}

// True if a reshape reads a tensor: it takes elements in the order of their memory, which strides
// say, also those of virtual tensors.
bool IsReshaped(const Graph& g, const std::vector<graph::NodeId>& readers) {
  return std::ranges::any_of(readers,
                             [&](graph::NodeId n) { return g.nodes[n].op == GraphOp::kReshape; });
}

// Nodes with equal keys compute equal tensors.
std::string KeyOf(const Graph& g, const Node& node) {
  const Tensor& y = g[node.outputs[0]];
  std::string key =
      fmt::format("{} {} {} {}", static_cast<int>(node.op), static_cast<int>(node.compute),
                  static_cast<int>(y.dtype), DimsText(y.dims));
  if (node.op == GraphOp::kReshape) key += DimsText(y.strides);
  for (TensorId id : node.inputs) {
    const Tensor& x = g[id];
    // Literals are equal by value, whatever node they were made for.
    if (x.is_constant() && x.uid < 0)
      key += fmt::format(" {:a}:{}:{}", *x.value, static_cast<int>(x.dtype), x.uid);
    else
      key += fmt::format(" %{}", id);
  }
  std::visit(
      [&](const auto& attrs) {
        ForEachField(attrs, [&](const char*, const auto& value) {
          using T = std::remove_cvref_t<decltype(value)>;
          if constexpr (std::is_same_v<T, Dims>)
            key += " " + DimsText(value);
          else if constexpr (std::is_enum_v<T>)
            key += fmt::format(" {}", static_cast<int64_t>(value));
          else if constexpr (std::is_same_v<T, double>)
            key += fmt::format(" {:a}", value);
          else
            key += fmt::format(" {}", value);
        });
      },
      node.attrs);
  return key;
}

// A transpose of an input that nothing else reads: the input is seen with its dims in that order,
// and engines find it in memory.
bool FoldTransposes(Graph& g) {
  const std::vector<std::vector<graph::NodeId>> readers = graph::Consumers(g);
  const std::vector<graph::NodeId> producers = graph::Producers(g);
  std::vector<TensorId> replaced(g.tensors.size(), graph::kAbsent);
  for (const Node& node : g.nodes) {
    if (node.op != GraphOp::kTranspose) continue;
    const TensorId id = node.inputs[0], y = node.outputs[0];
    Tensor& x = g[id];
    const bool is_input = producers[id] < 0 && !x.by_value && readers[id].size() == 1;
    if (IsReshaped(g, readers[y]) || !is_input || !g[y].is_virtual || g[y].dtype != x.dtype)
      continue;
    const Dims dims = x.dims, strides = x.strides;
    const Dims& permutation = node.As<graph::TransposeAttrs>().permutation;
    for (size_t d = 0; d < dims.size(); ++d) {
      x.dims[d] = dims[permutation[d]];
      x.strides[d] = strides[permutation[d]];
    }
    replaced[y] = id;
  }
  bool changed = false;
  std::erase_if(g.nodes, [&](const Node& node) {
    return node.op == GraphOp::kTranspose && replaced[node.outputs[0]] != graph::kAbsent;
  });
  for (Node& node : g.nodes) {
    for (TensorId& id : node.inputs) {
      if (id == graph::kAbsent || replaced[id] == graph::kAbsent) continue;
      id = replaced[id];
      changed = true;
    }
  }
  return changed;
}

// A map that does no more than round what a window has in its compute type: the window stores it so
// itself.
bool FoldRounding(Graph& g) {
  const std::vector<std::vector<graph::NodeId>> readers = graph::Consumers(g);
  const std::vector<graph::NodeId> producers = graph::Producers(g);
  std::vector<char> is_folded(g.nodes.size(), 0);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& map = g.nodes[i];
    if (map.op != GraphOp::kMap || !map.As<graph::MapAttrs>().identity) continue;
    const TensorId from = map.inputs[0], to = map.outputs[0];
    if (producers[from] < 0 || readers[from].size() != 1) continue;
    Node& window = g.nodes[static_cast<size_t>(producers[from])];
    const bool is_exact = g[from].is_virtual && g[from].dtype == window.compute &&
                          map.compute == window.compute && g[from].dims == g[to].dims;
    if (!Has(window, graph::kWindow) || window.outputs[0] != from || !is_exact) continue;
    window.outputs[0] = to;
    is_folded[i] = 1;
  }
  size_t at = 0;
  return std::erase_if(g.nodes, [&](const Node&) { return is_folded[at++] != 0; }) != 0;
}

}  // namespace

Result<bool> Simplify(Module& module, const PassContext&) {
  Graph& g = module.graph;
  std::vector<TensorId> replaced(g.tensors.size());
  for (size_t i = 0; i < replaced.size(); ++i) replaced[i] = static_cast<TensorId>(i);
  std::map<std::string, TensorId> known;
  const std::vector<std::vector<graph::NodeId>> readers = graph::Consumers(g);
  const auto may_replace = [&](TensorId y, TensorId by) {
    return g[y].strides == g[by].strides || !IsReshaped(g, readers[y]);
  };
  bool changed = false;
  for (Node& node : g.nodes) {
    for (TensorId& id : node.inputs)
      if (id != graph::kAbsent) id = replaced[id];
    if (node.outputs.size() != 1) continue;
    const TensorId y = node.outputs[0];
    if (IsRedundantIdentity(g, node) && may_replace(y, node.inputs[0])) {
      replaced[y] = node.inputs[0];
      changed = true;
      continue;
    }
    const auto [entry, is_new] = known.try_emplace(KeyOf(g, node), y);
    if (is_new || !g[y].is_virtual || !may_replace(y, entry->second)) continue;
    replaced[y] = entry->second;
    changed = true;
  }
  changed |= RemoveDeadNodes(g);
  changed |= FoldRounding(g);
  return FoldTransposes(g) || changed;
}

}  // namespace kiln::compiler
