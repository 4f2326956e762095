#include "compiler/engines/attention_grad.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "compiler/engines/attention_grad_operands.h"
#include "compiler/engines/attention_view.h"
#include "compiler/group_limits.h"

namespace kiln::compiler {
namespace {

using graph::Combine;
using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;

// Tensors that are looked at in search of the product.
constexpr size_t kMostWalk = 4 * kMostGroupNodes;

class Finder {
 public:
  Finder(const GraphView& view, NodeId exp, bool is_group)
      : view_(view), exp_node_(exp), is_group_(is_group) {}

  std::optional<AttentionGrad> Run() {
    a_.exp = view_.graph().nodes[exp_node_].outputs[0];
    if (view_[a_.exp].rank() < 3 || !WalkScore() || !FindProducts()) return std::nullopt;
    if (!is_group_ && !OperandsAgree()) return std::nullopt;
    if (!TakeResults() || !TakeZeroes()) return std::nullopt;
    if (!CollectMembers() || !IsClosed()) return std::nullopt;
    return std::move(a_);
  }

 private:
  const Dims& dims() const { return view_[a_.exp].dims; }
  bool IsRow(TensorId id) const { return view_[id].dims == RowDims(dims()); }
  bool IsNumber(TensorId id) const { return view_[id].by_value || view_[id].is_constant(); }
  bool IsProduct(TensorId id) const {
    const Node* n = view_.Producer(id);
    return n != nullptr && IsPlainMatmul(*n) && view_[id].dims == dims();
  }

