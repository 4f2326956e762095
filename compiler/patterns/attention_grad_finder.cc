#include "compiler/patterns/attention_grad_finder.h"

#include <algorithm>
#include <set>

#include "compiler/group_limits.h"

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

// Tensors that are looked at in search of the product.
constexpr size_t kMostWalk = 4 * kMostGroupNodes;

}  // namespace

std::optional<AttentionGrad> AttentionGradFinder::Run() {
  a_.exp = view_.graph().nodes[exp_node_].outputs[0];
  if (view_[a_.exp].rank() < 3 || !WalkScore() || !FindProducts()) return std::nullopt;
  if (!is_group_ && !OperandsAgree()) return std::nullopt;
  if (!TakeResults() || !TakeZeroes()) return std::nullopt;
  if (!CollectMembers() || !IsClosed()) return std::nullopt;
  return std::move(a_);
}

bool AttentionGradFinder::IsProduct(TensorId id) const {
  const Node* n = view_.Producer(id);
  return n != nullptr && IsPlainMatmul(*n) && view_[id].dims == dims();
}

bool AttentionGradFinder::WalkScore() {
  TensorId id = view_.graph().nodes[exp_node_].inputs[0];
  while (true) {
    id = Plain(view_, id);
    if (const Node* n = view_.Map(id, ScalarOp::kSelect)) {
      if (!IsNumber(n->inputs[2]) || view_.IsZero(n->inputs[2]) ||
          view_[n->inputs[1]].dims != dims())
        break;
      a_.masks.push_back(
          {.visible = n->inputs[0], .masked = id, .value = n->inputs[1], .fill = n->inputs[2]});
      id = n->inputs[1];
      continue;
    }
    const Node* sub = view_.Map(id, ScalarOp::kSub);
    if (sub == nullptr || a_.stats != kAbsent || !IsRow(sub->inputs[1])) break;
    a_.shifted = id;
    a_.stats = sub->inputs[1];
    id = sub->inputs[0];
  }
  if (a_.stats == kAbsent) return false;
  // The nodes between are in the group; what else the maps read is little.
  std::vector<TensorId> pending = {id};
  std::set<TensorId> seen;
  while (!pending.empty()) {
    const TensorId at = pending.back();
    pending.pop_back();
    if (!seen.insert(at).second) continue;
    if (seen.size() > kMostWalk) return false;
    const Node* n = view_.Producer(at);
    if (n == nullptr) continue;
    if (IsProduct(at)) {
      if (a_.product != kAbsent) return false;
      a_.product = at;
      a_.q = n->inputs[0];
      a_.k = n->inputs[1];
    } else if (n->op == GraphOp::kMap) {
      pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
    }
  }
  return a_.product != kAbsent;
}

bool AttentionGradFinder::FindProducts() {
  const Graph& g = view_.graph();
  follows_ = Dependents({exp_node_});
  std::vector<std::pair<TensorId, MaskedOperand>> others;
  std::vector<PlaceBounds> bounds;
  for (const Node& n : g.nodes) {
    if (!IsPlainMatmul(n) || !Follows(n.inputs[0])) continue;
    PlaceBounds of_left(view_);
    const MaskedOperand left = OperandOf(view_, n.inputs[0], of_left);
    if (view_[left.id].dims != dims()) return false;
    if (left.transposed) {
      others.emplace_back(n.outputs[0], left);
      bounds.push_back(of_left);
      continue;
    }
    if (dq_ != kAbsent) return false;
    dq_ = n.outputs[0];
    slope_ = left.id;
    of_dq_.Add(of_left);
  }
  if (dq_ == kAbsent || others.size() != 2) return false;
  for (const size_t i : {0, 1}) {
    const bool is_slope = others[i].second.id == slope_;
    TensorId& place = is_slope ? dk_ : dv_;
    if (place != kAbsent) return false;
    place = others[i].first;
    (is_slope ? of_dk_ : of_dv_).Add(bounds[i]);
    if (!is_slope) a_.weight = others[i].second.id;
  }
  return WalkWeight() && WalkSlope(slope_) && FindInner();
}

bool AttentionGradFinder::WalkWeight() {
  for (TensorId id = a_.weight; (id = Plain(view_, id)) != a_.exp;) {
    const Node* n = view_.Map(id, ScalarOp::kSelect);
    if (n != nullptr) {
      if (!view_.IsZero(n->inputs[2]) || view_[n->inputs[1]].dims != dims()) return false;
      TakeZeroMask(id, *n, {&of_dv_});
      id = n->inputs[1];
      continue;
    }
    n = view_.Map(id, ScalarOp::kMul);
    if (n == nullptr || Follows(n->inputs[0]) == Follows(n->inputs[1])) return false;
    id = n->inputs[Follows(n->inputs[0]) ? 0 : 1];
    if (view_[id].dims != dims()) return false;
  }
  return true;
}

void AttentionGradFinder::TakeZeroMask(TensorId id, const Node& select,
                                       std::initializer_list<PlaceBounds*> of) {
  const ScoreMask mask{.visible = select.inputs[0], .masked = id, .value = select.inputs[1]};
  if (!std::ranges::any_of(zero_masks_, [&](const ScoreMask& m) { return m.masked == id; }))
    zero_masks_.push_back(mask);
  for (PlaceBounds* bounds : of) bounds->Add(mask.visible, false);
}

