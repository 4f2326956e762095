#include "compiler/patterns/attention.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "compiler/group_limits.h"
#include "compiler/patterns/attention_factors.h"
#include "compiler/patterns/graph_view.h"
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

// ---- the softmax

// `id` where it is a reduction of `of` by rows.
std::optional<TensorId> ReductionOf(const GraphView& view, TensorId id, Combine combine,
                                    TensorId of) {
  const Node* n = view.Reduce(id, combine);
  if (n == nullptr || !view.Same(n->inputs[0], of) ||
      view[n->outputs[0]].dims != RowDims(view[of].dims))
    return std::nullopt;
  return n->outputs[0];
}

// A value of rows with the sink in it, where there is one, and the reduction that it is made of.
struct JoinedReduction {
  TensorId value = kAbsent, reduction = kAbsent;
  TensorId sink = kAbsent;
};

std::optional<JoinedReduction> MaxOf(const GraphView& view, TensorId id, TensorId score) {
  if (const auto largest = ReductionOf(view, id, Combine::kMax, score))
    return JoinedReduction{*largest, *largest};
  const Node* joined = view.Map(id, ScalarOp::kMax);
  if (joined == nullptr) return std::nullopt;
  for (const int i : {0, 1}) {
    const TensorId sink = joined->inputs[1 - i];
    if (view[sink].dims.back() != 1) continue;
    if (const auto largest = ReductionOf(view, joined->inputs[i], Combine::kMax, score))
      return JoinedReduction{joined->outputs[0], *largest, sink};
  }
  return std::nullopt;
}

// Whether `id` is exp(sink - max).
bool IsShareOfSink(const GraphView& view, TensorId id, const JoinedReduction& max) {
  const Node* exp = view.Map(id, ScalarOp::kExp);
  const Node* sub = exp == nullptr ? nullptr : view.Map(exp->inputs[0], ScalarOp::kSub);
  return sub != nullptr && view.Same(sub->inputs[0], max.sink) &&
         view.Same(view.Unguarded(sub->inputs[1]), max.value);
}

std::optional<JoinedReduction> SumOf(const GraphView& view, TensorId id, TensorId exp,
                                     const JoinedReduction& max) {
  if (max.sink == kAbsent) {
    const auto total = ReductionOf(view, id, Combine::kAdd, exp);
    if (!total) return std::nullopt;
    return JoinedReduction{*total, *total};
  }
  const Node* joined = view.Map(id, ScalarOp::kAdd);
  if (joined == nullptr) return std::nullopt;
  for (const int i : {0, 1}) {
    const auto total = ReductionOf(view, joined->inputs[i], Combine::kAdd, exp);
    if (total && IsShareOfSink(view, joined->inputs[1 - i], max))
      return JoinedReduction{joined->outputs[0], *total, max.sink};
  }
  return std::nullopt;
}

// The weights as a function of scores.
struct Softmax {
  TensorId score;
  Factors factors;
  JoinedReduction max = {}, sum = {};
  TensorId divisor = kAbsent;  // the sum, or what divides instead of it; absent: nothing does
};

// The sum that weights are divided by: exactly one factor is the row's sum, below a fraction.
std::optional<Softmax> WithDivisor(const GraphView& view, Softmax softmax) {
  int sums = 0;
  const auto take = [&](TensorId id) {
    const auto sum = SumOf(view, view.Unguarded(id), softmax.factors.exp, softmax.max);
    if (!sum) return;
    softmax.sum = *sum;
    softmax.divisor = id;
    ++sums;
  };
  for (const TensorId id : softmax.factors.divided) take(id);
  for (const TensorId id : softmax.factors.multiplied)
    if (const Node* recip = view.Map(id, ScalarOp::kRecip)) take(recip->inputs[0]);
  if (sums != 1) return std::nullopt;
  return softmax;
}

// shift = max + log(sum of exp(score - max))
std::optional<Softmax> WithLogSumExp(const GraphView& view, TensorId shift, Softmax softmax) {
  const Node* add = view.Map(shift, ScalarOp::kAdd);
  if (add == nullptr) return std::nullopt;
  for (int i : {0, 1}) {
    const Node* log = view.Map(add->inputs[1 - i], ScalarOp::kLog);
    const auto max = log == nullptr ? std::nullopt : MaxOf(view, add->inputs[i], softmax.score);
    if (!max || max->sink != kAbsent) continue;
    const Node* sum = view.Reduce(log->inputs[0], Combine::kAdd);
    if (sum == nullptr) continue;
    const Node* exp = view.Map(sum->inputs[0], ScalarOp::kExp);
    const Node* sub = exp == nullptr ? nullptr : view.Map(exp->inputs[0], ScalarOp::kSub);
    if (sub == nullptr || !view.Same(sub->inputs[0], softmax.score) ||
        !view.Same(view.Unguarded(sub->inputs[1]), max->value))
      continue;
    const auto total = SumOf(view, log->inputs[0], exp->outputs[0], *max);
    if (!total) continue;
    softmax.max = *max;
    softmax.sum = *total;
    return softmax;
  }
  return std::nullopt;
}

