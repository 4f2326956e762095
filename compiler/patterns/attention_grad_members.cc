// AttentionGradFinder's results: what is stored of the gradients, and which nodes belong to the
// group.
#include <algorithm>
#include <set>

#include "compiler/group_limits.h"
#include "compiler/patterns/attention_grad_finder.h"

namespace kiln::compiler {

using graph::Combine;
using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;

namespace {

// Tensors that are looked at in search of the statistics.
constexpr size_t kMostWalk = 4 * kMostGroupNodes;

}  // namespace

bool AttentionGradFinder::TakeResults() {
  PlaceBounds of_rows(view_);
  a_.dq = Stored(dq_, of_rows, a_.of_dq);
  if (a_.dq == kAbsent) return false;
  of_dq_.Add(of_rows);
  a_.dq_too = StoredToo(a_.dq);
  const bool is_open = HasBytes();
  if (!GradResult(view_, dk_, view_[a_.k].dims, is_open, of_dk_, a_.dk) ||
      !GradResult(view_, dv_, view_[a_.v].dims, is_open, of_dv_, a_.dv))
    return false;
  if (!is_open) return true;
  a_.dk = Finished(a_.dk, a_.of_dk);
  a_.dv = Finished(a_.dv, a_.of_dv);
  TakeLargestSlope();
  return a_.dk != kAbsent && a_.dv != kAbsent;
}

TensorId AttentionGradFinder::Finished(TensorId id, GradFinish& finish) const {
  finish.from = id;
  while (view_[id].is_virtual && ScatterAfter(view_, id) < 0) {
    NodeId next = -1;
    for (const NodeId n : view_.Readers(id)) {
      const std::optional<LargestOf> largest = LargestFrom(view_, n);
      if (largest && !finish.largest) {
        finish.largest = largest;
        continue;
      }
      if (next >= 0) return kAbsent;
      next = n;
    }
    if (next < 0) return kAbsent;
    const Node& n = view_.graph().nodes[next];
    const bool has_numbers = std::ranges::all_of(n.inputs, [&](TensorId input) {
      return input == id || (view_.ProducerId(input) < 0 && NumElements(view_[input].dims) == 1);
    });
    if (n.op != GraphOp::kMap || !has_numbers || view_[n.outputs[0]].dims != view_[id].dims)
      return kAbsent;
    id = n.outputs[0];
  }
  return id;
}

void AttentionGradFinder::TakeLargestSlope() {
  const Graph& g = view_.graph();
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const std::optional<LargestOf> largest = LargestFrom(view_, static_cast<NodeId>(n));
    if (!largest || !Follows(largest->value) || view_[largest->value].dims != dims()) continue;
    // One on the way to the slope, by numbers.
    TensorId at = a_.slope;
    for (const Node* mul = nullptr; at != largest->value; at = mul->inputs[ScaledOperand(*mul)]) {
      mul = view_.Map(at, ScalarOp::kMul);
      if (mul == nullptr || ScaledOperand(*mul) < 0) break;
    }
    if (at == largest->value) a_.largest_slope = largest;
  }
}

TensorId AttentionGradFinder::Stored(TensorId id, PlaceBounds& bounds, GradFinish& finish) const {
  while (view_[id].is_virtual && ScatterAfter(view_, id) < 0) {
    if (view_.Readers(id).size() != 1) return HasBytes() ? Finished(id, finish) : kAbsent;
    const Node& n = view_.graph().nodes[view_.Readers(id)[0]];
    const TensorId y = n.outputs[0];
    const bool is_cast = n.op == GraphOp::kMap && n.As<graph::MapAttrs>().identity;
    const bool is_mask = ZeroMask(view_, y) == &n && n.inputs[1] == id;
    if (view_[y].dims != view_[id].dims || (!is_cast && !is_mask))
      return HasBytes() ? Finished(id, finish) : kAbsent;
    if (is_mask && !bounds.Add(n.inputs[0], false)) return kAbsent;
    id = y;
  }
  if (HasBytes()) finish.from = id;
  return id;
}

TensorId AttentionGradFinder::StoredToo(TensorId stored) const {
  for (const NodeId n : view_.Readers(stored)) {
    const Node& node = view_.graph().nodes[n];
    if (node.op != GraphOp::kMap || !node.As<graph::MapAttrs>().identity) continue;
    const TensorId y = node.outputs[0];
    const bool is_stored = !view_[y].is_virtual || ScatterAfter(view_, y) >= 0;
    if (is_stored && view_[y].dims == view_[stored].dims) return y;
  }
  return kAbsent;
}

