#include "compiler/engines/attention.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "compiler/engines/attention_view.h"
#include "compiler/group_limits.h"
#include "ir/graph/ops.h"

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

// From the weights of the second product back to an exponential, through factors.
struct Factors {
  TensorId exp = kAbsent;
  std::vector<TensorId> multiplied, divided;
};

// A step from a value to the operand that it is a multiple of.
struct FactorStep {
  TensorId from = kAbsent, times = kAbsent, by = kAbsent;
};

// The steps that lead on from `id`, the preferred one last.
std::vector<FactorStep> FactorSteps(const GraphView& view, TensorId id) {
  std::vector<FactorStep> steps;
  if (const Node* n = view.Map(id, ScalarOp::kDiv)) {
    steps = {{.from = n->inputs[0], .by = n->inputs[1]}};
  } else if (const Node* n = view.Map(id, ScalarOp::kMul)) {
    steps = {{.from = n->inputs[1], .times = n->inputs[0]},
             {.from = n->inputs[0], .times = n->inputs[1]}};
  } else if (const Node* n = view.Map(id, ScalarOp::kSelect)) {
    if (view.IsZero(n->inputs[2]))
      steps = {{.from = n->inputs[1], .times = n->inputs[0]}};
    else if (view.IsZero(n->inputs[1]))
      steps = {{.from = n->inputs[2], .times = n->inputs[0]}};
  }
  std::erase_if(steps, [&](const FactorStep& s) { return view[s.from].dims != view[id].dims; });
  return steps;
}

// Values from which no exponential is found are looked at once. All that is found becomes members
// of one group.
std::optional<Factors> FindExp(const GraphView& view, TensorId id) {
  std::vector<FactorStep> path = {{.from = id}};  // from `id` on, each the last of its alternatives
  std::vector<std::vector<FactorStep>> alternatives;
  std::set<TensorId> seen;
  while (!path.empty()) {
    const TensorId at = path.back().from;
    if (view.Map(at, ScalarOp::kExp) != nullptr) {
      Factors found{.exp = view.Uncast(at)};
      for (size_t i = path.size(); i-- > 1;) {
        if (path[i].times != kAbsent) found.multiplied.push_back(path[i].times);
        if (path[i].by != kAbsent) found.divided.push_back(path[i].by);
      }
      return found;
    }
    const bool is_new = seen.insert(at).second && seen.size() <= kMostGroupNodes;
    alternatives.push_back(is_new ? FactorSteps(view, at) : std::vector<FactorStep>());
    while (!alternatives.empty() && alternatives.back().empty()) {
      alternatives.pop_back();
      path.pop_back();
    }
    if (alternatives.empty()) break;
    path.push_back(alternatives.back().back());
    alternatives.back().pop_back();
  }
  return std::nullopt;
}

// One attempt, from a second product.
class Finder {
 public:
  Finder(const GraphView& view, NodeId second) : view_(view), second_(second) {}

  std::optional<Attention> Run() {
    const Node& node = view_.graph().nodes[second_];
    if (!IsPlainMatmul(node)) return std::nullopt;
    if (view_[node.inputs[0]].dims.back() == 1) return std::nullopt;  // one key: no softmax
    a_.weight = node.inputs[0];
    a_.v = node.inputs[1];
    a_.out = a_.result = node.outputs[0];
    if (!FindSoftmax() || !FindProduct() || !CollectMembers()) return std::nullopt;
    TakeRows();
    TakeEpilogue();
    if (!IsClosed()) return std::nullopt;
    std::ranges::sort(a_.members);
    return std::move(a_);
  }

 private:
  // score, max, exp, sum.
  bool FindSoftmax() {
    const auto found = FindExp(view_, a_.weight);
    if (!found) return false;
    factors_ = *found;
    a_.exp = factors_.exp;
    if (view_[a_.exp].rank() < 2) return false;
    const Node* shifted = view_.Map(ArgumentOf(a_.exp), ScalarOp::kSub);
    if (shifted == nullptr) return false;
    a_.score = view_.Uncast(shifted->inputs[0]);
    if (view_[a_.score].dims != view_[a_.exp].dims) return false;
    const TensorId shift = view_.Unguarded(shifted->inputs[1]);
    divides_ = IsMax(shift);
    return divides_ ? FindSum() : FindLogSumExp(shift);
  }