bool AttentionGradFinder::WalkSlope(TensorId id) {
  if (HasBytes()) {  // what is rounded, with all that it is multiplied by
    a_.slope = id;
    return true;
  }
  while (true) {
    id = Plain(view_, id);
    TakeBias(id);
    const Node* n = ZeroMask(view_, id);
    if (n != nullptr && !BoundsOf(view_, n->inputs[0], view_[id].rank()).empty()) {
      TakeZeroMask(id, *n, {&of_dq_, &of_dk_});
      id = n->inputs[1];
      continue;
    }
    n = view_.Map(id, ScalarOp::kMul);
    const int next = n == nullptr ? -1 : ScaledOperand(*n);
    if (next < 0) break;
    a_.scales.push_back(n->inputs[1 - next]);
    id = n->inputs[next];
  }
  a_.slope = id;
  return true;
}

void AttentionGradFinder::TakeBias(TensorId slope) {
  const auto is_cast = [](const Node& n) {
    return n.op == GraphOp::kMap && n.As<graph::MapAttrs>().identity;
  };
  for (const NodeId reader : view_.Readers(slope)) {
    const Node* n = &view_.graph().nodes[reader];
    const bool sums =
        n->op == GraphOp::kReduce && n->As<graph::ReduceAttrs>().combine == Combine::kAdd;
    TensorId y = n->outputs[0];
    if ((!sums && !is_cast(*n)) || view_[slope].dims != dims()) continue;
    while (view_[y].is_virtual && view_.Readers(y).size() == 1) {
      n = &view_.graph().nodes[view_.Readers(y)[0]];
      if (!is_cast(*n) || view_[n->outputs[0]].dims != view_[y].dims) break;
      y = n->outputs[0];
    }
    const Dims& of = view_[y].dims;
    const bool keeps_places = of.size() == dims().size() && of.back() == dims().back() &&
                              of[of.size() - 2] == dims()[of.size() - 2];
    if (view_[y].is_virtual || !keeps_places) continue;
    a_.dbias = y;
    a_.bias_slope = slope;
  }
}

int AttentionGradFinder::ScaledOperand(const Node& mul) const {
  for (const int i : {0, 1}) {
    const Dims& of = view_[mul.inputs[1 - i]].dims;
    const bool one = NumElements(of) == 1 ||
                     (of.size() == dims().size() && of.back() == 1 && of[of.size() - 2] == 1);
    if (one && view_[mul.inputs[i]].dims == dims()) return i;
  }
  return -1;
}

bool AttentionGradFinder::FindInner() {
  std::vector<TensorId> pending = {a_.slope};
  std::set<TensorId> seen;
  std::vector<const Node*> differences;
  while (!pending.empty()) {
    const TensorId at = pending.back();
    pending.pop_back();
    if (!seen.insert(at).second || at == a_.exp) continue;
    if (seen.size() > kMostWalk) return false;
    const Node* n = view_.Producer(at);
    if (n == nullptr || at == a_.product) continue;
    if (!IsProduct(at)) TakeBias(at);
    if (IsProduct(at)) {
      if (a_.inner != kAbsent) return false;
      a_.inner = at;
      a_.dy = n->inputs[0];
      a_.v = n->inputs[1];
      continue;
    }
    if (n->op != GraphOp::kMap) continue;
    if (const Node* zero = ZeroMask(view_, at)) TakeInnerMask(at, *zero);
    if (view_.Map(at, ScalarOp::kSub) == n && IsRow(n->inputs[1])) differences.push_back(n);
    pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
  }
  if (a_.inner == kAbsent) return false;
  from_inner_ = Dependents({view_.ProducerId(a_.inner)});
  for (const Node* n : differences) {
    const NodeId from = view_.ProducerId(n->inputs[0]);
    if (from < 0 || !from_inner_[from]) continue;
    if (a_.mean != kAbsent && a_.mean != n->inputs[1]) return false;
    a_.mean = n->inputs[1];
  }
  return a_.mean != kAbsent;
}

void AttentionGradFinder::TakeInnerMask(TensorId id, const Node& select) {
  if (BoundsOf(view_, select.inputs[0], view_[id].rank()).empty()) return;
  TensorId value = Plain(view_, select.inputs[1]);
  for (const Node* n = ZeroMask(view_, value); n != nullptr; n = ZeroMask(view_, value))
    value = Plain(view_, n->inputs[1]);
  if (value == a_.exp)
    TakeZeroMask(id, select, {&of_dq_, &of_dk_});
  else
    inner_masks_.push_back({.visible = select.inputs[0], .masked = id, .value = select.inputs[1]});
}

bool AttentionGradFinder::OperandsAgree() const {
  const auto q = AliasOf(view_, a_.q), k = AliasOf(view_, a_.k), dy = AliasOf(view_, a_.dy),
             v = AliasOf(view_, a_.v);
  if (!q || !k || !dy || !v) return false;
  const auto right = [&](TensorId product) {
    return AliasOf(view_, view_.Producer(product)->inputs[1]);
  };
  return right(dq_) == Swapped(*k) && right(dk_) == q && right(dv_) == dy;
}

std::vector<char> AttentionGradFinder::Dependents(std::initializer_list<NodeId> first) const {
  const Graph& g = view_.graph();
  std::vector<char> all(g.nodes.size());
  for (const NodeId n : first) all[n] = 1;
  for (size_t n = 0; n < g.nodes.size(); ++n)
    all[n] = all[n] || std::ranges::any_of(g.nodes[n].inputs, [&](TensorId id) {
               const NodeId from = view_.ProducerId(id);
               return from >= 0 && all[from];
             });
  return all;
}

bool AttentionGradFinder::Follows(TensorId id) const {
  const NodeId n = view_.ProducerId(id);
  return n >= 0 && follows_[n];
}

}  // namespace kiln::compiler
