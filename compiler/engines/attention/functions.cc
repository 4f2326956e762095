#include "compiler/engines/attention/functions.h"

#include <algorithm>
#include <limits>

#include "compiler/engines/attention/moves.h"
#include "compiler/engines/attention/problem.h"
#include "compiler/kernel/attention_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/patterns/attention_tilt.h"
#include "compiler/patterns/graph_view.h"
#include "ir/base/check.h"
#include "ir/tile/visit.h"

namespace kiln::compiler {

using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

namespace {

// Bounds that are no place of any tensor are as good as these.
constexpr int64_t kFar = int64_t{1} << 30;

Expr Min(Expr a, Expr b) { return tile::Op(ScalarOp::kMin, {std::move(a), std::move(b)}); }
Expr Max(Expr a, Expr b) { return tile::Op(ScalarOp::kMax, {std::move(a), std::move(b)}); }

// A number of places that moves a bound: whole, or to be rounded down or up.
struct Shift {
  Expr floor, ceil;
  Expr is_number;  // null where it always is
};

// The keys that rows from `first` to `last` see.
struct Limits {
  Expr first, end, inside_first, inside_end;
};

}  // namespace

Expr Unrounded(Block& out, Expr value) {
  if (value->kind != tile::ExprKind::kCast || out.empty()) return value;
  const auto* let = std::get_if<tile::Let>(&out.back().node);
  if (let == nullptr || !tile::Mentions(value, let->name) ||
      let->value->kind != tile::ExprKind::kCast)
    return value;
  Expr before = let->value->args[0];
  if (before->type != DType::kF32) return value;
  out.pop_back();
  return before;
}

struct AttentionFunctions::Element {
  Call::Function f;
  Expr value, batch, row, column, bits;
  Expr beside, distance;  // what a tensor has at the place; column - row as f32
  std::string result;
};

AttentionFunctions::Element AttentionFunctions::Begin(const char* name, Extra extra,
                                                      int results) const {
  Element e{.f = {.name = name, .params = {}, .body = {}}};
  e.value = AddScalar(b_, e.f, "value", DType::kF32);
  if (extra == Extra::kOfScore) {
    e.beside = AddScalar(b_, e.f, "beside", DType::kF32);
    e.distance = AddScalar(b_, e.f, "distance", DType::kF32);
  }
  e.batch = AddScalar(b_, e.f, "batch", t());
  e.row = AddScalar(b_, e.f, "row", t());
  e.column = AddScalar(b_, e.f, "column", t());
  if (extra == Extra::kBits) e.bits = AddScalar(b_, e.f, "bits", DType::kI64);
  e.result = AddArray(b_, e.f, "result", DType::kF32, results, true);
  return e;
}

Index ScoreIndex(KernelBuilder& b, Block& out, TensorId tensor, const Expr& batch, const Expr& row,
                 const Expr& column) {
  const Tensor& y = b.graph()[tensor];
  const int64_t leading = y.rank() - 2;
  Index extents;
  for (int64_t d = 0; d < leading; ++d) extents.push_back(b.Extent(tensor, d));
  Index at = b.Unravel(out, batch, extents, Dims(y.dims.begin(), y.dims.begin() + leading), "at");
  at.push_back(row);
  at.push_back(column);
  return BroadcastIndex(b, y, at);
}

HeadIndex SharedHeads(KernelBuilder& b, const Attention& a, TensorId operand) {
  return [&b, &a, operand](Block& out, const Expr& head) {
    const graph::Graph& g = b.graph();
    Index at = ScoreIndex(b, out, a.score, head, b.Idx(0), b.Idx(0));
    for (size_t d = 0; d + 2 < at.size(); ++d) {
      const int64_t sharing = HeadsSharing(g, a, operand, static_cast<int64_t>(at.size() - d));
      if (g[operand].dims[d] == 1)
        at[d] = b.Idx(0);
      else if (sharing > 1)
        at[d] = b.Divide(out, at[d], b.Arg("sharing", sharing), sharing, "head").quotient;
    }
    return at;
  };
}

Index AttentionFunctions::At(Block& out, TensorId tensor, const Expr& batch, const Expr& row,
                             const Expr& column) const {
  return ScoreIndex(b_, out, tensor, batch, row, column);
}

// Distances that only f32 arithmetic reads (alibi) are f32 already: to convert each costs as much
// as its exponential. Places are exact as f32 (kMostAttentionPlaces).
void AttentionFunctions::BindDistances(ValueScope& values, const Element& e,
                                       const Index& at) const {
  const GraphView view(g_);
  for (TensorId id = 0; id < static_cast<TensorId>(g_.tensors.size()); ++id) {
    const graph::Node* n = view.Producer(id);
    if (n == nullptr || n->op != graph::GraphOp::kMap || n->As<graph::MapAttrs>().identity)
      continue;
    const auto places = PlacesIn(view, id);
    if (!places || std::abs(places->first) != 1 || places->second != -places->first) continue;
    const bool is_number = std::ranges::all_of(view.Readers(id), [&](graph::NodeId reader) {
      const graph::Node& node = g_.nodes[static_cast<size_t>(reader)];
      return node.op == graph::GraphOp::kMap && ArithmeticType(node.compute) == DType::kF32 &&
             g_[node.outputs[0]].dtype == DType::kF32;
    });
    if (!is_number) continue;
    values.Bind(id, BroadcastIndex(b_, g_[id], at),
                places->first < 0 ? e.distance : tile::Float(0) - e.distance);
  }
}

void AttentionFunctions::AddScore(Call& call, bool inside) {
  Element e = Begin(inside ? "inside" : "score", Extra::kOfScore);
  const Index at = At(e.f.body, a_.score, e.batch, e.row, e.column);
  ValueScope values(b_, e.f.body);
  BindDistances(values, e, at);
  if (beside_ != graph::kAbsent)
    values.Bind(beside_, BroadcastIndex(b_, g_[beside_], at), e.beside);
  values.Bind(a_.product, at, RoundThrough(g_[a_.product].dtype, e.value));
  if (tilt_) {
    const Tilt tilt = TiltAt(values, e.f.body, at);
    values.Bind(tilt_->tilted, at, e.value * tilt.factor + e.distance * tilt.rest);
  }
  for (const ScoreMask& mask : SpareScoreMasks(g_, a_, inside))
    values.Bind(mask.masked, at, RoundThrough(g_[mask.masked].dtype, values.Value(mask.value, at)));
  if (inside) {
    const std::vector<ScoreMask> masks = MasksOf(g_, a_);
    for (auto mask = masks.rbegin(); mask != masks.rend(); ++mask)
      if (!BoundsOf(g_, *mask).empty())
        values.Bind(mask->masked, at,
                    RoundThrough(g_[mask->masked].dtype, values.Value(mask->value, at)));
  }
  const auto factor = inside ? FactorOf(g_, a_) : std::nullopt;
  const TensorId wanted = factor ? factor->value : a_.score;
  const Expr score = inside && tilt_ ? e.value : tile::Cast(DType::kF32, values.Value(wanted, at));
  e.f.body.push_back({tile::Store{e.result, b_.Idx(0), score}});
  call.functions.push_back(std::move(e.f));
}

// The factor of scores, 0 where it cannot serve: where it is not positive, or too small to divide
// the slope by; what products start from for each place of distance; and the slope where they do
// not start from it.
AttentionFunctions::Tilt AttentionFunctions::TiltAt(ValueScope& values, Block& out,
                                                    const Index& at) const {
  constexpr double kSteepest = 1e30;
  const auto value_of = [&](TensorId id) {
    return tile::Cast(DType::kF32, values.Value(id, BroadcastIndex(b_, g_[id], at)));
  };
  const Expr factor = value_of(tilt_->factor), of_distance = value_of(tilt_->slope);
  const Expr slope = tilt_->sign < 0 ? tile::Float(0) - of_distance : of_distance;
  const Expr start = b_.Let(out, "start", slope / factor), none = tile::Float(0);
  const Expr serves = tile::And(
      tile::Lt(none, factor), tile::Lt(tile::Op(ScalarOp::kAbs, {start}), tile::Float(kSteepest)));
  return {.factor = factor,
          .serving = tile::Select(serves, factor, none),
          .start = tile::Select(serves, start, none),
          .rest = tile::Select(serves, none, slope)};
}

void AttentionFunctions::AddTiltedFactor(Call& call) const {
  Call::Function f{.name = "factor", .params = {}, .body = {}};
  const Expr batch = AddScalar(b_, f, "batch", t());
  const std::string result = AddArray(b_, f, "result", DType::kF32, 2, true);
  const Index at = ScoreIndex(b_, f.body, a_.score, batch, b_.Idx(0), b_.Idx(0));
  ValueScope values(b_, f.body);
  const Tilt tilt = TiltAt(values, f.body, at);
  f.body.push_back({tile::Store{result, b_.Idx(0), tilt.serving}});
  f.body.push_back({tile::Store{result, b_.Idx(1), tilt.start}});
  call.config.push_back({attention::kFolded, 1});
  call.functions.push_back(std::move(f));
}

void AddFactor(KernelBuilder& b, TensorId scores, const std::optional<ScoreFactor>& factor,
               Call& call) {
  Call::Function f{.name = "factor", .params = {}, .body = {}};
  const Expr batch = AddScalar(b, f, "batch", b.index_type());
  const std::string result = AddArray(b, f, "result", DType::kF32, 1, true);
  Expr value = tile::Float(1);
  if (factor) {
    const Index at = ScoreIndex(b, f.body, scores, batch, b.Idx(0), b.Idx(0));
    ValueScope values(b, f.body);
    value = nullptr;
    for (const TensorId id : factor->factors) {
      const Expr by =
          tile::Cast(DType::kF32, values.Value(id, BroadcastIndex(b, b.graph()[id], at)));
      value = value ? value * by : by;
    }
  }
  f.body.push_back({tile::Store{result, b.Idx(0), value}});
  call.config.push_back({attention::kFolded, factor ? 1 : 0});
  call.functions.push_back(std::move(f));
}

namespace {

// The head whose limits are written, where its values are, and the rows that they are for.
struct LimitsOf {
  KernelBuilder& b;
  Block& out;
  ValueScope& values;
  const Index& at;   // the head's first score
  Expr first, last;  // rows
};

Expr ValueOf(LimitsOf head, TensorId id) {
  return head.values.Value(id, BroadcastIndex(head.b, head.b.graph()[id], head.at));
}

// `sign` times the sum of a bound's offsets.
Shift ShiftOf(LimitsOf head, const IndexBound& bound, int sign) {
  const graph::Graph& g = head.b.graph();
  const bool is_float = std::ranges::any_of(
      bound.offsets, [&](const IndexBound::Offset& o) { return IsFloat(g[o.tensor].dtype); });
  Expr sum = is_float ? tile::Float(0) : tile::Int(0, DType::kI64);
  for (const IndexBound::Offset& o : bound.offsets) {
    const Expr term = tile::Cast(sum->type, ValueOf(head, o.tensor));
    sum = o.sign * sign > 0 ? sum + term : sum - term;
  }
  sum = head.b.Let(head.out, "shift", sum);
  const auto whole = [&](const Expr& x) {
    const Expr near =
        is_float ? Min(Max(x, tile::Float(-kFar)), tile::Float(kFar))
                 : Min(Max(x, tile::Int(-kFar, DType::kI64)), tile::Int(kFar, DType::kI64));
    return head.b.Let(head.out, "bound", tile::Cast(head.b.index_type(), near));
  };
  if (!is_float) return Shift{whole(sum), whole(sum), nullptr};
  return Shift{whole(tile::Op(ScalarOp::kFloor, {sum})), whole(tile::Op(ScalarOp::kCeil, {sum})),
               tile::Op(ScalarOp::kEq, {sum, sum})};
}

// No key is inside unless the condition holds.
Limits HideInside(Limits seen, const Expr& unless, const Expr& zero) {
  seen.inside_end = tile::Select(unless, seen.inside_end, zero);
  return seen;
}

bool IsStrict(const IndexBound& bound) {
  return bound.compare == ScalarOp::kLt || bound.compare == ScalarOp::kGt;
}
bool IsLess(const IndexBound& bound) {
  return bound.compare == ScalarOp::kLt || bound.compare == ScalarOp::kLe;
}

// row * i + offsets < 0 (or > 0), of the row where it is hardest, and where it is easiest: where
// it does not hold there, no row sees a key.
Limits TakeRowBound(LimitsOf head, const IndexBound& bound, Limits seen) {
  const bool strict = IsStrict(bound), less = IsLess(bound);
  const Expr none = head.b.Idx(0);
  const Shift shift = ShiftOf(head, bound, 1);
  const auto holds = [&](const Expr& row) {
    const Expr place = bound.row > 0 ? row : none - row;
    const Expr sum = place + (less == strict ? shift.floor : shift.ceil);
    const Expr zero = head.b.Idx(strict ? 0 : less ? 1 : -1);
    return less ? tile::Lt(sum, zero) : tile::Lt(zero, sum);
  };
  const bool last_is_hardest = (bound.row > 0) == less;
  seen = HideInside(seen, holds(last_is_hardest ? head.last : head.first), none);
  if (shift.is_number) return HideInside(seen, shift.is_number, none);
  seen.end = tile::Select(holds(last_is_hardest ? head.first : head.last), seen.end, none);
  return seen;
}

// column * j against the row's place and a number: j ends, or begins, there.
Limits TakeColumnBound(LimitsOf head, const IndexBound& bound, Limits seen) {
  const bool is_end = (bound.column > 0) == IsLess(bound);
  const bool moves = bound.row != 0;
  const Shift shift = ShiftOf(head, bound, -bound.column);
  const bool up = is_end == IsStrict(bound);  // to the next whole place
  const auto place = [&](const Expr& row) {
    const Expr near = up ? shift.ceil : shift.floor + head.b.Idx(1);
    return moves ? row + near : near;
  };
  if (is_end) {
    seen.end = Min(seen.end, place(head.last));
    seen.inside_end = Min(seen.inside_end, place(head.first));
  } else {
    seen.first = Max(seen.first, place(head.first));
    seen.inside_first = Max(seen.inside_first, place(head.last));
  }
  if (!shift.is_number) return seen;
  seen = HideInside(seen, shift.is_number, head.b.Idx(0));
  seen.end = tile::Select(shift.is_number, seen.end, head.b.Idx(0));  // no comparison holds
  return seen;
}

// Whether the value that stands for a mask's keys weighs nothing, too.
Expr IsWeightless(LimitsOf head, const ScoreMask& mask, const Expr& others) {
  if (mask.fill == graph::kAbsent) return others;  // 0 stands for the weight
  const Expr fill = tile::Cast(DType::kF32, ValueOf(head, mask.fill));
  const Expr none = tile::Float(-std::numeric_limits<double>::infinity());
  return tile::And(others, tile::Op(ScalarOp::kEq, {fill, none}));
}

}  // namespace

void AddLimits(KernelBuilder& b, TensorId scores, const std::vector<ScoreMask>& masks, Call& call,
               bool says_only) {
  const graph::Graph& g = b.graph();
  const DType t = b.index_type();
  Call::Function f{.name = "limits", .params = {}, .body = {}};
  const Expr batch = AddScalar(b, f, "batch", t);
  const Expr first = AddScalar(b, f, "first", t), last = AddScalar(b, f, "last", t);
  const std::string result = AddArray(b, f, "result", DType::kI32, says_only ? 5 : 4, true);
  Block& out = f.body;
  const Index at = ScoreIndex(b, out, scores, batch, b.Idx(0), b.Idx(0));
  ValueScope values(b, out);
  const LimitsOf head{.b = b, .out = out, .values = values, .at = at, .first = first, .last = last};
  const Expr keys = b.Extent(scores, g[scores].rank() - 1);
  Limits seen{b.Idx(0), keys, b.Idx(0), keys};
  // Keys are skipped only if what stands for them weighs nothing.
  Expr weightless = tile::Bool(true);
  for (const ScoreMask& mask : masks) {
    weightless = IsWeightless(head, mask, weightless);
    for (const IndexBound& bound : BoundsOf(g, mask))
      seen =
          bound.column == 0 ? TakeRowBound(head, bound, seen) : TakeColumnBound(head, bound, seen);
  }
  const Expr limits[] = {tile::Select(weightless, seen.first, b.Idx(0)),
                         tile::Select(weightless, seen.end, keys), seen.inside_first,
                         seen.inside_end};
  for (int i = 0; i < 4; ++i)
    out.push_back(
        {tile::Store{result, b.Idx(i),
                     tile::Cast(DType::kI32, Min(Max(limits[i], b.Idx(-kFar)), b.Idx(kFar)))}});
  if (says_only) {
    const Expr only = tile::Select(weightless, b.Idx(1), b.Idx(0));
    out.push_back({tile::Store{result, b.Idx(4), tile::Cast(DType::kI32, only)}});
  }
  call.functions.push_back(std::move(f));
}

// True if all that hides a score are bounds of its place, so that a row sees the keys between its
// limits, and no others if what stands for those weighs nothing.
static bool HasIntervals(const graph::Graph& g, const std::vector<ScoreMask>& masks) {
  return std::ranges::all_of(masks, [&](const ScoreMask& mask) {
    return mask.fill != graph::kAbsent && !BoundsOf(g, mask).empty();
  });
}

// True if some bound hides keys before a place.
static bool HidesFirstKeys(const graph::Graph& g, const std::vector<ScoreMask>& masks) {
  return std::ranges::any_of(masks, [&](const ScoreMask& mask) {
    return std::ranges::any_of(BoundsOf(g, mask), [](const IndexBound& bound) {
      const bool less = bound.compare == ScalarOp::kLt || bound.compare == ScalarOp::kLe;
      return bound.column != 0 && (bound.column > 0) != less;
    });
  });
}

bool SharesPhilox(const graph::Graph& g, const RandomHalf& random) {
  constexpr int64_t kHalves = 8;
  const GraphView view(g);
  const graph::Node* place = view.Producer(random.place);
  if (place == nullptr || place->op != graph::GraphOp::kReshape ||
      g[place->inputs[0]].rank() != 1 || g[random.place].dims.back() % kHalves != 0)
    return false;
  const graph::Node* counted = view.Producer(view.Uncast(place->inputs[0]));
  return counted != nullptr && counted->op == graph::GraphOp::kIota;
}

// The random bits that weights are made of, where eight neighbours share a call of Philox: one
// value for each score.
static TensorId SharedBitsOf(const graph::Graph& g, const Attention& a) {
  const GraphView view(g);
  TensorId bits = graph::kAbsent;
  std::vector<TensorId> pending = {a.weight};
  std::vector<char> seen(g.tensors.size());
  while (!pending.empty()) {
    const TensorId id = pending.back();
    pending.pop_back();
    if (id == graph::kAbsent || id == a.exp || seen[id]) continue;
    seen[id] = 1;
    if (const auto random = RandomHalfOf(view, id)) {
      if (bits != graph::kAbsent || g[id].dims.back() != g[a.score].dims.back() ||
          !SharesPhilox(g, *random))
        return graph::kAbsent;
      bits = id;
    } else if (const graph::Node* n = view.Producer(id)) {
      pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
    }
  }
  return bits;
}

TensorId FirstRounded(const graph::Graph& g, TensorId weight) {
  const GraphView view(g);
  if (EightBits(g[weight].dtype) == 0) return weight;
  while (const graph::Node* n = view.Map(weight, ScalarOp::kSelect)) {
    const TensorId value = n->inputs[1];
    if (!view.IsZero(n->inputs[2]) || g[value].dtype != g[weight].dtype ||
        g[value].dims != g[weight].dims)
      break;
    weight = value;
  }
  return weight;
}

// Adds the weight to a function's text; returns whether it is more than the exponential.
bool AttentionFunctions::WriteWeight(Element& e, TensorId bits, bool inside) {
  Block body;
  const Index at = At(body, a_.weight, e.batch, e.row, e.column);
  ValueScope values(b_, body);
  values.Bind(a_.exp, at, e.value);
  if (bits != graph::kAbsent) values.Bind(bits, BroadcastIndex(b_, g_[bits], at), e.bits);
  // The sum is not known yet: the result is divided by it.
  for (const TensorId id : {a_.sum, a_.divisor})
    if (id != graph::kAbsent) values.Bind(id, BroadcastIndex(b_, g_[id], at), tile::Float(1));
  // Selections of 0 behind the rounding to 8 bits: they change nothing about it, and it follows
  // them, where the caller rounds two at a time.
  std::vector<ScoreMask> behind = SpareWeightMasks(g_, a_, inside);
  std::erase_if(behind, [&](const ScoreMask& mask) {
    if (EightBits(g_[mask.masked].dtype) != 0) return false;
    values.Bind(mask.masked, at, RoundThrough(g_[mask.masked].dtype, values.Value(mask.value, at)));
    return true;
  });
  if (a_.largest_weight) {
    const Expr of_largest = values.Value(a_.largest_weight->value, at);
    body.push_back({tile::Store{e.result, b_.Idx(1), tile::Cast(DType::kF32, of_largest)}});
  }
  const TensorId first = FirstRounded(g_, a_.weight);
  Expr weight = tile::Cast(DType::kF32, Unrounded(body, values.Value(first, at)));
  if (first != a_.weight) {
    ValueScope last(b_, body);
    last.Bind(first, at, weight);
    for (const ScoreMask& mask : behind) last.Bind(mask.masked, at, last.Value(mask.value, at));
    weight = tile::Cast(DType::kF32, Unrounded(body, last.Value(a_.weight, at)));
  }
  const bool is_plain = !a_.largest_weight && tile::Equal(weight, e.value);
  if (!is_plain) e.f.body = std::move(body);
  e.f.body.push_back({tile::Store{e.result, b_.Idx(0), weight}});
  return !is_plain;
}

void AttentionFunctions::AddWeight(Call& call) {
  const TensorId bits = SharedBitsOf(g_, a_);
  // Selections that repeat known masks change nothing where these let through.
  const int results = a_.largest_weight ? 2 : 1;
  Element inside = Begin("weight", Extra::kBits, results);
  const bool is_more_inside = WriteWeight(inside, bits, true);
  Element e = Begin("weight", Extra::kBits, results);
  const bool is_more = WriteWeight(e, bits, false);
  call.functions.push_back(std::move(e.f));
  call.config.push_back({attention::kWeights, is_more ? 1 : 0});
  call.config.push_back({attention::kWeightsInside, is_more_inside ? 1 : 0});
  call.config.push_back({attention::kEight, EightBits(g_[a_.weight].dtype)});
  AddRandom(call, bits);
}

void AttentionFunctions::AddRandom(Call& call, TensorId bits) {
  Call::Function f{.name = "random", .params = {}, .body = {}};
  const Expr batch = AddScalar(b_, f, "batch", t()), row = AddScalar(b_, f, "row", t()),
             column = AddScalar(b_, f, "column", t());
  const std::string result = AddArray(b_, f, "result", DType::kI64, 3, true);
  if (bits != graph::kAbsent) {
    const Index at = BroadcastIndex(b_, g_[bits], At(f.body, a_.weight, batch, row, column));
    ValueScope values(b_, f.body);
    const RandomHalf random = *RandomHalfOf(GraphView(g_), bits);
    const TensorId parts[] = {random.place, random.seed, random.offset};
    for (int i = 0; i < 3; ++i)
      f.body.push_back({tile::Store{result, b_.Idx(i),
                                    values.Value(parts[i], BroadcastIndex(b_, g_[parts[i]], at))}});
  } else {
    for (int i = 0; i < 3; ++i)
      f.body.push_back({tile::Store{result, b_.Idx(i), tile::Int(0, DType::kI64)}});
  }
  call.config.push_back({attention::kRandom, bits != graph::kAbsent ? 1 : 0});
  call.functions.push_back(std::move(f));
}

void AttentionFunctions::AddFinish(Call& call) {
  Element e = Begin("finish", Extra::kNone, a_.largest_result ? 2 : 1);
  Expr result = e.value;
  if (a_.result != a_.out) {
    const Index at = At(e.f.body, a_.result, e.batch, e.row, e.column);
    ValueScope values(b_, e.f.body);
    values.Bind(a_.out, at, RoundThrough(g_[a_.out].dtype, e.value));
    if (a_.largest_result) {
      const Expr of_largest = values.Value(a_.largest_result->value, at);
      e.f.body.push_back({tile::Store{e.result, b_.Idx(1), tile::Cast(DType::kF32, of_largest)}});
    }
    const Expr rounded = values.Value(a_.result, at);
    result = tile::Cast(DType::kF32, Unrounded(e.f.body, rounded));
  }
  e.f.body.push_back({tile::Store{e.result, b_.Idx(0), result}});
  call.config.push_back({attention::kFinish, a_.result != a_.out ? 1 : 0});
  call.config.push_back({attention::kEightResult, EightBits(g_[a_.result].dtype)});
  call.config.push_back(
      {attention::kPeaks, (a_.largest_weight ? 1 : 0) + (a_.largest_result ? 2 : 0)});
  call.functions.push_back(std::move(e.f));
}

void AttentionFunctions::AddRows(Call& call) {
  Call::Function f{.name = "rows", .params = {}, .body = {}};
  const Expr batch = AddScalar(b_, f, "batch", t()), row = AddScalar(b_, f, "row", t());
  const Expr max = AddScalar(b_, f, "row_max", DType::kF32),
             sum = AddScalar(b_, f, "row_sum", DType::kF32);
  if (!a_.rows.empty() || !a_.scatters.empty()) {
    const Index at = At(f.body, a_.max, batch, row, b_.Idx(0));
    ValueScope values(b_, f.body);
    values.Bind(a_.max, at, RoundThrough(g_[a_.max].dtype, max));
    values.Bind(a_.sum, at, RoundThrough(g_[a_.sum].dtype, sum));
    for (const TensorId id : a_.rows)
      f.body.push_back({tile::Store{b_.Pointer(id), b_.Offset(id, at),
                                    tile::Cast(g_[id].dtype, values.Value(id, at))}});
    for (const graph::NodeId n : a_.scatters) {
      const graph::Node& scatter = g_.nodes[n];
      const TensorId id = scatter.inputs[0];
      if (id == a_.result) continue;
      const ScatterPlace to = ScatterPlaceOf(b_, values, f.body, scatter, at);
      Block there;
      there.push_back(
          {tile::Store{b_.Pointer(scatter.outputs[0]), to.offset,
                       tile::Cast(g_[scatter.outputs[0]].dtype, values.Value(id, at))}});
      f.body.push_back({tile::If{to.inside, std::move(there), {}}});
    }
  }
  call.functions.push_back(std::move(f));
}

// The values of a row before its first key: its sink as the maximum, and the sink's share of the
// sum.
void AttentionFunctions::AddFirst(Call& call) {
  Call::Function f{.name = "first", .params = {}, .body = {}};
  const Expr batch = AddScalar(b_, f, "batch", t()), row = AddScalar(b_, f, "row", t());
  const std::string result = AddArray(b_, f, "result", DType::kF32, 2, true);
  const Expr none = tile::Float(-std::numeric_limits<double>::infinity());
  Expr max = none, sum = tile::Float(0);
  if (a_.sink != graph::kAbsent) {
    const Index at = At(f.body, a_.max, batch, row, b_.Idx(0));
    ValueScope values(b_, f.body);
    max =
        b_.Let(f.body, "first_max",
               tile::Cast(DType::kF32, values.Value(a_.sink, BroadcastIndex(b_, g_[a_.sink], at))));
    sum = tile::Select(tile::Op(ScalarOp::kEq, {max, none}), tile::Float(0), tile::Float(1));
  }
  f.body.push_back({tile::Store{result, b_.Idx(0), max}});
  f.body.push_back({tile::Store{result, b_.Idx(1), sum}});
  call.config.push_back({attention::kSink, a_.sink != graph::kAbsent ? 1 : 0});
  call.functions.push_back(std::move(f));
}

void AttentionFunctions::Add(Call& call, TensorId beside, bool of_head, bool starts) {
  beside_ = beside;
  if (starts) tilt_ = TiltOf(g_, a_);
  call.config.push_back({attention::kTilted, tilt_ ? 1 : 0});
  const bool is_bf16 = beside == graph::kAbsent || g_[beside].dtype == DType::kBF16;
  call.config.push_back({attention::kBesideBf16, is_bf16 ? 1 : 0});
  AddScore(call, false);
  AddScore(call, true);
  if (tilt_)
    AddTiltedFactor(call);
  else
    AddFactor(b_, a_.score, FactorOf(g_, a_), call);
  AddLimits(b_, a_.score, MasksOf(g_, a_), call, true);
  const std::vector<ScoreMask> masks = MasksOf(g_, a_);
  call.config.push_back({attention::kIntervals, of_head && (starts || EndsInMemory(g_, masks)) &&
                                                        !masks.empty() && HasIntervals(g_, masks)
                                                    ? 1
                                                    : 0});
  call.config.push_back({attention::kBegins, HidesFirstKeys(g_, masks) ? 1 : 0});
  call.config.push_back({attention::kTails, EndsInMemory(g_, MasksOf(g_, a_)) ? 1 : 0});
  AddWeight(call);
  AddResults(call);
}

void AttentionFunctions::AddResults(Call& call) {
  AddFinish(call);
  AddRows(call);
  AddFirst(call);
}

}  // namespace kiln::compiler