  TensorId ArgumentOf(TensorId exp) const { return view_.Producer(exp)->inputs[0]; }

  bool IsMax(TensorId id) {
    const Node* max = view_.Reduce(id, Combine::kMax);
    if (max == nullptr || !view_.Same(max->inputs[0], a_.score) ||
        view_[max->outputs[0]].dims != RowDims(view_[a_.score].dims))
      return false;
    a_.max = max->outputs[0];
    return true;
  }

  bool IsSumOf(TensorId id, TensorId exp) {
    const Node* sum = view_.Reduce(id, Combine::kAdd);
    if (sum == nullptr || !view_.Same(sum->inputs[0], exp) ||
        view_[sum->outputs[0]].dims != RowDims(view_[exp].dims))
      return false;
    a_.sum = sum->outputs[0];
    return true;
  }

  // Exactly one factor is the row's sum, below a fraction.
  bool FindSum() {
    int sums = 0;
    const auto take = [&](TensorId id) {
      if (!IsSumOf(view_.Unguarded(id), a_.exp)) return;
      a_.divisor = id;
      ++sums;
    };
    for (const TensorId id : factors_.divided) take(id);
    for (const TensorId id : factors_.multiplied)
      if (const Node* recip = view_.Map(id, ScalarOp::kRecip)) take(recip->inputs[0]);
    return sums == 1;
  }

  // shift = max + log(sum of exp(score - max))
  bool FindLogSumExp(TensorId shift) {
    const Node* add = view_.Map(shift, ScalarOp::kAdd);
    if (add == nullptr) return false;
    for (int i : {0, 1}) {
      const Node* log = view_.Map(add->inputs[1 - i], ScalarOp::kLog);
      if (log == nullptr || !IsMax(add->inputs[i])) continue;
      const Node* sum = view_.Reduce(log->inputs[0], Combine::kAdd);
      if (sum == nullptr) continue;
      const Node* exp = view_.Map(sum->inputs[0], ScalarOp::kExp);
      const Node* sub = exp == nullptr ? nullptr : view_.Map(exp->inputs[0], ScalarOp::kSub);
      if (sub != nullptr && view_.Same(sub->inputs[0], a_.score) &&
          view_.Same(view_.Unguarded(sub->inputs[1]), a_.max) &&
          IsSumOf(log->inputs[0], exp->outputs[0]))
        return true;
    }
    return false;
  }

  // The one matmul of the scores' extents that they are computed from.
  bool FindProduct() {
    const Dims& dims = view_[a_.score].dims;
    std::vector<TensorId> pending = {a_.score};
    std::vector<char> seen(view_.graph().tensors.size());
    while (!pending.empty()) {
      const TensorId id = pending.back();
      pending.pop_back();
      if (seen[id]) continue;
      seen[id] = 1;
      const Node* n = view_.Producer(id);
      if (n == nullptr) continue;
      if (n->op == GraphOp::kMatmul && view_[id].dims == dims) {
        if (a_.product != kAbsent) return false;
        a_.product = id;
        a_.q = n->inputs[0];
        a_.k = n->inputs[1];
        if (!IsPlainMatmul(*n)) return false;
      } else if (n->op == GraphOp::kMap) {
        pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
      }
    }
    return a_.product != kAbsent;
  }