bool AttentionGradFinder::TakeZeroes() {
  if (!of_dq_.HasAll(of_dk_) || !of_dk_.HasAll(of_dv_) || !of_dv_.HasAll(of_dq_)) return false;
  const auto bounds_of = [&](const ScoreMask& mask) {
    PlaceBounds bounds(view_);
    bounds.Add(mask.visible, false);
    return bounds;
  };
  // Conditions of scores that say it.
  PlaceBounds said(view_);
  const auto say = [&](const ScoreMask& mask) {
    const PlaceBounds bounds = bounds_of(mask);
    if (bounds.empty() || !of_dv_.HasAll(bounds)) return;
    if (said.HasAll(bounds)) return;
    said.Add(bounds);
    a_.zeroes.push_back(mask);
  };
  const auto spare = [&](const ScoreMask& mask) {
    const PlaceBounds bounds = bounds_of(mask);
    if (!bounds.empty() && of_dv_.HasAll(bounds)) a_.spares.push_back(mask);
  };
  std::ranges::for_each(zero_masks_, say);
  std::ranges::for_each(inner_masks_, say);
  if (!said.HasAll(of_dv_)) return false;
  std::ranges::for_each(zero_masks_, spare);
  std::ranges::for_each(inner_masks_, spare);
  TakeProductMask();
  a_.is_plain = a_.dbias == kAbsent && IsPlainSlope();
  return true;
}

void AttentionGradFinder::TakeProductMask() {
  for (const NodeId n : view_.Readers(a_.product)) {
    const TensorId y = view_.graph().nodes[n].outputs[0];
    const Node* select = view_.Map(y, ScalarOp::kSelect);
    if (select != &view_.graph().nodes[n] || select->inputs[1] != a_.product ||
        !IsNumber(select->inputs[2]))
      continue;
    PlaceBounds bounds(view_), hidden = of_dv_;
    bounds.Add(select->inputs[0], false);
    for (const ScoreMask& mask : a_.masks) hidden.Add(mask.visible, false);
    if (!bounds.empty() && hidden.HasAll(bounds))
      a_.product_mask = {.visible = select->inputs[0], .masked = y, .value = a_.product};
  }
}

TensorId AttentionGradFinder::WithoutSpares(TensorId id) const {
  for (id = Plain(view_, id);;) {
    const auto at = std::ranges::find(a_.spares, id, &ScoreMask::masked);
    if (at == a_.spares.end()) return id;
    id = Plain(view_, at->value);
  }
}

bool AttentionGradFinder::IsPlainSlope() const {
  const Node* mul = view_.Map(a_.slope, ScalarOp::kMul);
  if (mul == nullptr) return false;
  for (const int i : {0, 1}) {
    const Node* sub = view_.Map(mul->inputs[i], ScalarOp::kSub);
    if (sub != nullptr && WithoutSpares(mul->inputs[1 - i]) == a_.exp &&
        WithoutSpares(sub->inputs[0]) == a_.inner && sub->inputs[1] == a_.mean)
      return true;
  }
  return false;
}

bool AttentionGradFinder::CollectMembers() {
  const Graph& g = view_.graph();
  // Made are the nodes that follow from the product or from inner.
  made_ = Dependents({view_.ProducerId(a_.product), view_.ProducerId(a_.inner)});
  if (IsMade(a_.stats) || IsMade(a_.mean)) return false;
  member_.assign(g.nodes.size(), 0);
  std::vector<NodeId> pending;
  for (const TensorId id : {a_.dq, a_.dq_too, a_.dk, a_.dv, a_.dbias}) {
    if (id == kAbsent) continue;
    pending.push_back(view_.ProducerId(id));
    // dq may be stored as it is, too: clients keep it in f32, and scatter what is made of that.
    const bool is_taken = view_[id].is_virtual || id == a_.dq;
    const NodeId scatter = is_taken ? ScatterAfter(view_, id) : -1;
    if (scatter < 0) continue;
    if (IsMade(g.nodes[scatter].inputs[1]) || IsMade(g.nodes[scatter].inputs[2])) return false;
    pending.push_back(scatter);
    a_.scatters.push_back(scatter);
  }
  for (const LargestOf& largest : a_.Largest()) pending.push_back(view_.ProducerId(largest.result));
  while (!pending.empty()) {
    const NodeId n = pending.back();
    pending.pop_back();
    if (std::exchange(member_[n], 1)) continue;
    a_.members.push_back(n);
    for (const TensorId id : g.nodes[n].inputs)
      if (IsMade(id)) pending.push_back(view_.ProducerId(id));
  }
  const bool is_known =
      std::ranges::all_of(a_.members, [&](NodeId n) { return IsMapOrKnown(g.nodes[n]); });
  TakeKept();
  TakeSums();
  std::ranges::sort(a_.members);
  return is_known;
}

