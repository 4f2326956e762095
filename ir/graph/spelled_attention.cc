#include "ir/graph/spelled_attention.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace kiln::graph {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The most tensors that are looked at on the way from or to a product.
constexpr size_t kMostSteps = 256;

Dims RowDims(Dims dims) {
  dims.back() = 1;
  return dims;
}

// A client's graph with the questions by which patterns are found. Casts are pointwise identities.
class View {
 public:
  explicit View(const Graph& g) : g_(g), producers_(Producers(g)), readers_(Consumers(g)) {}

  const Tensor& operator[](TensorId id) const { return g_[id]; }
  const Node& node(NodeId n) const { return g_.nodes[static_cast<size_t>(n)]; }
  const Node* Producer(TensorId id) const {
    const NodeId n = ProducerId(id);
    return n < 0 ? nullptr : &node(n);
  }
  NodeId ProducerId(TensorId id) const { return producers_[static_cast<size_t>(id)]; }
  static bool Is(const Node& n, PointwiseMode mode) {
    return n.op == GraphOp::kPointwise && n.As<PointwiseAttrs>().mode == mode;
  }
  bool IsCast(const Node& n) const {
    return Is(n, PointwiseMode::kIdentity) && g_[n.inputs[0]].dims == g_[n.outputs[0]].dims;
  }
  TensorId Uncast(TensorId id) const {
    for (const Node* n = Producer(id); n != nullptr && IsCast(*n); n = Producer(id))
      id = n->inputs[0];
    return id;
  }
  bool Same(TensorId a, TensorId b) const { return Uncast(a) == Uncast(b); }
  const Node* Pointwise(TensorId id, PointwiseMode mode) const {
    const Node* n = Producer(Uncast(id));
    return n != nullptr && Is(*n, mode) ? n : nullptr;
  }
  const Node* Reduction(TensorId id, ReductionMode mode) const {
    const Node* n = Producer(Uncast(id));
    const bool is_one = n != nullptr && n->op == GraphOp::kReduction;
    return is_one && n->As<ReductionAttrs>().mode == mode ? n : nullptr;
  }
  // The readers of a tensor and of its casts.
  std::vector<NodeId> Readers(TensorId id) const {
    std::vector<NodeId> found;
    std::vector<TensorId> pending = {id};
    while (!pending.empty()) {
      const TensorId at = pending.back();
      pending.pop_back();
      for (const NodeId n : readers_[static_cast<size_t>(at)]) {
        if (IsCast(node(n)))
          pending.push_back(node(n).outputs[0]);
        else
          found.push_back(n);
      }
    }
    std::ranges::sort(found);
    return found;
  }
  // True if a tensor is a product, or made of one of its extents place by place.
  bool FollowsFromProduct(TensorId id) const {
    std::set<TensorId> seen = {id};
    std::vector<TensorId> pending = {id};
    while (!pending.empty() && seen.size() < kMostSteps) {
      const TensorId at = pending.back();
      pending.pop_back();
      const Node* n = Producer(at);
      if (n == nullptr) continue;
      if (n->op == GraphOp::kMatmul) return true;
      if (n->op != GraphOp::kPointwise) continue;
      for (const TensorId x : n->inputs)
        if (x != kAbsent && g_[x].dims == g_[id].dims && seen.insert(x).second)
          pending.push_back(x);
    }
    return false;
  }
  // True if a product reads it, or what is made of it by pointwise operations and reductions.
  bool LeadsToProduct(TensorId id) const {
    std::set<TensorId> seen = {id};
    std::vector<TensorId> pending = {id};
    while (!pending.empty() && seen.size() < kMostSteps) {
      const TensorId at = pending.back();
      pending.pop_back();
      for (const NodeId reader : readers_[static_cast<size_t>(at)]) {
        const Node& n = node(reader);
        if (n.op == GraphOp::kMatmul) return true;
        const bool goes_on = n.op == GraphOp::kPointwise || n.op == GraphOp::kReduction;
        if (goes_on && seen.insert(n.outputs[0]).second) pending.push_back(n.outputs[0]);
      }
    }
    return false;
  }
  // One value for each row of the scores: exactly, or broadcast.
  bool IsOfRows(TensorId id, TensorId score) const {
    return g_[id].dims == RowDims(g_[score].dims);
  }
  bool IsOfHeads(TensorId id) const {
    const Dims& dims = g_[id].dims;
    return dims.size() >= 2 && dims.back() == 1 && dims[dims.size() - 2] == 1;
  }

