// The masks of an attention: which they are, what bounds they have, and what they make superfluous.
#include <algorithm>
#include <limits>
#include <set>

#include "compiler/group_limits.h"
#include "compiler/patterns/attention.h"
#include "compiler/patterns/attention_factors.h"
#include "compiler/patterns/graph_view.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;

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
  ScoreFactor found{.scaled = id, .value = id};
  const Dims& dims = g[a.score].dims;
  // Takes the value before a factor where the value is a product with one; false where it is none.
  const auto take = [&] {
    const Node* n = view.Map(found.value, ScalarOp::kMul);
    if (n == nullptr || view.Uncast(found.value) != found.value || !is_f32(found.value))
      return false;
    for (const int i : {0, 1}) {
      const TensorId value = n->inputs[i], factor = n->inputs[1 - i];
      const Dims& of = g[factor].dims;
      const bool one_place = of.size() == dims.size() && of.back() == 1 && of[of.size() - 2] == 1;
      if (!one_place || g[value].dims != dims || !is_f32(value)) continue;
      found.factors.push_back(factor);
      found.value = value;
      return true;
    }
    return false;
  };
  while (take()) {
  }
  return found.factors.empty() ? std::nullopt : std::optional(found);
}

namespace {

// Conditions without which a score is -inf; with `inside` those that hold where known masks let
// through.
std::vector<TensorId> HiddenUnless(const GraphView& view, const Attention& a, bool inside) {
  const Graph& g = view.graph();
  std::vector<TensorId> conditions;
  for (const ScoreMask& mask : MasksOf(g, a))
    if (inside ? !BoundsOf(g, mask).empty()
               : !mask.inverted && g[mask.fill].is_constant() &&
                     *g[mask.fill].value == -std::numeric_limits<double>::infinity())
      AddConjuncts(view, mask.visible, conditions);
  return conditions;
}

// True if a selection chooses its second operand, or something else where a score is hidden.
bool IsSpare(const GraphView& view, const Node& select, const std::vector<TensorId>& hidden) {
  std::vector<TensorId> conditions;
  AddConjuncts(view, select.inputs[0], conditions);
  return std::ranges::all_of(conditions, [&](TensorId x) {
    return std::ranges::any_of(hidden, [&](TensorId y) { return SameValue(view, x, y); });
  });
}

}  // namespace

std::vector<ScoreMask> SpareScoreMasks(const Graph& g, const Attention& a, bool inside) {
  const GraphView view(g);
  const std::vector<TensorId> hidden = HiddenUnless(view, a, inside);
  std::vector<ScoreMask> spare;
  std::set<TensorId> own;  // that hide the scores
  for (const ScoreMask& mask : MasksOf(g, a)) own.insert(mask.masked);
  for (const NodeId n : a.members) {
    const Node& node = g.nodes[n];
    const TensorId y = node.outputs[0];
    if (y == a.exp) break;
    const bool is_select = node.op == GraphOp::kMap && view.Map(y, ScalarOp::kSelect) == &node;
    if (!is_select || own.contains(y) || g[y].dims != g[a.score].dims ||
        g[node.inputs[1]].dims != g[y].dims || !IsSpare(view, node, hidden))
      continue;
    spare.push_back({.visible = node.inputs[0], .masked = y, .value = node.inputs[1]});
  }
  return spare;
}

std::vector<ScoreMask> SpareWeightMasks(const Graph& g, const Attention& a, bool inside) {
  const GraphView view(g);
  const std::vector<TensorId> hidden = HiddenUnless(view, a, inside);
  std::vector<ScoreMask> spare;
  for (TensorId id = view.Uncast(a.weight); id != a.exp;) {
    const Node* n = view.Producer(id);
    if (n == nullptr || n->op != GraphOp::kMap) break;
    const auto of_exp =
        std::ranges::find_if(n->inputs, [&](TensorId x) { return FindExp(view, x).has_value(); });
    if (of_exp == n->inputs.end()) break;
    const bool is_spare = view.Map(id, ScalarOp::kSelect) != nullptr && view.IsZero(n->inputs[2]) &&
                          IsSpare(view, *n, hidden);
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
