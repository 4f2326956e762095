#include "ir/graph/pointwise_gradient.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numbers>
#include <span>

#include "ir/graph/ops.h"
#include "ir/graph/speller.h"

namespace kiln::graph {
namespace {

using M = PointwiseMode;

// One node of the chain with the gradient of its result; x and b are the operands behind their
// factors.
struct Step {
  Speller& at;
  const Speller::Form& form;
  const PointwiseAttrs& attrs;
  TensorId g, x, b, t, y;

  TensorId Do(M mode, std::vector<TensorId> inputs) const {
    return at.Pointwise(mode, std::move(inputs), form);
  }
  TensorId Mul(TensorId a, TensorId c) const { return Do(M::kMul, {a, c}); }
  TensorId Times(TensorId a, double factor) const {
    return factor == 1 ? a : Mul(a, at.Number(factor, form));
  }
  TensorId Neg(TensorId a) const { return Do(M::kNeg, {a}); }
  TensorId Zero() const { return at.Number(0, form); }
  TensorId Select(TensorId yes, TensorId no, TensorId where) const {
    return Do(M::kBinarySelect, {yes, no, where});
  }
  TensorId Compare(M mode, TensorId a, TensorId c) const {
    return at.Pointwise(mode, {a, c}, {.dtype = DType::kBool, .dims = form.dims});
  }
  // The gradient where the first operand is the result, or where it is not.
  TensorId OfFirst(M mode) const { return Select(g, Zero(), Compare(mode, x, b)); }
  TensorId OfSecond(M mode) const { return Select(Zero(), g, Compare(mode, x, b)); }
  // The gradient by the mode that the API has for the derivative, with the same parameters.
  TensorId Backward(M mode) const {
    PointwiseAttrs own = attrs;
    own.mode = mode;
    own.alpha1 = own.alpha2 = 1;
    const TensorId dx = at.Temporary(form);
    at.PointwiseTo(dx, own, {g, x});
    return dx;
  }
};

using Rule = TensorId (*)(const Step&);
struct RuleRow {
  M mode;
  Rule of_x = nullptr, of_b = nullptr;
};

TensorId Same(const Step& s) { return s.g; }
TensorId Negative(const Step& s) { return s.Neg(s.g); }

// x b with a sum of squares below: the parts of atan2's derivatives.
TensorId OverSquares(const Step& s, TensorId factor) {
  const TensorId squares = s.Do(M::kAdd, {s.Mul(s.x, s.x), s.Mul(s.b, s.b)});
  return s.Do(M::kDiv, {s.Mul(s.g, factor), squares});
}

constexpr RuleRow kRules[] = {
    {M::kIdentity, Same},
    {M::kAdd, Same, Same},
    {M::kSub, Same, Negative},
    {M::kMul, [](const Step& s) { return s.Mul(s.g, s.b); },
     [](const Step& s) { return s.Mul(s.g, s.x); }},
    {M::kDiv, [](const Step& s) { return s.Do(M::kDiv, {s.g, s.b}); },
     [](const Step& s) { return s.Neg(s.Do(M::kDiv, {s.Mul(s.g, s.y), s.b})); }},
    {M::kAddSquare, Same, [](const Step& s) { return s.Mul(s.g, s.Times(s.b, 2)); }},
    {M::kMax, [](const Step& s) { return s.OfFirst(M::kCmpGe); },
     [](const Step& s) { return s.OfSecond(M::kCmpGe); }},
    {M::kMin, [](const Step& s) { return s.OfFirst(M::kCmpLe); },
     [](const Step& s) { return s.OfSecond(M::kCmpLe); }},
    {M::kPow,
     [](const Step& s) {
       const TensorId less = s.Do(M::kSub, {s.b, s.at.Number(1, s.form)});
       return s.Mul(s.g, s.Mul(s.b, s.Do(M::kPow, {s.x, less})));
     },
     [](const Step& s) { return s.Mul(s.g, s.Mul(s.y, s.Do(M::kLog, {s.x}))); }},
    {M::kAtan2, [](const Step& s) { return OverSquares(s, s.b); },
     [](const Step& s) { return s.Neg(OverSquares(s, s.x)); }},
    {M::kNeg, Negative},
    {M::kAbs,
     [](const Step& s) {
       const TensorId below = s.Select(s.Neg(s.g), s.Zero(), s.Compare(M::kCmpLt, s.x, s.Zero()));
       return s.Select(s.g, below, s.Compare(M::kCmpGt, s.x, s.Zero()));
     }},
    {M::kSqrt, [](const Step& s) { return s.Do(M::kDiv, {s.Times(s.g, 0.5), s.y}); }},
    {M::kRsqrt,
     [](const Step& s) { return s.Times(s.Mul(s.g, s.Mul(s.y, s.Mul(s.y, s.y))), -0.5); }},
    {M::kReciprocal, [](const Step& s) { return s.Neg(s.Mul(s.g, s.Mul(s.y, s.y))); }},
    {M::kExp, [](const Step& s) { return s.Mul(s.g, s.y); }},
    {M::kLog, [](const Step& s) { return s.Do(M::kDiv, {s.g, s.x}); }},
    {M::kSin, [](const Step& s) { return s.Mul(s.g, s.Do(M::kCos, {s.x})); }},
    {M::kCos, [](const Step& s) { return s.Neg(s.Mul(s.g, s.Do(M::kSin, {s.x}))); }},
    {M::kTan, [](const Step& s) { return s.Do(M::kAdd, {s.g, s.Mul(s.g, s.Mul(s.y, s.y))}); }},
    {M::kErf,
     [](const Step& s) {
       const TensorId bell = s.Do(M::kExp, {s.Neg(s.Mul(s.x, s.x))});
       return s.Mul(s.g, s.Times(bell, 2 * std::numbers::inv_sqrtpi));
     }},
    {M::kTanhFwd, [](const Step& s) { return s.Do(M::kSub, {s.g, s.Mul(s.g, s.Mul(s.y, s.y))}); }},
    {M::kReluFwd, [](const Step& s) { return s.Backward(M::kReluBwd); }},
    {M::kSigmoidFwd, [](const Step& s) { return s.Backward(M::kSigmoidBwd); }},
    {M::kEluFwd, [](const Step& s) { return s.Backward(M::kEluBwd); }},
    {M::kGeluFwd, [](const Step& s) { return s.Backward(M::kGeluBwd); }},
    {M::kSoftplusFwd, [](const Step& s) { return s.Backward(M::kSoftplusBwd); }},
    {M::kSwishFwd, [](const Step& s) { return s.Backward(M::kSwishBwd); }},
    {M::kGeluApproxTanhFwd, [](const Step& s) { return s.Backward(M::kGeluApproxTanhBwd); }},
    {M::kBinarySelect, [](const Step& s) { return s.Select(s.g, s.Zero(), s.t); },
     [](const Step& s) { return s.Select(s.Zero(), s.g, s.t); }},
    // Steps.
    {M::kCmpEq},
    {M::kCmpNeq},
    {M::kCmpGt},
    {M::kCmpGe},
    {M::kCmpLt},
    {M::kCmpLe},
    {M::kLogicalAnd},
    {M::kLogicalOr},
    {M::kLogicalNot},
    {M::kGenIndex},
};

const RuleRow* FindRule(M mode) {
  const auto* row = std::ranges::find(kRules, mode, &RuleRow::mode);
  return row == std::end(kRules) ? nullptr : row;
}

class Chain {
 public:
  Chain(Graph& graph, const PointwiseChain& chain)
      : graph_(graph),
        chain_(chain),
        form_{.dtype = FloatFor(graph[chain.x]), .dims = graph[chain.x].dims},
        at_(graph, form_.dtype) {}