 private:
  const Graph& g_;
  const std::vector<NodeId> producers_;
  const std::vector<std::vector<NodeId>> readers_;
};

// Collects changes: nodes before others, and other operands of these. The graph's nodes stay as
// they are until all is known.
class Rewriter {
 public:
  explicit Rewriter(Graph& g) : g_(g) {}

  struct Result {
    DType dtype;
    Dims dims;
  };
  // Appends a node that is to stand before `n`.
  TensorId Add(NodeId n, PointwiseAttrs attrs, std::vector<TensorId> inputs, const Result& result,
               const char* name) {
    Tensor y;
    y.name = name;
    y.dtype = result.dtype;
    y.strides = PackedStrides(result.dims);
    y.dims = result.dims;
    y.is_virtual = true;
    const TensorId id = g_.AddTensor(std::move(y));
    const DType compute =
        std::ranges::any_of(inputs, [&](TensorId x) { return g_[x].dtype == DType::kF64; })
            ? DType::kF64
            : DType::kF32;
    before_[n].push_back({.op = GraphOp::kPointwise,
                          .inputs = std::move(inputs),
                          .outputs = {id},
                          .compute = compute,
                          .attrs = attrs,
                          .name = ""});
    return id;
  }
  TensorId Add(NodeId n, PointwiseMode mode, std::vector<TensorId> inputs, const Result& result,
               const char* name) {
    PointwiseAttrs attrs;
    attrs.mode = mode;
    return Add(n, attrs, std::move(inputs), result, name);
  }
  // Before node n: where `of` is `value` the number `instead`, elsewhere `otherwise`.
  TensorId SelectOfRows(NodeId n, TensorId of, double value, double instead, TensorId otherwise,
                        const char* name) {
    const Dims dims = g_[otherwise].dims;
    const DType dtype = g_[otherwise].dtype;
    const auto rank = static_cast<int64_t>(dims.size());
    const TensorId is_value = Add(n, PointwiseMode::kCmpEq, {of, Number(value, rank, dtype)},
                                  {.dtype = DType::kBool, .dims = dims}, "sees_none");
    return Add(n, PointwiseMode::kBinarySelect, {Number(instead, rank, dtype), otherwise, is_value},
               {.dtype = dtype, .dims = dims}, name);
  }
  // The first word on an operand counts: patterns that overlap write the same.
  void Replace(NodeId n, size_t input, TensorId by) { inputs_.emplace(std::pair{n, input}, by); }

  bool Replaces(NodeId n, size_t input) const { return inputs_.contains({n, input}); }

  // Returns whether there is anything to write.
  bool Finish() {
    if (inputs_.empty()) return false;
    std::vector<Node> nodes;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (const auto first = before_.find(static_cast<NodeId>(n)); first != before_.end())
        for (Node& node : first->second) nodes.push_back(std::move(node));
      nodes.push_back(std::move(g_.nodes[n]));
      for (size_t i = 0; i < nodes.back().inputs.size(); ++i)
        if (const auto by = inputs_.find({static_cast<NodeId>(n), i}); by != inputs_.end())
          nodes.back().inputs[i] = by->second;
    }
    g_.nodes = std::move(nodes);
    return true;
  }

 private:
  TensorId Number(double value, int64_t rank, DType dtype) {
    Tensor number;
    number.name = "number";
    number.dtype = dtype;
    number.dims = number.strides = Dims(static_cast<size_t>(rank), 1);
    number.by_value = true;
    number.value = value;
    return g_.AddTensor(std::move(number));
  }

  Graph& g_;
  std::map<NodeId, std::vector<Node>> before_;
  std::map<std::pair<NodeId, size_t>, TensorId> inputs_;
};

class Settler {
 public:
  explicit Settler(Graph& g) : g_(g), view_(g), out_(g) {}

