#include "compiler/passes/simplify.h"

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

}  // namespace

Result<bool> Simplify(Module& module, const PassContext&) {
  Graph& g = module.graph;
  std::vector<TensorId> replaced(g.tensors.size());
  for (size_t i = 0; i < replaced.size(); ++i) replaced[i] = static_cast<TensorId>(i);
  std::map<std::string, TensorId> known;
  bool changed = false;
  for (Node& node : g.nodes) {
    for (TensorId& id : node.inputs)
      if (id != graph::kAbsent) id = replaced[id];
    if (node.outputs.size() != 1) continue;
    const TensorId y = node.outputs[0];
    if (IsRedundantIdentity(g, node)) {
      replaced[y] = node.inputs[0];
      changed = true;
      continue;
    }
    const auto [entry, is_new] = known.try_emplace(KeyOf(g, node), y);
    if (is_new || !g[y].is_virtual) continue;
    replaced[y] = entry->second;
    changed = true;
  }
  return RemoveDeadNodes(g) || changed;
}

}  // namespace kiln::compiler