  // What lies between the products.
  bool CollectMembers() {
    const Graph& g = view_.graph();
    const NodeId first = view_.ProducerId(a_.product);
    follows_.assign(g.nodes.size(), 0);
    for (size_t n = 0; n < g.nodes.size(); ++n)
      follows_[n] =
          static_cast<NodeId>(n) == first ||
          std::ranges::any_of(g.nodes[n].inputs, [&](TensorId id) { return Follows(id); });
    member_.assign(g.nodes.size(), 0);
    std::vector<NodeId> pending = {second_};
    while (!pending.empty()) {
      const NodeId n = pending.back();
      pending.pop_back();
      if (member_[n]) continue;
      member_[n] = 1;
      a_.members.push_back(n);
      if (n == first) continue;
      for (const TensorId id : g.nodes[n].inputs)
        if (Follows(id)) pending.push_back(view_.ProducerId(id));
    }
    if (!member_[first] || Follows(a_.v)) return false;
    return FactorsAreOperands() && std::ranges::all_of(a_.members, [&](NodeId n) {
             return n == first || n == second_ || HasPlace(g.nodes[n]);
           });
  }

  bool Follows(TensorId id) const {
    const NodeId n = view_.ProducerId(id);
    return n >= 0 && follows_[n];
  }

  // Of the factors of the exponential only those made of the row's sum follow from the product.
  bool FactorsAreOperands() const {
    const auto is_operand = [&](TensorId id) {
      return !Follows(id) || view_[id].dims == RowDims(view_[a_.exp].dims);
    };
    int rows = 0;
    for (const auto* list : {&factors_.multiplied, &factors_.divided})
      for (const TensorId id : *list) {
        if (!is_operand(id)) return false;
        rows += Follows(id);
      }
    return rows == (divides_ ? 1 : 0);
  }

  // A map of scores or of rows, or one of the two reductions.
  bool HasPlace(const Node& n) const {
    const TensorId y = n.outputs[0];
    if (n.op == GraphOp::kReduce) return y == a_.max || y == a_.sum;
    const Dims& dims = view_[a_.score].dims;
    return n.op == GraphOp::kMap && (view_[y].dims == dims || view_[y].dims == RowDims(dims));
  }

  // Maps of what rows have, which need nothing else that follows from the product.
  void TakeRows() {
    const Graph& g = view_.graph();
    const Dims dims = RowDims(view_[a_.score].dims);
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      const Node& node = g.nodes[n];
      if (member_[n] || !follows_[n] || node.op != GraphOp::kMap) continue;
      const bool of_rows = std::ranges::all_of(node.inputs, [&](TensorId id) {
        return !Follows(id) ||
               (member_[view_.ProducerId(id)] && view_[id].dims == dims && id != a_.out);
      });
      if (of_rows && view_[node.outputs[0]].dims == dims) Take(static_cast<NodeId>(n));
    }
  }

  // Maps of the result, as long as nobody else reads it.
  void TakeEpilogue() {
    while (view_[a_.result].is_virtual && view_.Readers(a_.result).size() == 1) {
      const NodeId n = view_.Readers(a_.result)[0];
      const Node& node = view_.graph().nodes[n];
      const bool of_result = std::ranges::all_of(
          node.inputs, [&](TensorId id) { return id == a_.result || !Follows(id); });
      if (member_[n] || node.op != GraphOp::kMap || !of_result ||
          view_[node.outputs[0]].dims != view_[a_.result].dims)
        return;
      Take(n);
      a_.result = node.outputs[0];
    }
  }

  void Take(NodeId n) {
    member_[n] = 1;
    a_.members.push_back(n);
  }

  // Only the result and values of rows are known outside.
  bool IsClosed() {
    const Dims dims = RowDims(view_[a_.score].dims);
    for (const NodeId n : a_.members) {
      const TensorId y = view_.graph().nodes[n].outputs[0];
      const bool is_read_outside =
          !view_[y].is_virtual ||
          std::ranges::any_of(view_.Readers(y), [&](NodeId reader) { return !member_[reader]; });
      if (!is_read_outside || y == a_.result) continue;
      if (view_[y].dims != dims || y == a_.out) return false;
      a_.rows.push_back(y);
    }
    std::ranges::sort(a_.rows);
    return true;
  }

  const GraphView& view_;
  const NodeId second_;
  Attention a_;
  Factors factors_;
  bool divides_ = false;                // by the sum
  std::vector<char> follows_, member_;  // of nodes: depends on the product; taken
};

