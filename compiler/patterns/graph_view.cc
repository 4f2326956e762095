#include "compiler/patterns/graph_view.h"

#include <set>

#include "compiler/group_limits.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::TensorId;

std::optional<LargestOf> LargestFrom(const GraphView& view, graph::NodeId abs) {
  const graph::Graph& g = view.graph();
  const Node& map = g.nodes[abs];
  const auto is_kept = [&](TensorId id) {
    return view[id].is_virtual && view[id].dtype == DType::kF32;
  };
  const TensorId y = map.outputs[0];
  if (map.op != GraphOp::kMap || view.Map(y, ScalarOp::kAbs) != &map || !is_kept(y) ||
      view.Readers(y).size() != 1)
    return std::nullopt;
  LargestOf found{.value = map.inputs[0], .abs = abs, .reduce = view.Readers(y)[0]};
  const Node& reduce = g.nodes[found.reduce];
  if (reduce.op != GraphOp::kReduce ||
      reduce.As<graph::ReduceAttrs>().combine != graph::Combine::kMax || !is_kept(found.value))
    return std::nullopt;
  found.result = reduce.outputs[0];
  const graph::Tensor& result = view[found.result];
  const bool is_number =
      NumElements(result.dims) == 1 && !result.is_virtual && result.dtype == DType::kF32;
  return is_number ? std::optional(found) : std::nullopt;
}

void AddConjuncts(const GraphView& view, TensorId condition, std::vector<TensorId>& all) {
  std::set<TensorId> seen;
  std::vector<TensorId> pending = {condition};
  while (!pending.empty()) {
    const TensorId id = pending.back();
    pending.pop_back();
    if (!seen.insert(id).second) continue;
    if (const Node* both = view.Map(id, ScalarOp::kAnd))
      pending.insert(pending.end(), {both->inputs[1], both->inputs[0]});
    else
      all.push_back(id);
  }
}

namespace {

// True if two values are alike if the pairs are that this adds.
bool MayBeSame(const GraphView& view, TensorId a, TensorId b,
               std::vector<std::pair<TensorId, TensorId>>& pairs) {
  if (a == b) return true;
  if (a == kAbsent || b == kAbsent || view[a].dtype != view[b].dtype ||
      view[a].dims != view[b].dims)
    return false;
  if (view[a].is_constant() && view[b].is_constant()) return *view[a].value == *view[b].value;
  const Node *m = view.Producer(a), *n = view.Producer(b);
  if (m == nullptr || n == nullptr || m->op != n->op || m->inputs.size() != n->inputs.size())
    return false;
  if (m->op == GraphOp::kIota)
    return m->As<graph::IotaAttrs>().axis == n->As<graph::IotaAttrs>().axis;
  if (m->op != GraphOp::kMap || m->compute != n->compute) return false;
  const auto &x = m->As<graph::MapAttrs>(), &y = n->As<graph::MapAttrs>();
  if (x.identity != y.identity || (!x.identity && x.op != y.op)) return false;
  for (size_t i = 0; i < m->inputs.size(); ++i) pairs.emplace_back(m->inputs[i], n->inputs[i]);
  return true;
}

}  // namespace

bool SameValue(const GraphView& view, TensorId a, TensorId b) {
  std::set<std::pair<TensorId, TensorId>> seen;
  std::vector<std::pair<TensorId, TensorId>> pending = {{a, b}};
  while (!pending.empty()) {
    const auto pair = pending.back();
    pending.pop_back();
    if (!seen.insert(pair).second) continue;
    if (seen.size() > kMostGroupNodes || !MayBeSame(view, pair.first, pair.second, pending))
      return false;
  }
  return true;
}

std::optional<RandomHalf> RandomHalfOf(const GraphView& view, TensorId id) {
  const auto is = [&](TensorId number, double value) {
    return view[number].is_constant() && *view[number].value == value;
  };
  const Node* select = view.Map(id, ScalarOp::kSelect);
  if (select == nullptr) return std::nullopt;
  const Node* even = view.Map(select->inputs[0], ScalarOp::kEq);
  const Node* odd = even == nullptr ? nullptr : view.Map(even->inputs[0], ScalarOp::kMod);
  const Node* low = view.Map(select->inputs[1], ScalarOp::kMod);
  const Node* high = view.Map(select->inputs[2], ScalarOp::kDiv);
  if (odd == nullptr || low == nullptr || high == nullptr || !is(even->inputs[1], 0) ||
      !is(odd->inputs[1], 2) || !is(low->inputs[1], 65536) || !is(high->inputs[1], 65536) ||
      !view.Same(low->inputs[0], high->inputs[0]))
    return std::nullopt;
  const Node* word = view.Map(low->inputs[0], ScalarOp::kPhilox);
  const Node* at = word == nullptr ? nullptr : view.Map(word->inputs[0], ScalarOp::kDiv);
  if (at == nullptr || !is(at->inputs[1], 2) || !view.Same(at->inputs[0], odd->inputs[0]))
    return std::nullopt;
  return RandomHalf{.half = select->outputs[0],
                    .place = at->inputs[0],
                    .seed = word->inputs[1],
                    .offset = word->inputs[2]};
}

}  // namespace kiln::compiler
