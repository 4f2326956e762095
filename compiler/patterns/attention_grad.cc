#include "compiler/patterns/attention_grad.h"

#include <algorithm>
#include <utility>

#include "compiler/patterns/attention_grad_finder.h"
#include "compiler/patterns/graph_view.h"

namespace kiln::compiler {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::NodeId;
using graph::TensorId;

std::vector<AttentionGrad> FindAttentionGrad(const Graph& g, bool is_group) {
  std::vector<AttentionGrad> all;
  const GraphView view(g);
  std::vector<char> taken(g.nodes.size());
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (g.nodes[n].op != GraphOp::kMap || g.nodes[n].As<graph::MapAttrs>().identity ||
        g.nodes[n].As<graph::MapAttrs>().op != ScalarOp::kExp)
      continue;
    auto found = AttentionGradFinder(view, static_cast<NodeId>(n), is_group).Run();
    if (!found || std::ranges::any_of(found->members, [&](NodeId m) { return taken[m] != 0; }))
      continue;
    for (const NodeId m : found->members) taken[m] = 1;
    all.push_back(*std::move(found));
  }
  return all;
}

const Node* ScatterOf(const Graph& g, const AttentionGrad& a, TensorId result) {
  for (const NodeId n : a.scatters)
    if (g.nodes[n].inputs[0] == result) return &g.nodes[n];
  return nullptr;
}

std::vector<LargestOf> AttentionGrad::Largest() const {
  std::vector<LargestOf> all;
  for (const auto& largest : {largest_slope, of_dq.largest, of_dk.largest, of_dv.largest})
    if (largest) all.push_back(*largest);
  return all;
}

std::vector<ScoreMask> MasksOf(const AttentionGrad& a) {
  std::vector<ScoreMask> all = a.masks;
  all.insert(all.end(), a.zeroes.begin(), a.zeroes.end());
  return all;
}

std::optional<ScoreFactor> FactorOf(const Graph& g, const AttentionGrad& a) {
  const GraphView view(g);
  for (const ScoreMask& mask : a.masks)
    if (BoundsOf(g, mask).empty()) return std::nullopt;
  const TensorId product = a.product_mask ? a.product_mask->masked : a.product;
  const auto before = [&](TensorId id) {
    for (const Node* n = view.Map(id, ScalarOp::kSelect);
         n != nullptr && view.Uncast(id) != product; n = view.Map(id, ScalarOp::kSelect))
      id = n->inputs[1];
    return id;
  };
  const TensorId scaled = before(view.Producer(a.shifted)->inputs[0]);
  const auto is_f32 = [&](TensorId id) { return g[id].dtype == DType::kF32; };
  ScoreFactor found{.scaled = scaled, .value = scaled};
  const Dims& dims = g[a.exp].dims;
  const auto take = [&] {
    const Node* n = view.Map(found.value, ScalarOp::kMul);
    if (n == nullptr || view.Uncast(found.value) != found.value || !is_f32(found.value))
      return false;
    for (const int i : {0, 1}) {
      const TensorId value = n->inputs[i], factor = n->inputs[1 - i];
      const Dims& of = g[factor].dims;
      if (of.size() != dims.size() || of.back() != 1 || of[of.size() - 2] != 1 ||
          g[value].dims != dims)
        continue;
      found.factors.push_back(factor);
      found.value = value;
      return true;
    }
    return false;
  };
  // To the product itself: other maps may read memory at each place.
  while (view.Uncast(found.value) != product)
    if (!take()) return std::nullopt;
  return found.factors.empty() ? std::nullopt : std::optional(found);
}

}  // namespace kiln::compiler