  Result<ChainGradient> Run() {
    RETURN_IF_ERROR(Sort());
    RETURN_IF_ERROR(FindAddend());
    if (!Follows(chain_.y))
      return Status::Error(Code::kBadParam, "the result %{} does not follow from %{}: no gradient",
                           graph_[chain_.y].name, graph_[chain_.x].name);
    if (graph_[chain_.y].dims != form_.dims)
      return Status::Error(Code::kBadParam, "the result %{} has not the extents of %{}",
                           graph_[chain_.y].name, graph_[chain_.x].name);
    Add(chain_.y, chain_.dy, chain_.hidden_have_none);
    for (size_t i = order_.size(); i-- > 0;) RETURN_IF_ERROR(Reverse(order_[i]));
    if (const auto dx = gradients_.find(chain_.x); dx != gradients_.end())
      found_.dx = dx->second.id;
    if (found_.dx == kAbsent)
      return Status::Error(Code::kNotSupported,
                           "between %{} and %{} there are steps alone: the gradient is 0",
                           graph_[chain_.x].name, graph_[chain_.y].name);
    return found_;
  }

 private:
  struct Gradient {
    TensorId id;
    bool hidden_has_none;  // where the tensor is -inf
  };

  bool Follows(TensorId id) const { return id != kAbsent && follows_[static_cast<size_t>(id)]; }

