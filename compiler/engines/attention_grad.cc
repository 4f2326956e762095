#include "compiler/engines/attention_grad.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

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

bool SwapsLast(const Node& n) {
  const auto& permutation = n.As<graph::TransposeAttrs>().permutation;
  const auto rank = static_cast<int64_t>(permutation.size());
  if (rank < 2) return false;
  for (int64_t d = 0; d + 2 < rank; ++d)
    if (permutation[d] != d) return false;
  return permutation[rank - 2] == rank - 1;
}

// A tensor in memory, read with its dims in another order.
struct Alias {
  int64_t uid = -1;
  Dims dims, strides;
  bool operator==(const Alias&) const = default;
};

// The views through which `id` is read, from the last one on, and the tensor that they start from.
std::vector<TensorId> ViewsOf(const GraphView& view, TensorId id, TensorId& first) {
  std::vector<TensorId> views;
  for (const Node* n = view.Producer(id); n != nullptr; n = view.Producer(id)) {
    const bool is_view = n->op == GraphOp::kTranspose || n->op == GraphOp::kReshape ||
                         (n->op == GraphOp::kMap && n->As<graph::MapAttrs>().identity);
    if (!is_view) break;
    views.push_back(id);
    id = n->inputs[0];
  }
  first = id;
  return views;
}

std::optional<Alias> AliasOf(const GraphView& view, TensorId id) {
  TensorId first = kAbsent;
  std::vector<TensorId> views = ViewsOf(view, id, first);
  const Tensor& memory = view[first];
  if (view.Producer(first) != nullptr || memory.by_value || memory.is_constant() || memory.uid < 0)
    return std::nullopt;
  Alias alias{.uid = memory.uid, .dims = memory.dims, .strides = memory.strides};
  for (size_t d = 0; d < alias.dims.size(); ++d)
    if (alias.dims[d] == 1) alias.strides[d] = 0;
  for (; !views.empty(); views.pop_back()) {
    const Tensor& t = view[views.back()];
    const Node& n = *view.Producer(views.back());
    // Wider types hold the same values.
    if (t.dtype != view[n.inputs[0]].dtype && t.dtype != DType::kF32) return std::nullopt;
    if (n.op != GraphOp::kTranspose) {
      if (t.dims != alias.dims) return std::nullopt;
      continue;
    }
    Alias moved{.uid = alias.uid, .dims = {}, .strides = {}};
    for (const int64_t d : n.As<graph::TransposeAttrs>().permutation) {
      moved.dims.push_back(alias.dims[d]);
      moved.strides.push_back(alias.strides[d]);
    }
    alias = std::move(moved);
  }
  return alias;
}

Alias Swapped(Alias alias) {
  const size_t rank = alias.dims.size();
  std::swap(alias.dims[rank - 1], alias.dims[rank - 2]);
  std::swap(alias.strides[rank - 1], alias.strides[rank - 2]);
  return alias;
}

// `id` before casts, and views that move nothing.
TensorId Plain(const GraphView& view, TensorId id) {
  for (const Node* n = view.Producer(id); n != nullptr; n = view.Producer(id)) {
    const bool is_cast = n->op == GraphOp::kMap && n->As<graph::MapAttrs>().identity;
    if ((!is_cast && n->op != GraphOp::kReshape) || view[n->inputs[0]].dims != view[id].dims) break;
    id = n->inputs[0];
  }
  return id;
}

// The same, through exchanges of the last two dims.
struct Operand {
  TensorId id;
  bool transposed = false;
};
Operand OperandOf(const GraphView& view, TensorId id) {
  Operand o{.id = Plain(view, id)};
  for (const Node* n = view.Producer(o.id);
       n != nullptr && n->op == GraphOp::kTranspose && SwapsLast(*n); n = view.Producer(o.id))
    o = {.id = Plain(view, n->inputs[0]), .transposed = !o.transposed};
  return o;
}

