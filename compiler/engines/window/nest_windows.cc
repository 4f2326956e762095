// The windows of a nest: each result is computed once, and bound at its place.
#include <limits>

#include "compiler/engines/window/nest_places.h"

namespace kiln::compiler {
namespace {

using graph::Node;
using graph::PaddingTap;
using graph::ResampleMode;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;
using Place = WindowNest::Place;

class NestWindows {
 public:
  NestWindows(KernelBuilder& b, const WindowNest& nest, NestPlaces& places, Block& out,
              ValueScope& values)
      : b_(b),
        g_(b.graph()),
        nest_(nest),
        places_(places),
        out_(out),
        values_(values),
        producers_(graph::Producers(g_)) {}

  void Compute() {
    for (const auto& [id, at] : nest_.values) {
      const graph::NodeId producer = producers_[id];
      if (producer >= 0 && Has(g_.nodes[producer], graph::kWindow)) Window(g_.nodes[producer], at);
    }
  }

 private:
  void Window(const Node& node, const Place& at) {
    const std::vector<WindowLink> links = LinksOf(g_, nest_, node, at);
    Expr result;
    if (IsForward(node) && IsMax(node))
      result = Largest(node, at, links);
    else
      result = Sum(node, at, links);
    Keep(node.outputs[0], at, result);
  }
  void Keep(TensorId id, const Place& at, const Expr& value) {
    const Expr kept = b_.Let(out_, g_[id].name + "_w", RoundThrough(g_[id].dtype, value));
    values_.Bind(id, places_.IndexOf(out_, id, at), kept);
  }

  // Null where a source is always inside.
  Expr ValueOf(const Node& node, TensorId x, const Place& at) {
    const Expr value = tile::Cast(DType::kF32, values_.Value(x, places_.IndexOf(out_, x, at)));
    const bool is_padded = producers_[x] < 0 && PaddingOf(g_, x).has_value();
    const Expr inside = is_padded ? nullptr : places_.Inside(out_, x, at);
    return inside
               ? b_.Let(out_, "tap", tile::Select(inside, value, tile::Float(PaddingValueOf(node))))
               : value;
  }

  Expr Sum(const Node& node, const Place& at, const std::vector<WindowLink>& links) {
    const auto& attrs = node.As<graph::ResampleAttrs>();
    Expr sum;
    for (const WindowLink& link : links) {
      Expr value = ValueOf(node, node.inputs[0], link.source);
      if (!IsForward(node)) value = Divided(node, value, link.source);
      if (!IsForward(node) && IsMax(node)) {
        const TensorId index = node.inputs[1];
        const Expr found = values_.Value(index, places_.IndexOf(out_, index, link.source));
        const Expr is_it =
            tile::Op(ScalarOp::kEq, {found, tile::Cast(found->type, tile::Int(link.tap))});
        value = tile::Select(is_it, value, tile::Float(0));
      }
      sum = sum ? b_.Let(out_, "sum", sum + value) : value;
    }
    if (!sum) return tile::Float(0);
    if (!IsForward(node)) return sum;
    if (attrs.mode == ResampleMode::kAvgExcludePadding) return Divided(node, sum, at);
    return DividedBy(node, sum);
  }
  // By all taps of the window.
  Expr DividedBy(const Node& node, const Expr& value) const {
    double taps = 1;
    for (const int64_t n : node.As<graph::ResampleAttrs>().window) taps *= static_cast<double>(n);
    if (taps == 1) return value;
    return RoundsMore(node) ? value * tile::Float(1 / taps) : value / tile::Float(taps);
  }
  // An average's part of one window, by the taps that count of it.
  Expr Divided(const Node& node, const Expr& value, const Place& window) {
    if (IsMax(node)) return value;
    const auto& attrs = node.As<graph::ResampleAttrs>();
    if (attrs.mode != ResampleMode::kAvgExcludePadding) return DividedBy(node, value);
    const TensorId x = IsForward(node) ? node.inputs[0] : node.outputs[0],
                   y = IsForward(node) ? node.outputs[0] : node.inputs[0];
    Expr taps = b_.Idx(1);
    const Index index = places_.IndexOf(out_, y, window);
    for (const graph::ResampleAxis& a : AxesOf(g_, node)) {
      if (a.taps == 1) continue;
      const auto d = static_cast<int64_t>(a.dim);
      const Expr start = index[d] * b_.Idx(a.step) + b_.Idx(a.offset);
      const Expr end = tile::Op(ScalarOp::kMin, {start + b_.Idx(a.taps), b_.Extent(x, d)});
      taps = taps * tile::Op(ScalarOp::kMax,
                             {end - tile::Op(ScalarOp::kMax, {start, b_.Idx(0)}), b_.Idx(0)});
    }
    Expr& weight = weights_[{y, window}];
    if (!weight)
      weight = b_.Let(out_, "taps",
                      tile::Cast(DType::kF32, tile::Op(ScalarOp::kMax, {taps, b_.Idx(1)})));
    return value / weight;
  }
  // True where results do not tell a product from a quotient, or are rounded again on their way.
  bool RoundsMore(const Node& node) const {
    const Tensor& y = g_[node.outputs[0]];
    return y.is_virtual || SizeOf(y.dtype) <= 2;
  }

  // The largest value, then the first tap that has it.
  Expr Largest(const Node& node, const Place& at, const std::vector<WindowLink>& links) {
    const auto& attrs = node.As<graph::ResampleAttrs>();
    const TensorId x = node.inputs[0];
    const ScalarOp op = attrs.propagate_nan ? ScalarOp::kMaxNan : ScalarOp::kMax;
    Expr largest = tile::Float(-std::numeric_limits<double>::infinity());
    std::vector<Expr> taps;
    for (const WindowLink& link : links) {
      taps.push_back(ValueOf(node, x, link.source));
      largest = b_.Let(out_, "largest", tile::Op(op, {largest, taps.back()}));
    }
    if (node.outputs.size() < 2 || node.outputs[1] == graph::kAbsent) return largest;
    const bool skips = graph::PaddingTapOf(attrs) == PaddingTap::kSkipped;
    Expr number = tile::Int(0);
    for (size_t p = links.size(); p-- > 0;) {
      Expr has = tile::Op(ScalarOp::kEq, {taps[p], largest});
      if (attrs.propagate_nan)
        has = tile::Op(ScalarOp::kOr, {has, tile::Op(ScalarOp::kNe, {taps[p], taps[p]})});
      if (skips)
        if (const Expr inside = places_.Inside(out_, x, links[p].source))
          has = tile::And(inside, has);
      number = b_.Let(out_, "number", tile::Select(has, tile::Int(links[p].tap), number));
    }
    Keep(node.outputs[1], at, number);
    return largest;
  }

  KernelBuilder& b_;
  const graph::Graph& g_;
  const WindowNest& nest_;
  NestPlaces& places_;
  Block& out_;
  ValueScope& values_;
  const std::vector<graph::NodeId> producers_;
  std::map<WindowNest::Value, Expr> weights_;  // taps that count of a window
};

}  // namespace

void ComputeNest(KernelBuilder& b, const WindowNest& nest, NestPlaces& places, Block& out,
                 ValueScope& values) {
  NestWindows(b, nest, places, out, values).Compute();
}

}  // namespace kiln::compiler