// ---- masks

constexpr ScalarOp kCompares[] = {ScalarOp::kLt, ScalarOp::kLe, ScalarOp::kGt, ScalarOp::kGe};

// A tensor and what it is multiplied by in a sum.
struct Term {
  TensorId id;
  int sign;
};

// Adds one term to the bound, or those that it is a sum of to `pending`; false where it is neither
// a place nor a number.
bool AddTerm(const GraphView& view, const Term& term, int64_t rank, IndexBound& bound,
             std::vector<Term>& pending) {
  const Tensor& t = view[term.id];
  const bool one_place = t.rank() >= 2
                             ? t.dims[t.dims.size() - 1] == 1 && t.dims[t.dims.size() - 2] == 1
                             : NumElements(t.dims) == 1;
  if (one_place) {
    bound.offsets.push_back({term.id, term.sign});
    return true;
  }
  const Node* n = view.Producer(term.id);
  if (n == nullptr) return false;
  if (n->op == GraphOp::kIota) {
    const int64_t axis = n->As<graph::IotaAttrs>().axis + rank - t.rank();
    if (axis < rank - 2) return false;
    (axis == rank - 1 ? bound.column : bound.row) += term.sign;
    return true;
  }
  if (n->op != GraphOp::kMap) return false;
  const auto& map = n->As<graph::MapAttrs>();
  const bool is_sum = !map.identity && (map.op == ScalarOp::kAdd || map.op == ScalarOp::kSub);
  if (is_sum) pending.push_back({n->inputs[1], map.op == ScalarOp::kSub ? -term.sign : term.sign});
  if (is_sum || map.identity) pending.push_back({n->inputs[0], term.sign});
  return is_sum || map.identity;
}

// Adds left - right to the bound; false where it is no sum of places and of numbers, or one of more
// terms than a group has nodes.
bool AddDifference(const GraphView& view, TensorId left, TensorId right, int64_t rank,
                   IndexBound& bound) {
  std::vector<Term> pending = {{right, -1}, {left, 1}};
  for (size_t terms = 0; !pending.empty(); ++terms) {
    const Term term = pending.back();
    pending.pop_back();
    if (terms > kMostGroupNodes || !AddTerm(view, term, rank, bound, pending)) return false;
  }
  return true;
}

bool AddBound(const GraphView& view, TensorId condition, int64_t rank,
              std::vector<IndexBound>& bounds) {
  for (const ScalarOp op : kCompares) {
    const Node* n = view.Map(condition, op);
    if (n == nullptr) continue;
    IndexBound bound{.compare = op};
    if (!AddDifference(view, n->inputs[0], n->inputs[1], rank, bound)) return false;
    const bool along_row = bound.row == 0 || bound.row == -bound.column;
    const bool is_bound =
        bound.column == 0 ? std::abs(bound.row) == 1 : std::abs(bound.column) == 1 && along_row;
    if (!is_bound) return false;
    bounds.push_back(std::move(bound));
    return true;
  }
  return false;
}

bool AddBounds(const GraphView& view, TensorId condition, int64_t rank,
               std::vector<IndexBound>& bounds) {
  std::vector<TensorId> conditions;
  AddConjuncts(view, condition, conditions);
  return std::ranges::all_of(conditions,
                             [&](TensorId id) { return AddBound(view, id, rank, bounds); });
}

}  // namespace

bool Attention::Contains(NodeId node) const { return std::ranges::binary_search(members, node); }

std::vector<Attention> FindAttention(const Graph& g) {
  std::vector<Attention> all;
  const GraphView view(g);
  std::vector<char> taken(g.nodes.size());
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (g.nodes[n].op != GraphOp::kMatmul) continue;
    auto found = Finder(view, static_cast<NodeId>(n)).Run();
    if (!found || std::ranges::any_of(found->members, [&](NodeId m) { return taken[m] != 0; }))
      continue;
    for (const NodeId m : found->members) taken[m] = 1;
    all.push_back(*std::move(found));
  }
  return all;
}