  // Nodes behind those that write their operands; those that follow from x marked.
  Status Sort() {
    const std::span<const Node> nodes =
        std::span(graph_.nodes).subspan(chain_.first, chain_.last - chain_.first);
    std::map<TensorId, std::vector<size_t>> readers;
    std::vector<size_t> missing(nodes.size());
    std::map<TensorId, int> written;
    for (const Node& n : nodes)
      for (const TensorId y : n.outputs)
        if (y != kAbsent) ++written[y];
    for (size_t n = 0; n < nodes.size(); ++n)
      for (const TensorId x : nodes[n].inputs)
        if (x != kAbsent && written.contains(x)) {
          readers[x].push_back(n);
          ++missing[n];
        }
    for (size_t n = 0; n < nodes.size(); ++n)
      if (missing[n] == 0) order_.push_back(n);
    for (size_t i = 0; i < order_.size(); ++i)
      for (const TensorId y : nodes[order_[i]].outputs)
        for (const size_t reader : readers[y])
          if (--missing[reader] == 0) order_.push_back(reader);
    const bool is_chain = order_.size() == nodes.size() && !written.contains(chain_.x);
    if (!is_chain || std::ranges::any_of(written, [](const auto& w) { return w.second > 1; }))
      return Status::Error(Code::kBadParam,
                           "the operations between %{} and %{} have a cycle, or write one tensor "
                           "twice",
                           graph_[chain_.x].name, graph_[chain_.y].name);
    follows_.assign(graph_.tensors.size(), 0);
    follows_[static_cast<size_t>(chain_.x)] = 1;
    for (const size_t n : order_)
      if (std::ranges::any_of(nodes[n].inputs, [&](TensorId x) { return Follows(x); }))
        for (const TensorId y : nodes[n].outputs)
          if (y != kAbsent) follows_[static_cast<size_t>(y)] = 1;
    return {};
  }

  // The operand of a sum with the extents that are asked for.
  Status FindAddend() {
    if (chain_.addend.empty()) return {};
    std::vector<TensorId> candidates;
    const std::vector<NodeId> writers = Producers(graph_);
    for (const size_t n : order_) {
      const Node& node = graph_.nodes[chain_.first + n];
      if (node.op != GraphOp::kPointwise || node.As<PointwiseAttrs>().mode != M::kAdd ||
          node.inputs.size() != 2)
        continue;
      for (const size_t i : {0, 1}) {
        const TensorId id = node.inputs[i];
        if (Follows(id) || !Follows(node.inputs[1 - i]) || graph_[id].dims != chain_.addend ||
            graph_[id].by_value || writers[static_cast<size_t>(id)] >= 0)
          continue;
        if (std::ranges::find(candidates, id) == candidates.end()) candidates.push_back(id);
      }
    }
    if (candidates.size() == 1) {
      addend_ = candidates[0];
      return {};
    }
    return Status::Error(candidates.empty() ? Code::kBadParam : Code::kNotSupported,
                         "{} tensors of {} are added between %{} and %{}; one has the gradient "
                         "that is asked for",
                         candidates.size(), Text(chain_.addend), graph_[chain_.x].name,
                         graph_[chain_.y].name);
  }
  static std::string Text(const Dims& dims) { return fmt::format("{}", fmt::join(dims, "x")); }

  void Add(TensorId to, TensorId gradient, bool hidden_has_none) {
    const auto [place, is_new] =
        gradients_.try_emplace(to, Gradient{.id = gradient, .hidden_has_none = hidden_has_none});
    if (is_new) return;
    place->second.id = at_.Pointwise(M::kAdd, {place->second.id, gradient}, form_);
    place->second.hidden_has_none &= hidden_has_none;
  }

  // True if x is -inf where the node's result is, and the other way round but for what is selected.
  bool KeepsHidden(const Node& node, size_t operand) const {
    switch (node.As<PointwiseAttrs>().mode) {
      case M::kIdentity:
      case M::kAdd:
        return node.inputs.size() < 2 || !Follows(node.inputs[1 - operand]);
      case M::kSub:
        return operand == 0 && !Follows(node.inputs[1]);
      case M::kBinarySelect:
        return true;
      default:
        return false;
    }
  }
  bool IsHidden(TensorId id) const {
    const Tensor& t = graph_[id];
    return t.by_value && t.value.has_value() &&
           *t.value == -std::numeric_limits<double>::infinity();
  }