bool AttentionGradFinder::IsMapOrKnown(const Node& n) const {
  const TensorId y = n.outputs[0];
  if (n.op == GraphOp::kMap || n.op == GraphOp::kTranspose || n.op == GraphOp::kReshape ||
      n.op == GraphOp::kScatter)
    return true;
  return Has(n, graph::kContraction)
             ? y == a_.product || y == a_.inner || y == dq_ || y == dk_ || y == dv_
             : n.op == GraphOp::kReduce;
}

void AttentionGradFinder::TakeKept() {
  for (const NodeId member : a_.members)
    for (const TensorId id : view_.graph().nodes[member].inputs) {
      const TensorId kept = Plain(view_, id);
      const Node* n = IsMade(id) ? nullptr : view_.Map(kept, ScalarOp::kSelect);
      const auto is = [&](TensorId x, double value) {
        return view_[x].is_constant() && *view_[x].value == value;
      };
      if (n == nullptr || view_[kept].dims != dims() || !view_[kept].is_virtual ||
          !is(n->inputs[1], 1) || !is(n->inputs[2], 0))
        continue;
      a_.kept = kept;
      return;
    }
}

void AttentionGradFinder::TakeSums() {
  const Graph& g = view_.graph();
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    if (n.op != GraphOp::kReduce || n.As<graph::ReduceAttrs>().combine != Combine::kAdd ||
        member_[i] || !IsRow(n.inputs[0]) || IsMade(n.inputs[0]) ||
        (!is_group_ && !ReadsStats(n.inputs[0])))
      continue;
    std::vector<NodeId> nodes = {static_cast<NodeId>(i)};
    TensorId y = n.outputs[0];
    while (view_[y].is_virtual && view_.Readers(y).size() == 1) {
      const Node& cast = g.nodes[view_.Readers(y)[0]];
      if (cast.op != GraphOp::kMap || !cast.As<graph::MapAttrs>().identity ||
          view_[cast.outputs[0]].dims != view_[y].dims)
        break;
      nodes.push_back(view_.Readers(y)[0]);
      y = cast.outputs[0];
    }
    if (view_[y].is_virtual) continue;
    for (const NodeId node : nodes) member_[node] = 1;
    a_.members.insert(a_.members.end(), nodes.begin(), nodes.end());
    a_.sums.push_back(y);
  }
}

bool AttentionGradFinder::ReadsStats(TensorId id) const {
  const TensorId stats = view_.Unguarded(a_.stats);
  std::set<TensorId> seen;
  std::vector<TensorId> pending = {id};
  while (!pending.empty() && seen.size() < kMostWalk) {
    const TensorId at = pending.back();
    pending.pop_back();
    if (at == a_.stats || at == stats) return true;
    const Node* n = view_.Producer(at);
    if (n == nullptr || n->op != GraphOp::kMap || !seen.insert(at).second) continue;
    pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
  }
  return false;
}

bool AttentionGradFinder::IsClosed() const {
  const std::vector<LargestOf> numbers = a_.Largest();
  for (const NodeId n : a_.members) {
    const TensorId y = view_.graph().nodes[n].outputs[0];
    if (std::ranges::find(numbers, y, &LargestOf::result) != numbers.end()) continue;
    if (y == a_.dq || y == a_.dq_too || y == a_.dk || y == a_.dv || y == a_.dbias ||
        std::ranges::find(a_.sums, y) != a_.sums.end() ||
        std::ranges::find(a_.scatters, n) != a_.scatters.end())
      continue;
    const auto& readers = view_.Readers(y);
    if (!view_[y].is_virtual ||
        std::ranges::any_of(readers, [&](NodeId reader) { return !member_[reader]; }))
      return false;
  }
  return true;
}

}  // namespace kiln::compiler