  bool Run() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (!View::Is(node, PointwiseMode::kSub) || out_.Replaces(static_cast<NodeId>(n), 1))
        continue;
      const TensorId score = node.inputs[0], shift = node.inputs[1];
      if (view_[score].dims.size() < 2 || view_[node.outputs[0]].dims != view_[score].dims ||
          !view_.IsOfRows(shift, score))
        continue;
      if (const auto max = MaximumOf(shift, score))
        SettleForward(static_cast<NodeId>(n), *max);
      else
        SettleBackward(static_cast<NodeId>(n));
    }
    return out_.Finish();
  }

 private:
  struct RowMaximum {
    TensorId value;     // of the scores, and of the sink
    NodeId joins = -1;  // the node that takes the sink in, as its operand `sink_at`
    size_t sink_at = 0;
  };

  // `shift` as the maximum of the scores' rows, or as that plus the logarithm of a sum.
  std::optional<RowMaximum> MaximumOf(TensorId shift, TensorId score) const {
    if (const Node* sum = view_.Pointwise(shift, PointwiseMode::kAdd)) {
      for (const size_t i : {0, 1})
        if (view_.Pointwise(sum->inputs[1 - i], PointwiseMode::kLog) != nullptr)
          return PlainMaximumOf(sum->inputs[i], score);
      return std::nullopt;
    }
    return PlainMaximumOf(shift, score);
  }
  std::optional<RowMaximum> PlainMaximumOf(TensorId id, TensorId score) const {
    const auto is_maximum = [&](TensorId x) {
      const Node* max = view_.Reduction(x, ReductionMode::kMax);
      return max != nullptr && view_.Same(max->inputs[0], score) && view_.IsOfRows(x, score);
    };
    if (is_maximum(id)) return RowMaximum{.value = id};
    const Node* joined = view_.Pointwise(id, PointwiseMode::kMax);
    if (joined == nullptr) return std::nullopt;
    for (const size_t i : {0, 1})
      if (is_maximum(joined->inputs[i]) && view_.IsOfHeads(joined->inputs[1 - i]))
        return RowMaximum{
            .value = id, .joins = view_.ProducerId(view_.Uncast(id)), .sink_at = 1 - i};
    return std::nullopt;
  }

  void SettleForward(NodeId sub, const RowMaximum& max) {
    const Node& node = view_.node(sub);
    const TensorId score = node.inputs[0], shift = node.inputs[1];
    const std::vector<TensorId> exps = ExponentialsOf(node.outputs[0]);
    const bool is_attention =
        view_.FollowsFromProduct(score) &&
        std::ranges::any_of(exps, [&](TensorId exp) { return view_.LeadsToProduct(exp); });
    if (!is_attention) return;
    const std::vector<NodeId> subtractions = Subtractions(shift);
    if (max.joins >= 0) SettleSink(score, max, subtractions);
    const TensorId finite =
        out_.SelectOfRows(subtractions.front(), max.value, -kInfinity, 0, shift, "shift");
    for (const NodeId n : subtractions) out_.Replace(n, 1, finite);
    for (const TensorId exp : exps)
      for (const TensorId sum : SumsOf(exp, shift)) SettleDivisor(sum, score);
  }

  std::vector<TensorId> ExponentialsOf(TensorId shifted) const {
    std::vector<TensorId> exps;
    for (const NodeId n : view_.Readers(shifted))
      if (View::Is(view_.node(n), PointwiseMode::kExp)) exps.push_back(view_.node(n).outputs[0]);
    return exps;
  }
  // All nodes x - shift.
  std::vector<NodeId> Subtractions(TensorId shift) const {
    std::vector<NodeId> found;
    for (const NodeId n : view_.Readers(view_.Uncast(shift)))
      if (View::Is(view_.node(n), PointwiseMode::kSub) &&
          view_.Same(view_.node(n).inputs[1], shift))
        found.push_back(n);
    return found;
  }
  // The sums of a row's exponentials, without and with the sink's.
  std::vector<TensorId> SumsOf(TensorId exp, TensorId shift) const {
    std::vector<TensorId> sums;
    for (const NodeId n : view_.Readers(exp)) {
      const Node& node = view_.node(n);
      if (node.op != GraphOp::kReduction || node.As<ReductionAttrs>().mode != ReductionMode::kAdd ||
          !view_.IsOfRows(node.outputs[0], exp))
        continue;
      const TensorId sum = node.outputs[0];
      sums.push_back(sum);
      for (const NodeId reader : view_.Readers(sum)) {
        const Node& add = view_.node(reader);
        if (!View::Is(add, PointwiseMode::kAdd)) continue;
        const TensorId other = add.inputs[view_.Same(add.inputs[0], sum) ? 1 : 0];
        const Node* share = view_.Pointwise(other, PointwiseMode::kExp);
        const Node* sub =
            share == nullptr ? nullptr : view_.Pointwise(share->inputs[0], PointwiseMode::kSub);
        if (sub != nullptr && view_.Same(sub->inputs[1], shift)) sums.push_back(add.outputs[0]);
      }
    }
    return sums;
  }

  void SettleDivisor(TensorId sum, TensorId score) {
    for (const NodeId n : view_.Readers(sum)) {
      const Node& node = view_.node(n);
      const bool divides = View::Is(node, PointwiseMode::kDiv) && view_.Same(node.inputs[1], sum) &&
                           view_[node.outputs[0]].dims == view_[score].dims;
      if (!divides && !View::Is(node, PointwiseMode::kReciprocal)) continue;
      const size_t at = divides ? 1 : 0;
      out_.Replace(n, at, out_.SelectOfRows(n, node.inputs[at], 0, 1, node.inputs[at], "divisor"));
    }
  }

  // A condition row < length of a mask of the scores, with what stands for hidden ones.
  struct RowMask {
    TensorId length, fill;
  };
  std::optional<RowMask> RowMaskOf(TensorId score) const {
    for (const Node* n = view_.Pointwise(score, PointwiseMode::kBinarySelect); n != nullptr;
         n = view_.Pointwise(n->inputs[0], PointwiseMode::kBinarySelect)) {
      std::vector<TensorId> pending = {n->inputs[2]};
      for (size_t steps = 0; !pending.empty() && steps < kMostSteps; ++steps) {
        const TensorId condition = pending.back();
        pending.pop_back();
        if (const Node* both = view_.Pointwise(condition, PointwiseMode::kLogicalAnd))
          pending.insert(pending.end(), {both->inputs[1], both->inputs[0]});
        const Node* less = view_.Pointwise(condition, PointwiseMode::kCmpLt);
        const Node* row =
            less == nullptr ? nullptr : view_.Pointwise(less->inputs[0], PointwiseMode::kGenIndex);
        if (row != nullptr && view_.IsOfHeads(less->inputs[1]) &&
            row->As<PointwiseAttrs>().axis == view_[score].rank() - 2)
          return RowMask{.length = less->inputs[1], .fill = n->inputs[1]};
      }
    }
    return std::nullopt;
  }

  void SettleSink(TensorId score, const RowMaximum& max, const std::vector<NodeId>& subtractions) {
    const auto mask = RowMaskOf(score);
    if (!mask || !view_.IsOfHeads(mask->fill)) return;
    const TensorId sink = view_.node(max.joins).inputs[max.sink_at];
    const TensorId largest = view_.node(max.joins).inputs[1 - max.sink_at];
    const Dims rows = RowDims(view_[score].dims);
    PointwiseAttrs index;
    index.mode = PointwiseMode::kGenIndex;
    index.axis = view_[score].rank() - 2;
    const TensorId row =
        out_.Add(max.joins, index, {largest}, {.dtype = DType::kI32, .dims = rows}, "row");
    const TensorId inside = out_.Add(max.joins, PointwiseMode::kCmpLt, {row, mask->length},
                                     {.dtype = DType::kBool, .dims = rows}, "is_query");
    const TensorId own =
        out_.Add(max.joins, PointwiseMode::kBinarySelect, {sink, mask->fill, inside},
                 {.dtype = view_[sink].dtype, .dims = rows}, "sink_of_row");
    out_.Replace(max.joins, max.sink_at, own);
    for (const NodeId n : subtractions)
      if (view_.Same(view_.node(n).inputs[0], sink)) out_.Replace(n, 0, own);
  }

  // exp(score - stats) of a weight that a difference with a product is multiplied by.
  void SettleBackward(NodeId sub) {
    const Node& node = view_.node(sub);
    const TensorId score = node.inputs[0], stats = node.inputs[1];
    if (view_.Pointwise(stats, PointwiseMode::kBinarySelect) != nullptr ||
        !view_.FollowsFromProduct(score) || !IsGradient(node.outputs[0]))
      return;
    for (const NodeId n : view_.Readers(view_.Uncast(stats))) {
      const Node& reader = view_.node(n);
      if (!View::Is(reader, PointwiseMode::kSub) || !view_.Same(reader.inputs[1], stats)) continue;
      out_.Replace(n, 1, out_.SelectOfRows(n, stats, -kInfinity, kInfinity, stats, "shift"));
      if (view_.IsOfHeads(reader.inputs[0])) SettleSinkGradient(reader.outputs[0], stats);
    }
  }
  // Through masks to the exponential, and from there to a product with (another product - a value
  // of rows).
  bool IsGradient(TensorId shifted) const {
    std::set<TensorId> seen = {shifted};
    std::vector<std::pair<TensorId, bool>> pending = {{shifted, false}};  // behind the exponential?
    while (!pending.empty() && seen.size() < kMostSteps) {
      const auto [at, is_weight] = pending.back();
      pending.pop_back();
      for (const NodeId n : view_.Readers(at)) {
        const Node& node = view_.node(n);
        const bool is_exp = View::Is(node, PointwiseMode::kExp);
        const bool multiplies = is_weight && View::Is(node, PointwiseMode::kMul);
        if (multiplies && IsDifference(node.inputs[view_.Same(node.inputs[0], at) ? 1 : 0]))
          return true;
        const bool goes_on =
            multiplies || (is_exp && !is_weight) || View::Is(node, PointwiseMode::kBinarySelect);
        const TensorId y = goes_on ? node.outputs[0] : kAbsent;
        if (goes_on && view_[y].dims == view_[at].dims && seen.insert(y).second)
          pending.emplace_back(y, is_weight || is_exp);
      }
    }
    return false;
  }
  bool IsDifference(TensorId id) const {
    const Node* sub = view_.Pointwise(id, PointwiseMode::kSub);
    return sub != nullptr && view_.IsOfRows(sub->inputs[1], sub->inputs[0]) &&
           view_.FollowsFromProduct(sub->inputs[0]);
  }

  // sum of exp(sink - stats) * rowsum(do * o), to which a row that sees no key adds nothing,
  // whatever its do and o hold.
  void SettleSinkGradient(TensorId shifted, TensorId stats) {
    for (const TensorId exp : ExponentialsOf(shifted)) {
      for (const NodeId n : view_.Readers(exp)) {
        const Node& mul = view_.node(n);
        if (!View::Is(mul, PointwiseMode::kMul)) continue;
        const TensorId other = mul.inputs[view_.Same(mul.inputs[0], exp) ? 1 : 0];
        const Node* inner = view_.Reduction(other, ReductionMode::kAdd);
        if (inner == nullptr || view_.Pointwise(inner->inputs[0], PointwiseMode::kMul) == nullptr)
          continue;
        for (const NodeId reader : view_.Readers(mul.outputs[0])) {
          const Node& sum = view_.node(reader);
          if (sum.op != GraphOp::kReduction || sum.As<ReductionAttrs>().mode != ReductionMode::kAdd)
            continue;
          const DType dtype = view_[sum.inputs[0]].dtype;
          const Dims dims = view_[sum.inputs[0]].dims;  // of a tensor that new ones may move
          const TensorId counted =
              out_.SelectOfRows(reader, stats, -kInfinity, 0, sum.inputs[0], "of_rows_with_keys");
          out_.Replace(reader, 0,
                       out_.Add(reader, PointwiseMode::kNeg, {counted},
                                {.dtype = dtype, .dims = dims}, "negative"));
        }
      }
    }
  }

  Graph& g_;
  const View view_;
  Rewriter out_;
};

}  // namespace

bool SettleSpelledAttention(Graph& graph) {
  const bool has_exponential = std::ranges::any_of(
      graph.nodes, [](const Node& n) { return View::Is(n, PointwiseMode::kExp); });
  return has_exponential && Settler(graph).Run();
}

}  // namespace kiln::graph