std::optional<Softmax> SoftmaxOf(const GraphView& view, TensorId weight) {
  const auto factors = FindExp(view, weight);
  if (!factors || view[factors->exp].rank() < 2) return std::nullopt;
  const Node* shifted = view.Map(view.Producer(factors->exp)->inputs[0], ScalarOp::kSub);
  if (shifted == nullptr) return std::nullopt;
  Softmax softmax{.score = view.Uncast(shifted->inputs[0]), .factors = *factors};
  if (view[softmax.score].dims != view[factors->exp].dims) return std::nullopt;
  const TensorId shift = view.Unguarded(shifted->inputs[1]);
  const auto max = MaxOf(view, shift, softmax.score);
  if (!max) return WithLogSumExp(view, shift, std::move(softmax));
  softmax.max = *max;
  return WithDivisor(view, std::move(softmax));
}

// The one matmul of the scores' extents that they are computed from, if it is a plain one.
const Node* ProductOf(const GraphView& view, TensorId score) {
  const Dims& dims = view[score].dims;
  const Node* product = nullptr;
  std::vector<TensorId> pending = {score};
  std::vector<char> seen(view.graph().tensors.size());
  while (!pending.empty()) {
    const TensorId id = pending.back();
    pending.pop_back();
    if (seen[id]) continue;
    seen[id] = 1;
    const Node* n = view.Producer(id);
    if (n == nullptr) continue;
    if (n->op == GraphOp::kMatmul && view[id].dims == dims) {
      if (product != nullptr || !IsPlainMatmul(*n)) return nullptr;
      product = n;
    } else if (n->op == GraphOp::kMap) {
      pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
    }
  }
  return product;
}

// ---- members

// The two products and the softmax between them, and the nodes that depend on the first.
struct Chain {
  const GraphView& view;
  NodeId first, second;
  Softmax softmax;
  std::vector<char> follows;

  const Node& node(size_t n) const { return view.graph().nodes[n]; }
  const Dims& score_dims() const { return view[softmax.score].dims; }
  bool Follows(TensorId id) const {
    const NodeId n = view.ProducerId(id);
    return n >= 0 && follows[n];
  }
};

std::vector<char> FollowersOf(const GraphView& view, NodeId first) {
  const std::vector<Node>& nodes = view.graph().nodes;
  std::vector<char> follows(nodes.size());
  for (size_t n = 0; n < nodes.size(); ++n)
    follows[n] =
        static_cast<NodeId>(n) == first || std::ranges::any_of(nodes[n].inputs, [&](TensorId id) {
          const NodeId from = view.ProducerId(id);
          return from >= 0 && follows[from];
        });
  return follows;
}

// An attention that grows, and which nodes are members of it.
struct Draft {
  Attention a;
  std::vector<char> is_member;
};
Draft With(Draft draft, NodeId n) {
  draft.is_member[n] = 1;
  draft.a.members.push_back(n);
  return draft;
}
Draft WithScatter(Draft draft, NodeId n) {
  draft.a.scatters.push_back(n);
  return With(std::move(draft), n);
}

// True if no factor of the exponential follows from the product but those made of the row's sum.
bool FactorsAreOperands(const Chain& chain) {
  const Factors& factors = chain.softmax.factors;
  const auto is_operand = [&](TensorId id) {
    return !chain.Follows(id) || chain.view[id].dims == RowDims(chain.view[factors.exp].dims);
  };
  int rows = 0;
  for (const auto* list : {&factors.multiplied, &factors.divided})
    for (const TensorId id : *list) {
      if (!is_operand(id)) return false;
      rows += chain.Follows(id);
    }
  return rows == (chain.softmax.divisor != kAbsent ? 1 : 0);
}

// A map of scores or of rows, or one of the two reductions.
bool HasPlace(const Chain& chain, const Node& n) {
  const TensorId y = n.outputs[0];
  if (n.op == GraphOp::kReduce)
    return y == chain.softmax.max.reduction || y == chain.softmax.sum.reduction;
  const Dims &dims = chain.score_dims(), &of = chain.view[y].dims;
  return n.op == GraphOp::kMap && (of == dims || of == RowDims(dims));
}

