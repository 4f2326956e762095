#include "compiler/kernel/window_taps.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "compiler/kernel/accumulation.h"

namespace kiln::compiler {

using graph::PaddingTap;
using graph::ResampleAxis;
using graph::ResampleMode;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

namespace {

constexpr int64_t kUnrolledTaps = 8;  // along one axis

Expr Max(Expr a, Expr b) { return tile::Op(ScalarOp::kMax, {std::move(a), std::move(b)}); }
Expr Min(Expr a, Expr b) { return tile::Op(ScalarOp::kMin, {std::move(a), std::move(b)}); }
Expr Eq(Expr a, Expr b) { return tile::Op(ScalarOp::kEq, {std::move(a), std::move(b)}); }
Expr Both(const Expr& a, const Expr& b) { return !a ? b : !b ? a : tile::And(a, b); }

// The lowest value of a compute type, or -inf.
Expr Lowest(DType type) {
  if (IsFloat(type)) return tile::Float(-std::numeric_limits<double>::infinity(), type);
  return tile::Int(type == DType::kI64 ? INT64_MIN : INT32_MIN, type);
}

Expr Zero(DType type) { return IsFloat(type) ? tile::Float(0, type) : tile::Int(0, type); }

}  // namespace

WindowTaps::WindowTaps(KernelBuilder& b, const graph::Node& node, int64_t lane_dim, int lanes)
    : b_(b),
      node_(node),
      x_(node.op == graph::GraphOp::kResampleFwd ? node.inputs[0] : node.outputs[0]),
      y_(node.op == graph::GraphOp::kResampleFwd ? node.outputs[0] : node.inputs[0]),
      lane_dim_(lane_dim),
      lanes_(lanes),
      axes_(graph::ResampleAxes(attrs(), b.graph()[x_].dims, b.graph()[y_].dims)),
      padding_(graph::PaddingTapOf(attrs())),
      compute_(ArithmeticType(node.compute)),
      coordinate_(b.index_type()) {
  // Fractions are scaled to integers, which may be large.
  for (const ResampleAxis& axis : axes_)
    if (axis.unit != 1) coordinate_ = DType::kI64;
}

Expr WindowTaps::Long(int64_t value, const char* name) {
  if (value == 0 || value == 1) return tile::Int(value, coordinate_);
  return Coordinate(b_.Arg(name, value));
}

Expr WindowTaps::Extent(size_t axis, bool of_x) const {
  return b_.Extent(of_x ? x_ : y_, static_cast<int64_t>(axes_[axis].dim));
}

// floor((step * p + offset) / unit); what is left over is the weight of tap 1.
WindowTaps::Place WindowTaps::PlaceOf(Block& out, size_t axis, const Expr& p) {
  const ResampleAxis& a = axes_[axis];
  const Expr scaled = Coordinate(p) * Long(a.step, "stride");
  Expr position = a.offset < 0 ? scaled - Long(-a.offset, "pad") : scaled + Long(a.offset, "pad");
  position = b_.Let(out, "at", position);
  if (a.unit == 1) {
    Place whole{.base = AsIndex(position)};
    if (bilinear()) {
      whole.left = tile::Float(1, compute_);
      whole.right = tile::Float(0, compute_);
    }
    return whole;
  }
  const Expr unit = b_.Let(out, "unit", Long(a.unit, "unit"));
  const Expr zero = tile::Int(0, coordinate_), one = tile::Int(1, coordinate_);
  const Expr below = zero - (unit - one - position) / unit;
  const Expr base =
      b_.Let(out, "base", tile::Select(tile::Ge(position, zero), position / unit, below));
  Place place{.base = b_.Let(out, "first", AsIndex(base))};
  if (!bilinear()) return place;
  const Expr rest = b_.Let(out, "rest", position - base * unit);
  const Expr whole = tile::Cast(compute_, unit);
  place.left = b_.Let(out, "left", tile::Cast(compute_, unit - rest) / whole);
  place.right = b_.Let(out, "right", tile::Cast(compute_, rest) / whole);
  return place;
}

Expr WindowTaps::Inside(size_t axis, const Expr& base) const {
  const Expr end = Min(base + b_.Idx(axes_[axis].taps), Extent(axis, true));
  return Max(end - Max(base, b_.Idx(0)), b_.Idx(0));
}

Expr WindowTaps::Weight(const Place& place, const Expr& number) const {
  if (!bilinear()) return nullptr;
  return tile::Select(Eq(number, b_.Idx(1)), place.right, place.left);
}

Expr WindowTaps::Number(const std::vector<Tap>& taps) const {
  Expr number = b_.Idx(0);
  for (size_t s = 0; s < taps.size(); ++s) number = number * b_.Idx(axes_[s].taps) + taps[s].number;
  return tile::Cast(DType::kI32, number);
}

// Tensors in memory that a value of `id` is made of.
std::vector<TensorId> WindowTaps::LeavesOf(TensorId id) const {
  const graph::Graph& g = b_.graph();
  const std::vector<graph::NodeId> producers = graph::Producers(g);
  std::vector<TensorId> pending = {id}, leaves;
  std::vector<char> seen(g.tensors.size(), 0);
  while (!pending.empty()) {
    const TensorId t = pending.back();
    pending.pop_back();
    if (t == graph::kAbsent || seen[static_cast<size_t>(t)]++ != 0) continue;
    const graph::NodeId producer = producers[static_cast<size_t>(t)];
    if (producer < 0) {
      if (!g[t].by_value) leaves.push_back(t);
      continue;
    }
    const graph::Node& node = g.nodes[static_cast<size_t>(producer)];
    pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
  std::ranges::sort(leaves);
  return leaves;
}

const graph::Node* WindowTaps::SearchOf(TensorId index) const {
  const graph::NodeId producer = graph::Producers(b_.graph())[static_cast<size_t>(index)];
  if (producer < 0) return nullptr;
  const graph::Node& node = b_.graph().nodes[static_cast<size_t>(producer)];
  return Has(node, graph::kWindow) ? &node : nullptr;
}

bool WindowTaps::IsReadAfter(TensorId leaf) const {
  const graph::Graph& g = b_.graph();
  std::vector<char> after(g.tensors.size(), 0);
  for (TensorId id : node_.outputs) after[static_cast<size_t>(id)] = 1;
  for (const graph::Node& node : g.nodes) {
    const auto is_after = [&](TensorId id) { return after[static_cast<size_t>(id)] != 0; };
    if (node.op == graph::GraphOp::kMap && std::ranges::any_of(node.inputs, is_after))
      after[static_cast<size_t>(node.outputs[0])] = 1;
  }
  // Everything that is read for a map behind the window but is no result of it.
  for (const graph::Node& node : g.nodes) {
    if (node.op != graph::GraphOp::kMap || after[static_cast<size_t>(node.outputs[0])] == 0)
      continue;
    for (TensorId id : node.inputs) {
      if (after[static_cast<size_t>(id)] != 0) continue;
      const std::vector<TensorId> leaves = LeavesOf(id);
      if (std::ranges::find(leaves, leaf) != leaves.end()) return true;
    }
  }
  return false;
}

std::string WindowTaps::DeclareLanes(Block& out, const char* wish, DType type, const Expr& value) {
  std::string name = b_.Name(wish);
  out.push_back({tile::Alloc{name, type, tile::Space::kReg, lanes_}});
  const std::string lane = b_.Name("l");
  Block set;
  set.push_back({tile::Store{name, tile::Var(lane, b_.index_type()), value}});
  out.push_back({tile::For{lane, b_.index_type(), b_.Idx(lanes_), Bind::kUnroll, std::move(set)}});
  return name;
}

void WindowTaps::Serial(Block& out, const char* name, size_t axis, const Expr& count, int64_t most,
                        const std::function<void(Block&, const Expr&)>& emit) {
  const DType t = b_.index_type();
  const std::string var = b_.Name(name);
  const auto loop = [&](Block& block, const Expr& first, const Expr& size) {
    Block body;
    emit(body, first + tile::Var(var, t));
    block.push_back({tile::For{var, t, size, Bind::kSerial, std::move(body)}});
  };
  int64_t taps = 1;
  for (const ResampleAxis& a : axes_) taps *= a.taps;
  const bool adds = attrs().mode != ResampleMode::kMax || !forward();
  if (!adds || axis + 1 != axes_.size() || taps <= kMostTerms) return loop(out, b_.Idx(0), count);
  const int64_t length = std::min(most, kMostTerms);
  const std::string segment = b_.Name("segment"), total = acc_;
  Block body;
  const Expr first = b_.Let(body, "first", tile::Var(segment, t) * b_.Idx(length));
  acc_ = DeclareLanes(body, "part", compute_, Zero(compute_));
  loop(body, first, b_.Let(body, "size", Min(count - first, b_.Idx(length))));
  const std::string part = std::exchange(acc_, total), lane = b_.Name("l");
  Block fold;
  Add(fold, tile::Var(lane, t), tile::Load(part, compute_, tile::Var(lane, t)));
  body.push_back({tile::For{lane, t, b_.Idx(lanes_), Bind::kUnroll, std::move(fold)}});
  out.push_back(
      {tile::For{segment, t, CeilDivExpr(count, length), Bind::kSerial, std::move(body)}});
}

void WindowTaps::Emit(Block& out, const Index& index) {
  const bool is_max = attrs().mode == ResampleMode::kMax;
  const auto declare = [&](const char* wish, DType type, const Expr& value) {
    return DeclareLanes(out, wish, type, value);
  };
  acc_ = declare("acc", compute_, is_max && forward() ? Lowest(compute_) : Zero(compute_));
  if (forward() && node_.outputs.size() > 1)
    found_ = declare("found", DType::kI32, tile::Int(-1, DType::kI32));
  int64_t taps = 1;
  for (const ResampleAxis& axis : axes_) taps *= axis.taps;
  if (attrs().mode == ResampleMode::kAvgIncludePadding)
    divisor_ = tile::Float(static_cast<double>(taps), compute_);
  if (!forward()) return Backward(out, index, 0, {});
  Expr inside = b_.Idx(1);
  for (size_t s = 0; s < axes_.size(); ++s) {
    places_.push_back(PlaceOf(out, s, index[axes_[s].dim]));
    places_[s].base = b_.Let(out, "start", places_[s].base);
    inside = inside * Inside(s, places_[s].base);
  }
  if (excludes()) divisor_ = b_.Let(out, "taps", tile::Cast(compute_, Max(inside, b_.Idx(1))));
  Forward(out, index, 0, {});
}

// The loop over the taps of an axis; reads beyond x are moved to its edge, and count only where
// the padding says so: a window's reads are then under way together.
void WindowTaps::Forward(Block& out, const Index& index, size_t s, std::vector<Tap> taps) {
  if (s == axes_.size()) return Take(out, index, taps);
  const ResampleAxis& axis = axes_[s];
  const auto emit = [&](Block& block, const Expr& t) {
    Tap tap{.source = places_[s].base + t, .number = t, .weight = Weight(places_[s], t)};
    const bool padded = attrs().mode == ResampleMode::kNearest || bilinear() ||
                        attrs().pre_padding[s] != 0 || attrs().post_padding[s] != 0;
    if (padded) {
      const Expr at = b_.Let(block, "place", tap.source), in = Extent(s, true);
      if (padding_ != PaddingTap::kEdge)
        tap.inside = tile::And(tile::Ge(at, b_.Idx(0)), tile::Lt(at, in));
      tap.source = b_.Let(block, "near", Max(Min(at, in - b_.Idx(1)), b_.Idx(0)));
    }
    std::vector<Tap> more = taps;
    more.push_back(std::move(tap));
    Forward(block, index, s + 1, std::move(more));
  };
  if (axis.taps == 1) return emit(out, b_.Idx(0));
  if (axis.taps > kUnrolledTaps) return Serial(out, "t", s, b_.Idx(axis.taps), axis.taps, emit);
  const std::string name = b_.Name("t");
  Block body;
  emit(body, tile::Var(name, b_.index_type()));
  out.push_back(
      {tile::For{name, b_.index_type(), b_.Idx(axis.taps), Bind::kUnroll, std::move(body)}});
}

void WindowTaps::Add(Block& out, const Expr& lane, const Expr& value) {
  out.push_back({tile::Store{acc_, lane, tile::Load(acc_, compute_, lane) + value}});
}

// One tap: its values into the accumulators.
void WindowTaps::Take(Block& out, const Index& index, const std::vector<Tap>& taps) {
  Index source = index;
  Expr inside, weight;
  for (size_t s = 0; s < taps.size(); ++s) {
    source[axes_[s].dim] = taps[s].source;
    inside = Both(inside, taps[s].inside);
    if (taps[s].weight) weight = weight ? weight * taps[s].weight : taps[s].weight;
  }
  const bool is_max = attrs().mode == ResampleMode::kMax;
  if (inside) inside = b_.Let(out, "inside", inside);
  if (weight) weight = b_.Let(out, "weight", weight);
  const bool lowest =
      padding_ == PaddingTap::kNegInf || (is_max && padding_ == PaddingTap::kSkipped);
  const Expr beyond = lowest ? Lowest(compute_) : Zero(compute_);
  if (NumElements(b_.graph()[x_].dims) == 0) {  // nothing may be read
    if (lowest && is_max) return;
    if (is_max) return TakeMaximum(out, b_.Idx(0), beyond, Number(taps), nullptr);
    return Add(out, b_.Idx(0), beyond);
  }
  LaneLoop loop(b_, out, LeavesOf(x_), source, lane_dim_, lanes_);
  Expr value = tile::Cast(compute_, loop.values().Value(x_, loop.index()));
  Block& body = loop.body();
  if (inside) value = tile::Select(inside, value, beyond);
  value = b_.Let(body, "v", value);
  if (is_max) {
    const bool skips = padding_ == PaddingTap::kSkipped;
    TakeMaximum(body, loop.lane(), value, Number(taps), skips ? inside : nullptr);
  } else {
    Add(body, loop.lane(), weight ? weight * value : value);
  }
  loop.Close();
}

void WindowTaps::TakeMaximum(Block& out, const Expr& lane, const Expr& value, const Expr& number,
                             const Expr& inside) {
  const Expr best = tile::Load(acc_, compute_, lane);
  const bool propagate = attrs().propagate_nan && IsFloat(compute_);
  if (!has_index()) {
    const ScalarOp op = propagate ? ScalarOp::kMaxNan : ScalarOp::kMax;
    out.push_back({tile::Store{acc_, lane, tile::Op(op, {best, value})}});
    return;
  }
  const auto is_nan = [](const Expr& e) { return tile::Op(ScalarOp::kNe, {e, e}); };
  const Expr old = b_.Let(out, "best", best), found = tile::Load(found_, DType::kI32, lane);
  // Above what was found, or the first at all, -inf as it may be.
  Expr taken = tile::Op(ScalarOp::kOr,
                        {tile::Op(ScalarOp::kGt, {value, old}),
                         tile::And(tile::Lt(found, tile::Int(0, DType::kI32)), Eq(value, value))});
  if (propagate) taken = tile::Op(ScalarOp::kOr, {taken, tile::And(is_nan(value), Eq(old, old))});
  taken = b_.Let(out, "taken", Both(inside, taken));
  out.push_back({tile::Store{acc_, lane, tile::Select(taken, value, old)}});
  out.push_back({tile::Store{found_, lane, tile::Select(taken, number, found)}});
}

// The loop over the outputs along an axis that read the element, in ascending order.
void WindowTaps::Backward(Block& out, const Index& index, size_t s, std::vector<Tap> taps) {
  if (s == axes_.size()) return Gather(out, index, taps);
  const ResampleAxis& a = axes_[s];
  const bool edge = padding_ == PaddingTap::kEdge;
  const Expr h = index[a.dim], step = Long(a.step, "stride"), unit = Long(a.unit, "unit");
  const Expr zero = tile::Int(0, coordinate_), one = tile::Int(1, coordinate_);
  // The first p with base(p) >= bound.
  const auto first_from = [&](const Expr& bound) {
    const Expr n =
        a.offset < 0 ? bound * unit + Long(-a.offset, "pad") : bound * unit - Long(a.offset, "pad");
    return (Max(n, zero) + (step - one)) / step;
  };
  Expr begin = first_from(Coordinate(h) - tile::Int(a.taps - 1, coordinate_));
  Expr end = Min(first_from(Coordinate(h) + one), Coordinate(Extent(s, false)));
  if (edge) {
    begin = tile::Select(Eq(h, b_.Idx(0)), zero, begin);
    end = tile::Select(Eq(h, Extent(s, true) - b_.Idx(1)), Coordinate(Extent(s, false)), end);
  }
  begin = b_.Let(out, "begin", AsIndex(begin));
  const Expr count = b_.Let(out, "count", Max(AsIndex(end) - begin, b_.Idx(0)));
  const auto emit = [&](Block& body, const Expr& j) {
    const Expr p = b_.Let(body, "p", begin + j);
    const Place place = PlaceOf(body, s, p);
    const Expr base = b_.Let(body, "start", place.base);
    const auto deeper = [&](Block& block, const Expr& t) {
      Tap tap{.source = p, .number = t, .weight = Weight(place, t)};
      if (excludes()) tap.inside = Inside(s, base);
      std::vector<Tap> more = taps;
      more.push_back(std::move(tap));
      Backward(block, index, s + 1, std::move(more));
    };
    if (!edge) return deeper(body, b_.Let(body, "t", h - base));
    // Several taps may have been moved to the edge.
    const std::string t = b_.Name("t");
    Block tries, hit;
    const Expr at = base + tile::Var(t, b_.index_type());
    const Expr near = Max(Min(at, Extent(s, true) - b_.Idx(1)), b_.Idx(0));
    deeper(hit, tile::Var(t, b_.index_type()));
    tries.push_back({tile::If{Eq(near, h), std::move(hit), {}}});
    body.push_back(
        {tile::For{t, b_.index_type(), b_.Idx(a.taps), Bind::kSerial, std::move(tries)}});
  };
  Serial(out, "j", s, count, kMostTerms, emit);
}

// Adds what one tap of one output brings to the element.
void WindowTaps::Gather(Block& out, const Index& index, const std::vector<Tap>& taps) {
  const bool is_max = attrs().mode == ResampleMode::kMax;
  Index source = index;
  Expr weight, inside = b_.Idx(1);
  for (size_t s = 0; s < taps.size(); ++s) {
    source[axes_[s].dim] = taps[s].source;
    if (taps[s].weight) weight = weight ? weight * taps[s].weight : taps[s].weight;
    if (excludes()) inside = inside * taps[s].inside;
  }
  if (weight) weight = b_.Let(out, "weight", weight);
  Expr number;
  if (is_max) number = b_.Let(out, "number", Number(taps));
  std::vector<TensorId> leaves = LeavesOf(y_);
  // The window that finds an index is searched here, where no index is stored.
  const graph::Node* search = is_max ? SearchOf(node_.inputs[1]) : nullptr;
  std::optional<WindowTaps> maxima;
  if (search != nullptr) {
    maxima.emplace(b_, *search, lane_dim_, lanes_);
    maxima->Emit(out, source);
  } else if (is_max) {
    std::ranges::copy(LeavesOf(node_.inputs[1]), std::back_inserter(leaves));
  }
  LaneLoop loop(b_, out, leaves, source, lane_dim_, lanes_);
  Block& body = loop.body();
  Expr value = tile::Cast(compute_, loop.values().Value(y_, loop.index()));
  if (is_max) {
    const Expr found = maxima ? maxima->FoundIndex(loop.lane())
                              : loop.values().Value(node_.inputs[1], loop.index());
    value = tile::Select(Eq(found, tile::Cast(found->type, number)), value, Zero(compute_));
  }
  if (excludes()) value = value / tile::Cast(compute_, inside);
  Add(body, loop.lane(), weight ? weight * value : value);
  loop.Close();
}

Expr WindowTaps::Result(const Expr& lane) const {
  Expr value = tile::Load(acc_, compute_, lane);
  if (divisor_) value = value / divisor_;
  return RoundThrough(b_.graph()[node_.outputs[0]].dtype, value);
}

Expr WindowTaps::FoundIndex(const Expr& lane) const {
  const Expr found = tile::Load(found_, DType::kI32, lane);
  return RoundThrough(b_.graph()[node_.outputs[1]].dtype, Max(found, tile::Int(0, DType::kI32)));
}

}  // namespace kiln::compiler