  Status CheckNode(const Node& node) const {
    const Tensor& y = graph_[node.outputs[0]];
    if (node.op != GraphOp::kPointwise)
      return Status::Error(Code::kNotSupported,
                           "%{} is the result of {}: there are derivatives of pointwise operations",
                           y.name, Info(node.op).mnemonic);
    const PointwiseModeInfo& info = Info(node.As<PointwiseAttrs>().mode);
    if (FindRule(node.As<PointwiseAttrs>().mode) == nullptr)
      return Status::Error(Code::kNotSupported, "%{} is the result of {}, which has no derivative",
                           y.name, info.text);
    if (node.inputs.size() != static_cast<size_t>(info.inputs) ||
        std::ranges::find(node.inputs, kAbsent) != node.inputs.end())
      return Status::Error(Code::kBadParam,
                           "%{} is the result of {} of {} operands, which takes {}", y.name,
                           info.text, node.inputs.size(), info.inputs);
    return {};
  }

  Status Reverse(size_t n) {
    const Node node = graph_.nodes[chain_.first + n];  // a copy: nodes move
    const auto found = node.outputs.empty() ? gradients_.end() : gradients_.find(node.outputs[0]);
    if (found == gradients_.end() ||
        std::ranges::none_of(node.inputs, [&](TensorId x) { return Follows(x); }))
      return {};
    RETURN_IF_ERROR(CheckNode(node));
    const Gradient gradient = found->second;
    const auto& attrs = node.As<PointwiseAttrs>();
    const RuleRow& rule = *FindRule(attrs.mode);
    if (rule.of_x == nullptr) return {};
    const Tensor y = graph_[node.outputs[0]];
    if (!IsFloat(y.dtype) || !IsFloat(node.compute))
      return Status::Error(Code::kNotSupported,
                           "%{} is {}, computed in {}: there are derivatives of floats", y.name,
                           Info(y.dtype).text, Info(node.compute).text);
    Step step{.at = at_,
              .form = form_,
              .attrs = attrs,
              .g = gradient.id,
              .x = node.inputs[0],
              .b = node.inputs.size() > 1 ? node.inputs[1] : kAbsent,
              .t = node.inputs.size() > 2 ? node.inputs[2] : kAbsent,
              .y = node.outputs[0]};
    const double factors[] = {attrs.alpha1, attrs.alpha2};
    const bool is_select = attrs.mode == M::kBinarySelect;
    if (factors[0] != 1) step.x = Scaled(step.x, factors[0]);
    if (step.b != kAbsent && factors[1] != 1) step.b = Scaled(step.b, factors[1]);
    for (size_t i = 0; i < std::min<size_t>(node.inputs.size(), 2); ++i) {
      const TensorId x = node.inputs[i];
      const bool is_addend = x == addend_;
      const Rule of = i == 0 ? rule.of_x : rule.of_b;
      if ((!Follows(x) && !is_addend) || of == nullptr) continue;
      if (!is_addend && graph_[x].dims != form_.dims)
        return Status::Error(Code::kNotSupported,
                             "%{} is broadcast to %{}: there are derivatives place by place",
                             graph_[x].name, y.name);
      const bool needs_none = is_select && gradient.hidden_has_none &&
                              IsHidden(node.inputs[1 - i]) && factors[0] == 1 && factors[1] == 1;
      const TensorId dx = step.Times(needs_none ? step.g : of(step), factors[i]);
      if (is_addend)
        AddAddend(dx);
      else
        Add(x, dx, gradient.hidden_has_none && factors[i] == 1 && KeepsHidden(node, i));
    }
    return {};
  }
  TensorId Scaled(TensorId id, double factor) {
    const Speller::Form form{.dtype = form_.dtype, .dims = graph_[id].dims};
    return at_.Pointwise(M::kMul, {id, at_.Number(factor, form)}, form);
  }
  void AddAddend(TensorId gradient) {
    found_.addend = found_.addend == kAbsent
                        ? gradient
                        : at_.Pointwise(M::kAdd, {found_.addend, gradient}, form_);
  }

  Graph& graph_;
  const PointwiseChain chain_;
  const Speller::Form form_;
  Speller at_;
  std::vector<size_t> order_;  // of nodes, from the chain's first
  std::vector<char> follows_;  // by tensor
  std::map<TensorId, Gradient> gradients_;
  TensorId addend_ = kAbsent;
  ChainGradient found_;
};

}  // namespace

Result<ChainGradient> SpellChainGradient(Graph& graph, const PointwiseChain& chain) {
  return Chain(graph, chain).Run();
}

}  // namespace kiln::graph