// The operations between the products; nothing where they are no attention's.
std::optional<Draft> BetweenProducts(const Chain& chain, Attention a) {
  Draft draft{std::move(a), std::vector<char>(chain.view.graph().nodes.size())};
  std::vector<NodeId> pending = {chain.second};
  while (!pending.empty()) {
    const NodeId n = pending.back();
    pending.pop_back();
    if (draft.is_member[n]) continue;
    draft = With(std::move(draft), n);
    if (n == chain.first) continue;
    for (const TensorId id : chain.node(n).inputs)
      if (chain.Follows(id)) pending.push_back(chain.view.ProducerId(id));
  }
  if (!draft.is_member[chain.first] || chain.Follows(draft.a.v) || chain.Follows(draft.a.sink))
    return std::nullopt;
  const bool have_places = std::ranges::all_of(draft.a.members, [&](NodeId n) {
    return n == chain.first || n == chain.second || HasPlace(chain, chain.node(n));
  });
  if (!FactorsAreOperands(chain) || !have_places) return std::nullopt;
  return draft;
}

// Whether a node is a scatter whose places follow from nothing that the attention makes.
bool IsScatter(const Chain& chain, const Node& n) {
  return n.op == GraphOp::kScatter && chain.Follows(n.inputs[0]) && !chain.Follows(n.inputs[1]) &&
         !chain.Follows(n.inputs[2]);
}

// Maps of what rows have, which need nothing else that follows from the product.
Draft WithRows(const Chain& chain, Draft draft) {
  const GraphView& view = chain.view;
  const Dims dims = RowDims(chain.score_dims());
  const auto is_row = [&](TensorId id) {
    return draft.is_member[view.ProducerId(id)] && view[id].dims == dims && id != draft.a.out;
  };
  for (size_t n = 0; n < view.graph().nodes.size(); ++n) {
    const Node& node = chain.node(n);
    if (draft.is_member[n] || !chain.follows[n]) continue;
    if (IsScatter(chain, node) && is_row(node.inputs[0]))
      draft = WithScatter(std::move(draft), static_cast<NodeId>(n));
    if (node.op != GraphOp::kMap) continue;
    const bool of_rows = std::ranges::all_of(
        node.inputs, [&](TensorId id) { return !chain.Follows(id) || is_row(id); });
    if (of_rows && view[node.outputs[0]].dims == dims)
      draft = With(std::move(draft), static_cast<NodeId>(n));
  }
  return draft;
}

Draft WithLargest(const LargestOf& largest, std::optional<LargestOf> Attention::* place,
                  Draft draft) {
  if (draft.a.*place) return draft;
  draft.a.*place = largest;
  return With(With(std::move(draft), largest.abs), largest.reduce);
}

// The largest absolute value of what follows from the exponential.
Draft WithLargestWeight(const Chain& chain, Draft draft) {
  const GraphView& view = chain.view;
  for (size_t n = 0; n < view.graph().nodes.size(); ++n) {
    const std::optional<LargestOf> largest = LargestFrom(view, static_cast<NodeId>(n));
    const NodeId from = largest ? view.ProducerId(largest->value) : -1;
    if (from < 0 || !draft.is_member[from] || view[largest->value].dims != view[draft.a.exp].dims)
      continue;
    const auto factors = FindExp(view, largest->value);
    if (!factors || factors->exp != draft.a.exp) continue;
    draft = WithLargest(*largest, &Attention::largest_weight, std::move(draft));
  }
  return draft;
}

// The only node that reads the result, beside the largest absolute value of 8 bits, which joins
// the draft; or -1.
std::pair<Draft, NodeId> ReaderOfResult(const GraphView& view, Draft draft) {
  const bool has_largest = SizeOf(view[draft.a.q].dtype) == 1 && draft.a.result != draft.a.out;
  NodeId reader = -1;
  for (const NodeId n : view.Readers(draft.a.result)) {
    if (const auto largest = has_largest ? LargestFrom(view, n) : std::nullopt) {
      draft = WithLargest(*largest, &Attention::largest_result, std::move(draft));
      if (draft.is_member[n]) continue;
    }
    if (reader >= 0) return {std::move(draft), -1};
    reader = n;
  }
  return {std::move(draft), reader};
}

// Maps of the result, as long as nobody else reads it.
Draft WithEpilogue(const Chain& chain, Draft draft) {
  const GraphView& view = chain.view;
  while (view[draft.a.result].is_virtual) {
    const TensorId result = draft.a.result;
    NodeId n = -1;
    std::tie(draft, n) = ReaderOfResult(view, std::move(draft));
    if (n < 0) break;
    const Node& node = chain.node(n);
    const bool of_result = std::ranges::all_of(
        node.inputs, [&](TensorId id) { return id == result || !chain.Follows(id); });
    if (!draft.is_member[n] && node.inputs[0] == result && IsScatter(chain, node))
      return WithScatter(std::move(draft), n);
    if (draft.is_member[n] || node.op != GraphOp::kMap || !of_result ||
        view[node.outputs[0]].dims != view[result].dims)
      break;
    draft = With(std::move(draft), n);
    draft.a.result = node.outputs[0];
  }
  return draft;
}

