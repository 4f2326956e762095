#include "compiler/patterns/attention.h"

#include <algorithm>
#include <optional>
#include <set>

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

// One attempt to find attention from a second product.
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
    if (SizeOf(view_[a_.q].dtype) == 1) TakeLargestWeight();
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

  // True if `id` is a reduction of `of` by rows, which is then `found`.
  bool Reduces(TensorId id, Combine combine, TensorId of, TensorId& found) const {
    const Node* n = view_.Reduce(id, combine);
    if (n == nullptr || !view_.Same(n->inputs[0], of) ||
        view_[n->outputs[0]].dims != RowDims(view_[of].dims))
      return false;
    found = n->outputs[0];
    return true;
  }

  bool IsMax(TensorId id) {
    if (Reduces(id, Combine::kMax, a_.score, largest_)) {
      a_.max = largest_;
      return true;
    }
    const Node* joined = view_.Map(id, ScalarOp::kMax);
    if (joined == nullptr) return false;
    for (const int i : {0, 1}) {
      const TensorId sink = joined->inputs[1 - i];
      if (view_[sink].dims.back() != 1 ||
          !Reduces(joined->inputs[i], Combine::kMax, a_.score, largest_))
        continue;
      a_.max = joined->outputs[0];
      a_.sink = sink;
      return true;
    }
    return false;
  }

  bool IsSumOf(TensorId id, TensorId exp) {
    if (a_.sink == kAbsent) {
      if (!Reduces(id, Combine::kAdd, exp, total_)) return false;
      a_.sum = total_;
      return true;
    }
    const Node* joined = view_.Map(id, ScalarOp::kAdd);
    if (joined == nullptr) return false;
    for (const int i : {0, 1})
      if (Reduces(joined->inputs[i], Combine::kAdd, exp, total_) &&
          IsShareOfSink(joined->inputs[1 - i])) {
        a_.sum = joined->outputs[0];
        return true;
      }
    return false;
  }
  // exp(sink - max)
  bool IsShareOfSink(TensorId id) const {
    const Node* exp = view_.Map(id, ScalarOp::kExp);
    const Node* sub = exp == nullptr ? nullptr : view_.Map(exp->inputs[0], ScalarOp::kSub);
    return sub != nullptr && view_.Same(sub->inputs[0], a_.sink) &&
           view_.Same(view_.Unguarded(sub->inputs[1]), a_.max);
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
      if (a_.sink != kAbsent) continue;
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

  // Collects the members between the products.
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
    if (!member_[first] || Follows(a_.v) || Follows(a_.sink)) return false;
    return FactorsAreOperands() && std::ranges::all_of(a_.members, [&](NodeId n) {
             return n == first || n == second_ || HasPlace(g.nodes[n]);
           });
  }

  bool Follows(TensorId id) const {
    const NodeId n = view_.ProducerId(id);
    return n >= 0 && follows_[n];
  }

  // True if the factors that follow from the product are made of the row's sum alone.
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
    if (n.op == GraphOp::kReduce) return y == largest_ || y == total_;
    const Dims& dims = view_[a_.score].dims;
    return n.op == GraphOp::kMap && (view_[y].dims == dims || view_[y].dims == RowDims(dims));
  }

  // Maps of what rows have, which need nothing else that follows from the product.
  void TakeRows() {
    const Graph& g = view_.graph();
    const Dims dims = RowDims(view_[a_.score].dims);
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      const Node& node = g.nodes[n];
      if (member_[n] || !follows_[n]) continue;
      if (IsScatter(node) && member_[view_.ProducerId(node.inputs[0])] &&
          view_[node.inputs[0]].dims == dims && node.inputs[0] != a_.out)
        TakeScatter(static_cast<NodeId>(n));
      if (node.op != GraphOp::kMap) continue;
      const bool of_rows = std::ranges::all_of(node.inputs, [&](TensorId id) {
        return !Follows(id) ||
               (member_[view_.ProducerId(id)] && view_[id].dims == dims && id != a_.out);
      });
      if (of_rows && view_[node.outputs[0]].dims == dims) Take(static_cast<NodeId>(n));
    }
  }

  // Takes the largest absolute value of what follows from the exponential.
  void TakeLargestWeight() {
    const Graph& g = view_.graph();
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      const std::optional<LargestOf> largest = LargestFrom(view_, static_cast<NodeId>(n));
      const NodeId from = largest ? view_.ProducerId(largest->value) : -1;
      if (from < 0 || !member_[from] || view_[largest->value].dims != view_[a_.exp].dims) continue;
      const auto factors = FindExp(view_, largest->value);
      if (!factors || factors->exp != a_.exp) continue;
      TakeLargest(*largest, a_.largest_weight);
    }
  }
  void TakeLargest(const LargestOf& largest, std::optional<LargestOf>& place) {
    if (place) return;
    place = largest;
    Take(largest.abs);
    Take(largest.reduce);
  }
  // The only reader of the result, beside the largest absolute value of 8 bits; or -1.
  NodeId ReaderOfResult() {
    NodeId reader = -1;
    for (const NodeId n : view_.Readers(a_.result)) {
      const std::optional<LargestOf> largest = LargestFrom(view_, n);
      if (largest && SizeOf(view_[a_.q].dtype) == 1 && a_.result != a_.out) {
        TakeLargest(*largest, a_.largest_result);
        if (member_[n]) continue;
      }
      if (reader >= 0) return -1;
      reader = n;
    }
    return reader;
  }

  // Maps of the result, as long as nobody else reads it.
  void TakeEpilogue() {
    while (view_[a_.result].is_virtual) {
      const NodeId n = ReaderOfResult();
      if (n < 0) return;
      const Node& node = view_.graph().nodes[n];
      const bool of_result = std::ranges::all_of(
          node.inputs, [&](TensorId id) { return id == a_.result || !Follows(id); });
      if (!member_[n] && node.inputs[0] == a_.result && IsScatter(node)) {
        TakeScatter(n);
        return;
      }
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
  void TakeScatter(NodeId n) {
    Take(n);
    a_.scatters.push_back(n);
  }
  // One whose places follow from nothing that the attention makes.
  bool IsScatter(const Node& n) const {
    return n.op == GraphOp::kScatter && Follows(n.inputs[0]) && !Follows(n.inputs[1]) &&
           !Follows(n.inputs[2]);
  }

  // Only the result and values of rows are known outside.
  bool IsClosed() {
    const Dims dims = RowDims(view_[a_.score].dims);
    for (const NodeId n : a_.members) {
      const TensorId y = view_.graph().nodes[n].outputs[0];
      const bool is_read_outside =
          !view_[y].is_virtual ||
          std::ranges::any_of(view_.Readers(y), [&](NodeId reader) { return !member_[reader]; });
      const bool scatters = view_.graph().nodes[n].op == GraphOp::kScatter;
      if (scatters && !FollowsFromBoth(view_.graph().nodes[n].inputs[0])) return false;
      const auto is = [y](const std::optional<LargestOf>& largest) {
        return largest && largest->result == y;
      };
      if (is(a_.largest_weight) || is(a_.largest_result)) continue;
      if (!is_read_outside || y == a_.result || scatters) continue;
      if (view_[y].dims != dims || y == a_.out || !FollowsFromBoth(y)) return false;
      a_.rows.push_back(y);
    }
    std::ranges::sort(a_.rows);
    return true;
  }
  // Engines have the maximum and the sum with the sink in them, and nothing before that.
  bool FollowsFromBoth(TensorId id) const {
    if (id == a_.result) return true;
    std::vector<TensorId> pending = {id};
    std::set<TensorId> seen;
    while (!pending.empty()) {
      const TensorId at = pending.back();
      pending.pop_back();
      if (at == a_.max || at == a_.sum || !Follows(at) || !seen.insert(at).second) continue;
      if (at == largest_ || at == total_) return false;
      const Node* n = view_.Producer(at);
      pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
    }
    return true;
  }

  const GraphView& view_;
  const NodeId second_;
  Attention a_;
  Factors factors_;
  bool divides_ = false;                          // by the sum
  TensorId largest_ = kAbsent, total_ = kAbsent;  // the two reductions
  std::vector<char> follows_, member_;            // of nodes: depends on the product; taken
};

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
    auto found = Finder(view, static_cast<NodeId>(n)).Run();
    if (!found || std::ranges::any_of(found->members, [&](NodeId m) { return taken[m] != 0; }))
      continue;
    for (const NodeId m : found->members) taken[m] = 1;
    all.push_back(*std::move(found));
  }
  return all;
}

}  // namespace kiln::compiler