  // From the exponential back to the product: masks, the statistics, and any maps before them.
  bool WalkScore() {
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
    // What lies between is in the group; what else the maps read is little.
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

  // dq, of what follows from the exponential; dk of the same the other way around, and dv.
  bool FindProducts() {
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

  // From what dv is multiplied by to the exponential: selections, and factors of operands.
  bool WalkWeight() {
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

  void TakeZeroMask(TensorId id, const Node& select, std::initializer_list<PlaceBounds*> of) {
    const ScoreMask mask{.visible = select.inputs[0], .masked = id, .value = select.inputs[1]};
    if (!std::ranges::any_of(zero_masks_, [&](const ScoreMask& m) { return m.masked == id; }))
      zero_masks_.push_back(mask);
    for (PlaceBounds* bounds : of) bounds->Add(mask.visible, false);
  }

  // slope * scales, with selections of zeroes.
  bool WalkSlope(TensorId id) {
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
  // Where slopes are stored, summed over leading dims: the gradient of a bias.
  void TakeBias(TensorId slope) {
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
  // Which operand is multiplied by a factor that is the same for all places of a head; or -1.
  int ScaledOperand(const Node& mul) const {
    for (const int i : {0, 1}) {
      const Dims& of = view_[mul.inputs[1 - i]].dims;
      const bool one = NumElements(of) == 1 ||
                       (of.size() == dims().size() && of.back() == 1 && of[of.size() - 2] == 1);
      if (one && view_[mul.inputs[i]].dims == dims()) return i;
    }
    return -1;
  }

  // The other product before the slope, what is subtracted from it, and where the weights come in.
  bool FindInner() {
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
  // Zeroes of weights, on their way into the slope, are zeroes of the slope; those of the inner
  // product change nothing where the weights are zero.
  void TakeInnerMask(TensorId id, const Node& select) {
    if (BoundsOf(view_, select.inputs[0], view_[id].rank()).empty()) return;
    TensorId value = Plain(view_, select.inputs[1]);
    for (const Node* n = ZeroMask(view_, value); n != nullptr; n = ZeroMask(view_, value))
      value = Plain(view_, n->inputs[1]);
    if (value == a_.exp)
      TakeZeroMask(id, select, {&of_dq_, &of_dk_});
    else
      inner_masks_.push_back(
          {.visible = select.inputs[0], .masked = id, .value = select.inputs[1]});
  }

  // The products read what the others do.
  bool OperandsAgree() const {
    const auto q = AliasOf(view_, a_.q), k = AliasOf(view_, a_.k), dy = AliasOf(view_, a_.dy),
               v = AliasOf(view_, a_.v);
    if (!q || !k || !dy || !v) return false;
    const auto right = [&](TensorId product) {
      return AliasOf(view_, view_.Producer(product)->inputs[1]);
    };
    return right(dq_) == Swapped(*k) && right(dk_) == q && right(dv_) == dy;
  }

  // Of all nodes: whether they follow from some.
  std::vector<char> Dependents(std::initializer_list<NodeId> first) const {
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
  bool Follows(TensorId id) const {
    const NodeId n = view_.ProducerId(id);
    return n >= 0 && follows_[n];
  }

  bool TakeResults() {
    PlaceBounds of_rows(view_);
    a_.dq = Stored(dq_, of_rows);
    if (a_.dq == kAbsent) return false;
    of_dq_.Add(of_rows);
    a_.dq_too = StoredToo(a_.dq);
    return GradResult(view_, dk_, view_[a_.k].dims, of_dk_, a_.dk) &&
           GradResult(view_, dv_, view_[a_.v].dims, of_dv_, a_.dv);
  }
  // What a product is stored as: cast, zero outside bounds.
  TensorId Stored(TensorId id, PlaceBounds& bounds) const {
    while (view_[id].is_virtual && ScatterAfter(view_, id) < 0) {
      if (view_.Readers(id).size() != 1) return kAbsent;
      const Node& n = view_.graph().nodes[view_.Readers(id)[0]];
      const TensorId y = n.outputs[0];
      const bool is_cast = n.op == GraphOp::kMap && n.As<graph::MapAttrs>().identity;
      const bool is_mask = ZeroMask(view_, y) == &n && n.inputs[1] == id;
      if (view_[y].dims != view_[id].dims || (!is_cast && !is_mask)) return kAbsent;
      if (is_mask && !bounds.Add(n.inputs[0], false)) return kAbsent;
      id = y;
    }
    return id;
  }
  // What is a cast of a tensor in memory, and in memory itself.
  TensorId StoredToo(TensorId stored) const {
    for (const NodeId n : view_.Readers(stored)) {
      const Node& node = view_.graph().nodes[n];
      if (node.op != GraphOp::kMap || !node.As<graph::MapAttrs>().identity) continue;
      const TensorId y = node.outputs[0];
      const bool is_stored = !view_[y].is_virtual || ScatterAfter(view_, y) >= 0;
      if (is_stored && view_[y].dims == view_[stored].dims) return y;
    }
    return kAbsent;
  }

  // Places where weights are zero whatever the scores are: for all three results the same. What
  // selects these zeroes then selects nothing more.
  bool TakeZeroes() {
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
  // A selection of the product, or a number outside bounds of which the scores have masks as well.
  void TakeProductMask() {
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
  // `id` without selections that select nothing more.
  TensorId WithoutSpares(TensorId id) const {
    for (id = Plain(view_, id);;) {
      const auto at = std::ranges::find(a_.spares, id, &ScoreMask::masked);
      if (at == a_.spares.end()) return id;
      id = Plain(view_, at->value);
    }
  }
  bool IsPlainSlope() const {
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

  bool CollectMembers() {
    const Graph& g = view_.graph();
    // What follows from the product or from inner.
    const std::vector<char> made =
        Dependents({view_.ProducerId(a_.product), view_.ProducerId(a_.inner)});
    const auto is_made = [&](TensorId id) {
      const NodeId from = view_.ProducerId(id);
      return from >= 0 && made[from];
    };
    if (is_made(a_.stats) || is_made(a_.mean)) return false;
    member_.assign(g.nodes.size(), 0);
    std::vector<NodeId> pending;
    for (const TensorId id : {a_.dq, a_.dq_too, a_.dk, a_.dv, a_.dbias}) {
      if (id == kAbsent) continue;
      pending.push_back(view_.ProducerId(id));
      const NodeId scatter = view_[id].is_virtual ? ScatterAfter(view_, id) : -1;
      if (scatter < 0) continue;
      if (is_made(g.nodes[scatter].inputs[1]) || is_made(g.nodes[scatter].inputs[2])) return false;
      pending.push_back(scatter);
      a_.scatters.push_back(scatter);
    }
    while (!pending.empty()) {
      const NodeId n = pending.back();
      pending.pop_back();
      if (std::exchange(member_[n], 1)) continue;
      a_.members.push_back(n);
      for (const TensorId id : g.nodes[n].inputs)
        if (is_made(id)) pending.push_back(view_.ProducerId(id));
    }
    const bool is_known =
        std::ranges::all_of(a_.members, [&](NodeId n) { return IsMapOrKnown(g.nodes[n]); });
    TakeKept(is_made);
    TakeSums(is_made);
    std::ranges::sort(a_.members);
    return is_known;
  }
  // Between the products there are maps of scores alone.
  bool IsMapOrKnown(const Node& n) const {
    const TensorId y = n.outputs[0];
    if (n.op == GraphOp::kMap || n.op == GraphOp::kTranspose || n.op == GraphOp::kReshape ||
        n.op == GraphOp::kScatter)
      return true;
    return Has(n, graph::kContraction)
               ? y == a_.product || y == a_.inner || y == dq_ || y == dk_ || y == dv_
               : n.op == GraphOp::kReduce;
  }
  // What is 1 or 0 at each place, and takes long to compute: random bits.
  template <class IsMade>
  void TakeKept(const IsMade& is_made) {
    for (const NodeId member : a_.members)
      for (const TensorId id : view_.graph().nodes[member].inputs) {
        const TensorId kept = Plain(view_, id);
        const Node* n = is_made(id) ? nullptr : view_.Map(kept, ScalarOp::kSelect);
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

  // Sums of what rows have, where they read the statistics and nothing that is made here.
  template <class IsMade>
  void TakeSums(const IsMade& is_made) {
    const Graph& g = view_.graph();
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const Node& n = g.nodes[i];
      if (n.op != GraphOp::kReduce || n.As<graph::ReduceAttrs>().combine != Combine::kAdd ||
          member_[i] || !IsRow(n.inputs[0]) || is_made(n.inputs[0]) ||
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
  bool ReadsStats(TensorId id) const {
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

  bool IsClosed() const {
    for (const NodeId n : a_.members) {
      const TensorId y = view_.graph().nodes[n].outputs[0];
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

  const GraphView& view_;
  const NodeId exp_node_;
  const bool is_group_;
  AttentionGrad a_;
  TensorId dq_ = kAbsent, dk_ = kAbsent, dv_ = kAbsent, slope_ = kAbsent;  // products
  // Outside which the operands that follow from scores, and the results, are zero.
  PlaceBounds of_dq_{view_}, of_dk_{view_}, of_dv_{view_};
  // Selections of zeroes instead of weights and slopes, and of what only weights multiply.
  std::vector<ScoreMask> zero_masks_, inner_masks_;
  std::vector<char> follows_, from_inner_, member_;  // of nodes: the exponential; inner; taken
};

}  // namespace

std::vector<AttentionGrad> FindAttentionGrad(const Graph& g, bool is_group) {
  std::vector<AttentionGrad> all;
  const GraphView view(g);
  std::vector<char> taken(g.nodes.size());
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (g.nodes[n].op != GraphOp::kMap || g.nodes[n].As<graph::MapAttrs>().identity ||
        g.nodes[n].As<graph::MapAttrs>().op != ScalarOp::kExp)
      continue;
    auto found = Finder(view, static_cast<NodeId>(n), is_group).Run();
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
  const Node* n = view.Map(scaled, ScalarOp::kMul);
  if (n == nullptr || view.Uncast(scaled) != scaled || !is_f32(scaled)) return std::nullopt;
  const Dims& dims = g[a.exp].dims;
  for (const int i : {0, 1}) {
    const TensorId value = n->inputs[i], factor = n->inputs[1 - i];
    const Dims& of = g[factor].dims;
    const bool one_place = of.size() == dims.size() && of.back() == 1 && of[of.size() - 2] == 1;
    // Only the product itself: other maps may read memory at each place.
    if (one_place && view.Uncast(value) == product)
      return ScoreFactor{.scaled = scaled, .value = value, .factor = factor};
  }
  return std::nullopt;
}

}  // namespace kiln::compiler