// Engines have the maximum and the sum with the sink in them, and nothing before that.
bool FollowsFromBoth(const Chain& chain, const Attention& a, TensorId id) {
  if (id == a.result) return true;
  std::vector<TensorId> pending = {id};
  std::set<TensorId> seen;
  while (!pending.empty()) {
    const TensorId at = pending.back();
    pending.pop_back();
    if (at == a.max || at == a.sum || !chain.Follows(at) || !seen.insert(at).second) continue;
    if (at == chain.softmax.max.reduction || at == chain.softmax.sum.reduction) return false;
    const Node* n = chain.view.Producer(at);
    pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
  }
  return true;
}

// The values of rows that are read outside; nothing where anything else is, but the result.
std::optional<std::vector<TensorId>> RowsReadOutside(const Chain& chain, const Draft& draft) {
  const Attention& a = draft.a;
  const Dims dims = RowDims(chain.score_dims());
  std::vector<TensorId> rows;
  for (const NodeId n : a.members) {
    const TensorId y = chain.node(n).outputs[0];
    const bool is_read_outside =
        !chain.view[y].is_virtual || std::ranges::any_of(chain.view.Readers(y), [&](NodeId reader) {
          return !draft.is_member[reader];
        });
    const bool scatters = chain.node(n).op == GraphOp::kScatter;
    if (scatters && !FollowsFromBoth(chain, a, chain.node(n).inputs[0])) return std::nullopt;
    const auto is = [y](const std::optional<LargestOf>& largest) {
      return largest && largest->result == y;
    };
    if (is(a.largest_weight) || is(a.largest_result)) continue;
    if (!is_read_outside || y == a.result || scatters) continue;
    if (chain.view[y].dims != dims || y == a.out || !FollowsFromBoth(chain, a, y))
      return std::nullopt;
    rows.push_back(y);
  }
  std::ranges::sort(rows);
  return rows;
}

// The attention that this node is the second product of.
std::optional<Attention> AttentionAt(const GraphView& view, NodeId second) {
  const Node& node = view.graph().nodes[second];
  if (!IsPlainMatmul(node)) return std::nullopt;
  if (view[node.inputs[0]].dims.back() == 1) return std::nullopt;  // one key: no softmax
  const auto softmax = SoftmaxOf(view, node.inputs[0]);
  const Node* product = softmax ? ProductOf(view, softmax->score) : nullptr;
  if (product == nullptr) return std::nullopt;
  const NodeId first = view.ProducerId(product->outputs[0]);
  const Chain chain{.view = view,
                    .first = first,
                    .second = second,
                    .softmax = *softmax,
                    .follows = FollowersOf(view, first)};
  auto draft = BetweenProducts(chain, {.q = product->inputs[0],
                                       .k = product->inputs[1],
                                       .v = node.inputs[1],
                                       .product = product->outputs[0],
                                       .score = softmax->score,
                                       .exp = softmax->factors.exp,
                                       .weight = node.inputs[0],
                                       .out = node.outputs[0],
                                       .result = node.outputs[0],
                                       .max = softmax->max.value,
                                       .sum = softmax->sum.value,
                                       .sink = softmax->max.sink,
                                       .divisor = softmax->divisor});
  if (!draft) return std::nullopt;
  Draft all = WithRows(chain, *std::move(draft));
  if (SizeOf(view[all.a.q].dtype) == 1) all = WithLargestWeight(chain, std::move(all));
  all = WithEpilogue(chain, std::move(all));
  auto rows = RowsReadOutside(chain, all);
  if (!rows) return std::nullopt;
  all.a.rows = *std::move(rows);
  std::ranges::sort(all.a.members);
  return std::move(all.a);
}

}  // namespace

bool Attention::Contains(NodeId node) const { return std::ranges::binary_search(members, node); }

const Node* ScatterOf(const Graph& g, const Attention& a, TensorId value) {
  for (const NodeId n : a.scatters)
    if (g.nodes[n].inputs[0] == value) return &g.nodes[n];
  return nullptr;
}

std::vector<Attention> FindAttention(const Graph& g) {
  std::vector<Attention> all;
  const GraphView view(g);
  std::vector<char> taken(g.nodes.size());
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (g.nodes[n].op != GraphOp::kMatmul) continue;
    auto found = AttentionAt(view, static_cast<NodeId>(n));
    if (!found || std::ranges::any_of(found->members, [&](NodeId m) { return taken[m] != 0; }))
      continue;
    for (const NodeId m : found->members) taken[m] = 1;
    all.push_back(*std::move(found));
  }
  return all;
}

}  // namespace kiln::compiler