// Tensors that are looked at in search of the product.
constexpr size_t kMostWalk = 4 * kMostGroupNodes;

class Finder {
 public:
  Finder(const GraphView& view, NodeId exp, bool is_group)
      : view_(view), exp_node_(exp), is_group_(is_group) {}

  std::optional<AttentionGrad> Run() {
    a_.exp = view_.graph().nodes[exp_node_].outputs[0];
    if (view_[a_.exp].rank() < 3 || !WalkScore() || !FindProducts()) return std::nullopt;
    if ((!is_group_ && !OperandsAgree()) || !CollectMembers() || !IsClosed()) return std::nullopt;
    return std::move(a_);
  }

 private:
  const Dims& dims() const { return view_[a_.exp].dims; }
  bool IsRow(TensorId id) const { return view_[id].dims == RowDims(dims()); }
  bool IsNumber(TensorId id) const { return view_[id].by_value || view_[id].is_constant(); }

  // From the exponential back to the product: masks, the statistics, and any maps before them.
  bool WalkScore() {
    TensorId id = view_.graph().nodes[exp_node_].inputs[0];
    while (true) {
      id = Plain(view_, id);
      if (const Node* n = view_.Map(id, ScalarOp::kSelect)) {
        if (!IsNumber(n->inputs[2]) || view_[n->inputs[1]].dims != dims()) break;
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
      if (IsPlainMatmul(*n) && view_[at].dims == dims()) {
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

  // What dv is multiplied by: the exponential, through selections.
  bool IsWeight(TensorId id, std::vector<ScoreMask>& masks) const {
    while ((id = Plain(view_, id)) != a_.exp) {
      const Node* n = view_.Map(id, ScalarOp::kSelect);
      if (n == nullptr || !view_.IsZero(n->inputs[2]) || view_[n->inputs[1]].dims != dims())
        return false;
      masks.push_back({.visible = n->inputs[0], .masked = id, .value = n->inputs[1]});
      id = n->inputs[1];
    }
    return true;
  }

  bool FindProducts() {
    const Graph& g = view_.graph();
    FindDependents();
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const Node& n = g.nodes[i];
      if (!IsPlainMatmul(n) || !Follows(n.inputs[0])) continue;
      const Operand left = OperandOf(view_, n.inputs[0]);
      if (view_[left.id].dims != dims()) return false;
      std::vector<ScoreMask> masks;
      const bool is_weight = left.transposed && IsWeight(left.id, masks);
      TensorId& place = is_weight ? dv_ : left.transposed ? dk_ : dq_;
      if (place != kAbsent) return false;
      place = n.outputs[0];
      if (!is_weight) {
        if (slope_ != kAbsent && slope_ != left.id) return false;
        slope_ = left.id;
        continue;
      }
      a_.weight = left.id;
      a_.masks.insert(a_.masks.begin(), masks.begin(), masks.end());
      after_exp_ = masks.size();
    }
    return dq_ != kAbsent && dk_ != kAbsent && dv_ != kAbsent && WalkSlope(slope_);
  }

  // slope * scales, with selections that say nothing new.
  bool WalkSlope(TensorId id) {
    std::vector<TensorId> hidden;
    for (size_t i = 0; i < after_exp_; ++i) AddConjuncts(view_, a_.masks[i].visible, hidden);
    while (true) {
      id = Plain(view_, id);
      if (const Node* n = view_.Map(id, ScalarOp::kSelect)) {
        std::vector<TensorId> conditions;
        AddConjuncts(view_, n->inputs[0], conditions);
        const bool is_spare = std::ranges::all_of(conditions, [&](TensorId x) {
          return std::ranges::any_of(hidden, [&](TensorId y) { return SameValue(view_, x, y); });
        });
        if (!view_.IsZero(n->inputs[2]) || !is_spare) return false;
        id = n->inputs[1];
        continue;
      }
      const Node* n = view_.Map(id, ScalarOp::kMul);
      if (n == nullptr) return false;
      if (IsSlope(*n)) return true;
      int next = -1;
      for (const int i : {0, 1}) {
        const Dims& of = view_[n->inputs[1 - i]].dims;
        const bool one = NumElements(of) == 1 ||
                         (of.size() == dims().size() && of.back() == 1 && of[of.size() - 2] == 1);
        if (one && view_[n->inputs[i]].dims == dims()) next = i;
      }
      if (next < 0) return false;
      a_.scales.push_back(n->inputs[1 - next]);
      id = n->inputs[next];
    }
  }

  bool IsSlope(const Node& mul) {
    for (const int i : {0, 1}) {
      const Node* sub = view_.Map(mul.inputs[i], ScalarOp::kSub);
      if (sub == nullptr || Plain(view_, mul.inputs[1 - i]) != Plain(view_, a_.weight)) continue;
      const TensorId inner = Plain(view_, sub->inputs[0]);
      const Node* n = view_.Producer(inner);
      if (n == nullptr || !IsPlainMatmul(*n) || view_[inner].dims != dims() ||
          !IsRow(sub->inputs[1]))
        continue;
      a_.inner = inner;
      a_.dy = n->inputs[0];
      a_.v = n->inputs[1];
      a_.mean = sub->inputs[1];
      return true;
    }
    return false;
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

  void FindDependents() {
    const Graph& g = view_.graph();
    follows_.assign(g.nodes.size(), 0);
    for (size_t n = 0; n < g.nodes.size(); ++n)
      follows_[n] =
          static_cast<NodeId>(n) == exp_node_ ||
          std::ranges::any_of(g.nodes[n].inputs, [&](TensorId id) { return Follows(id); });
  }
  bool Follows(TensorId id) const {
    const NodeId n = view_.ProducerId(id);
    return n >= 0 && follows_[n];
  }

  bool CollectMembers() {
    const Graph& g = view_.graph();
    std::vector<char> made(g.nodes.size());  // follows from the product or from inner
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      const auto is_made = [&](TensorId id) {
        const NodeId from = view_.ProducerId(id);
        return from >= 0 && made[from];
      };
      const TensorId y = g.nodes[n].outputs[0];
      made[n] = y == a_.product || y == a_.inner || std::ranges::any_of(g.nodes[n].inputs, is_made);
    }
    for (const TensorId id : {a_.stats, a_.mean})
      if (view_.ProducerId(id) >= 0 && made[view_.ProducerId(id)]) return false;
    a_.dq = dq_;
    a_.dq_too = StoredToo(dq_);
    member_.assign(g.nodes.size(), 0);
    if (!Result(dk_, a_.k, a_.dk) || !Result(dv_, a_.v, a_.dv)) return false;
    std::vector<NodeId> pending = {view_.ProducerId(dq_), view_.ProducerId(a_.dk),
                                   view_.ProducerId(a_.dv)};
    if (a_.dq_too != kAbsent) pending.push_back(view_.ProducerId(a_.dq_too));
    while (!pending.empty()) {
      const NodeId n = pending.back();
      pending.pop_back();
      if (std::exchange(member_[n], 1)) continue;
      a_.members.push_back(n);
      for (const TensorId id : g.nodes[n].inputs) {
        const NodeId from = view_.ProducerId(id);
        if (from >= 0 && made[from]) pending.push_back(from);
      }
    }
    std::ranges::sort(a_.members);
    return true;
  }

  // What is a cast of a tensor in memory, and in memory itself.
  TensorId StoredToo(TensorId stored) const {
    if (view_[stored].is_virtual) return kAbsent;
    for (const NodeId n : view_.Readers(stored)) {
      const Node& node = view_.graph().nodes[n];
      if (node.op != GraphOp::kMap || !node.As<graph::MapAttrs>().identity) continue;
      const TensorId y = node.outputs[0];
      if (!view_[y].is_virtual && view_[y].dims == view_[stored].dims) return y;
    }
    return kAbsent;
  }

  // From a product to what is stored: summed over the heads that share one of `operand`, cast.
  bool Result(TensorId product, TensorId operand, TensorId& result) const {
    const Dims& each = view_[product].dims;
    const int64_t rank = view_[product].rank(), heads = rank - 3;
    const int64_t kept = view_[operand].dims[heads];
    std::vector<int> labels(each.size());  // which dim of the product a dim is, -1 the group's
    std::iota(labels.begin(), labels.end(), 0);
    bool summed = kept == each[heads];
    result = product;
    while (view_[result].is_virtual) {
      if (view_.Readers(result).size() != 1) return false;
      const Node& n = view_.graph().nodes[view_.Readers(result)[0]];
      const TensorId y = n.outputs[0];
      const Dims &from = view_[result].dims, &to = view_[y].dims;
      if (n.op == GraphOp::kTranspose) {
        std::vector<int> moved;
        for (const int64_t d : n.As<graph::TransposeAttrs>().permutation)
          moved.push_back(labels[d]);
        labels = moved;
      } else if (n.op == GraphOp::kReduce && !summed) {
        const auto group = std::ranges::find(labels, -1) - labels.begin();
        Dims wanted = from;
        if (group == std::ssize(labels)) return false;
        wanted[group] = 1;
        if (n.As<graph::ReduceAttrs>().combine != Combine::kAdd || to != wanted) return false;
        summed = true;
      } else if (n.op == GraphOp::kReshape && to != from) {
        if (!Relabel(from, to, heads, kept, summed, labels)) return false;
      } else if (n.op != GraphOp::kReshape &&
                 !(n.op == GraphOp::kMap && n.As<graph::MapAttrs>().identity)) {
        return false;
      }
      result = y;
    }
    std::vector<int> straight(each.size());
    std::iota(straight.begin(), straight.end(), 0);
    return summed && labels == straight;
  }

  // The heads become [kept, group], or a dim of extent 1 leaves.
  static bool Relabel(const Dims& from, const Dims& to, int64_t heads, int64_t kept, bool summed,
                      std::vector<int>& labels) {
    if (!summed) {
      const auto at = std::ranges::find(labels, static_cast<int>(heads)) - labels.begin();
      Dims wanted = from;
      if (std::ranges::find(labels, -1) != labels.end()) return false;
      wanted[at] = kept;
      wanted.insert(wanted.begin() + at + 1, from[at] / kept);
      labels.insert(labels.begin() + at + 1, -1);
      return to == wanted;
    }
    const auto at = std::ranges::find(labels, -1) - labels.begin();
    if (at == std::ssize(labels) || from[at] != 1) return false;
    Dims wanted = from;
    wanted.erase(wanted.begin() + at);
    labels.erase(labels.begin() + at);
    return to == wanted;
  }

  bool IsClosed() const {
    for (const NodeId n : a_.members) {
      const TensorId y = view_.graph().nodes[n].outputs[0];
      if (y == a_.dq || y == a_.dq_too || y == a_.dk || y == a_.dv) continue;
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
  size_t after_exp_ = 0;                // masks that follow the exponential
  std::vector<char> follows_, member_;  // of nodes: the exponential; taken
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

std::optional<ScoreFactor> FactorOf(const Graph& g, const AttentionGrad& a) {
  const GraphView view(g);
  for (const ScoreMask& mask : a.masks)
    if (BoundsOf(g, mask).empty()) return std::nullopt;
  const auto before = [&](TensorId id) {
    for (const Node* n = view.Map(id, ScalarOp::kSelect); n != nullptr;
         n = view.Map(id, ScalarOp::kSelect))
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
    if (one_place && view.Uncast(value) == a.product)
      return ScoreFactor{.scaled = scaled, .value = value, .factor = factor};
  }
  return std::nullopt;
}

}  // namespace kiln::compiler