std::vector<ScoreMask> MasksOf(const Graph& g, const Attention& a) {
  const GraphView view(g);
  std::vector<ScoreMask> masks;
  for (TensorId id = a.score;;) {
    id = view.Uncast(id);
    const Node* n = view.Map(id, ScalarOp::kSelect);
    if (n == nullptr) return masks;
    const auto is_number = [&](TensorId t) { return g[t].by_value || g[t].is_constant(); };
    ScoreMask mask{.visible = n->inputs[0], .masked = id};
    mask.inverted = is_number(n->inputs[1]);
    mask.value = n->inputs[mask.inverted ? 2 : 1];
    mask.fill = n->inputs[mask.inverted ? 1 : 2];
    if (!is_number(mask.fill) || g[mask.value].dims != g[id].dims) return masks;
    masks.push_back(mask);
    id = mask.value;
  }
}

std::optional<ScoreFactor> FactorOf(const Graph& g, const Attention& a) {
  const GraphView view(g);
  const auto is_f32 = [&](TensorId id) { return g[id].dtype == DType::kF32; };
  TensorId id = a.score;
  for (const ScoreMask& mask : MasksOf(g, a)) {
    if (BoundsOf(g, mask).empty() || !is_f32(mask.masked)) return std::nullopt;
    id = mask.value;
  }
  const Node* n = view.Map(id, ScalarOp::kMul);
  if (n == nullptr || view.Uncast(id) != id || !is_f32(id)) return std::nullopt;
  const Dims& dims = g[a.score].dims;
  for (const int i : {0, 1}) {
    const TensorId value = n->inputs[i], factor = n->inputs[1 - i];
    const Dims& of = g[factor].dims;
    const bool one_place = of.size() == dims.size() && of.back() == 1 && of[of.size() - 2] == 1;
    if (one_place && g[value].dims == dims && is_f32(value))
      return ScoreFactor{.scaled = id, .value = value, .factor = factor};
  }
  return std::nullopt;
}

std::vector<ScoreMask> SpareWeightMasks(const Graph& g, const Attention& a) {
  const GraphView view(g);
  std::vector<TensorId> hidden;  // conditions without which a score is -inf
  for (const ScoreMask& mask : MasksOf(g, a))
    if (!mask.inverted && g[mask.fill].is_constant() &&
        *g[mask.fill].value == -std::numeric_limits<double>::infinity())
      AddConjuncts(view, mask.visible, hidden);
  std::vector<ScoreMask> spare;
  for (TensorId id = view.Uncast(a.weight); id != a.exp;) {
    const Node* n = view.Producer(id);
    if (n == nullptr || n->op != GraphOp::kMap) break;
    const auto of_exp =
        std::ranges::find_if(n->inputs, [&](TensorId x) { return FindExp(view, x).has_value(); });
    if (of_exp == n->inputs.end()) break;
    std::vector<TensorId> conditions;
    if (view.Map(id, ScalarOp::kSelect) != nullptr && view.IsZero(n->inputs[2]))
      AddConjuncts(view, n->inputs[0], conditions);
    const bool is_spare = !conditions.empty() && std::ranges::all_of(conditions, [&](TensorId x) {
      return std::ranges::any_of(hidden, [&](TensorId y) { return SameValue(view, x, y); });
    });
    if (is_spare) spare.push_back({.visible = n->inputs[0], .masked = id, .value = n->inputs[1]});
    id = view.Uncast(*of_exp);
  }
  std::ranges::reverse(spare);
  return spare;
}

std::vector<IndexBound> BoundsOf(const Graph& g, const ScoreMask& mask) {
  if (mask.inverted) return {};
  return BoundsOf(GraphView(g), mask.visible, g[mask.masked].rank());
}

std::vector<IndexBound> BoundsOf(const GraphView& view, TensorId condition, int64_t rank) {
  std::vector<IndexBound> bounds;
  if (!AddBounds(view, condition, rank, bounds)) return {};
  return bounds;
}

}  // namespace kiln::compiler
