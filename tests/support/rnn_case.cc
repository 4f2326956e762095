#include "tests/support/rnn_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "ir/graph/ops.h"
#include "tests/support/oracle/oracle.h"

namespace kiln::testing {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::RnnBias;
using graph::RnnCell;
using graph::TensorId;
using Doubles = std::vector<double>;

int64_t Directions(const RnnCase& c) { return c.attrs.bidirectional ? 2 : 1; }
int64_t OutputWidth(const RnnCase& c) { return Directions(c) * c.attrs.projected; }
int64_t States(const RnnCase& c) { return c.attrs.layers * Directions(c); }

oracle::RnnNetwork NetworkOf(const RnnCase& c) {
  const graph::RnnAttrs& a = c.attrs;
  return {.cell = static_cast<oracle::RnnNetwork::Cell>(a.cell),
          .input_bias = a.bias == RnnBias::kDouble || a.bias == RnnBias::kSingleInput,
          .recurrent_bias = a.bias == RnnBias::kDouble || a.bias == RnnBias::kSingleRecurrent,
          .layers = a.layers,
          .directions = Directions(c),
          .input = c.input,
          .hidden = a.hidden,
          .projected = a.projected,
          .skip_input = a.skip_input,
          .clips = a.clip,
          .clip_keeps_nan = a.clip_propagates_nan,
          .clip_low = a.clip_lower,
          .clip_high = a.clip_upper,
          .fill = a.padding,
          .round = [type = c.type](double v) { return RoundTo(type, v); }};
}

// Places [t,b] of the rows of memory, in memory's row-major order.
std::vector<std::pair<int64_t, int64_t>> Rows(const RnnCase& c) {
  std::vector<std::pair<int64_t, int64_t>> rows;
  for (int64_t t = 0; t < c.steps; ++t)
    for (int64_t b = 0; b < c.batch; ++b)
      if (c.layout != RnnLayout::kPacked || t < c.Length(b)) rows.emplace_back(t, b);
  return rows;
}

// Between a graph's values and those of [T,B,width].
Doubles Spread(const RnnCase& c, const Doubles& values, int64_t width) {
  Doubles all(c.steps * c.batch * width, 0);
  size_t at = 0;
  for (const auto& [t, b] : Rows(c))
    for (int64_t i = 0; i < width; ++i) all[(t * c.batch + b) * width + i] = values[at++];
  return all;
}
Doubles Gathered(const RnnCase& c, const Doubles& all, int64_t width) {
  Doubles values;
  for (const auto& [t, b] : Rows(c))
    for (int64_t i = 0; i < width; ++i) values.push_back(all[(t * c.batch + b) * width + i]);
  return values;
}

class GraphWriter {
 public:
  explicit GraphWriter(const RnnCase& c) : c_(c), random_(c.seed) {}

  RnnGraph Write(bool training) {
    const graph::RnnAttrs& a = c_.attrs;
    const int64_t weights = oracle::RnnWeights(NetworkOf(c_));
    const Dims states = {States(c_), c_.batch, a.projected},
               cells = {States(c_), c_.batch, a.hidden};
    const bool lstm = a.cell == RnnCell::kLstm;
    graph::RnnAttrs attrs = a;
    attrs.steps = c_.layout == RnnLayout::kPacked ? c_.steps : 0;
    g_.x = Data("x", c_.input, true);
    g_.w = Input("w", c_.type, {weights}, 1 / std::sqrt(static_cast<double>(a.hidden)));
    g_.hx = c_.has_hx ? Input("hx", c_.type, states, 1) : kAbsent;
    g_.cx = c_.has_cx && lstm ? Input("cx", c_.type, cells, 1) : kAbsent;
    const TensorId lengths = Lengths();
    TensorId seed = kAbsent, offset = kAbsent;
    if (a.dropout > 0) {
      seed = Integer("seed", 77 + static_cast<double>(c_.seed));
      offset = Integer("offset", 5);
    }
    g_.y = Data("y", OutputWidth(c_), false);
    g_.hy = c_.wants_states ? Output("hy", states) : kAbsent;
    g_.cy = c_.wants_states && lstm ? Output("cy", cells) : kAbsent;
    g_.reserve = training ? Output("reserve", {}) : kAbsent;
    Node(GraphOp::kRnnForward, {g_.x, g_.w, g_.hx, g_.cx, lengths, seed, offset},
         {g_.y, g_.hy, g_.cy, g_.reserve}, attrs);
    if (training) {
      g_.dy = Data("dy", OutputWidth(c_), true);
      g_.dhy = c_.has_dhy ? Input("dhy", c_.type, states, 1) : kAbsent;
      g_.dcy = c_.has_dcy && lstm ? Input("dcy", c_.type, cells, 1) : kAbsent;
      g_.dx = Data("dx", c_.input, false);
      g_.gradients = Output("gradients", {});
      g_.dhx = c_.wants_states ? Output("dhx", states) : kAbsent;
      g_.dcx = c_.wants_states && lstm ? Output("dcx", cells) : kAbsent;
      Node(GraphOp::kRnnBackwardData,
           {g_.y, g_.dy, g_.w, g_.reserve, g_.hx, g_.cx, g_.dhy, g_.dcy, lengths},
           {g_.dx, g_.gradients, g_.dhx, g_.dcx}, attrs);
      g_.before = c_.has_before ? Input("before", c_.type, {weights}, 1) : kAbsent;
      g_.dw = Output("dw", {weights});
      Node(GraphOp::kRnnBackwardWeights,
           {g_.x, g_.y, g_.reserve, g_.gradients, g_.hx, lengths, g_.before}, {g_.dw}, attrs);
    }
    const Status status = graph::InferShapes(g_.graph);
    if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
    return std::move(g_);
  }

 private:
  TensorId Add(std::string name, DType type, Dims dims, Dims strides = {}) {
    if (strides.empty() && !dims.empty()) strides = PackedStrides(dims);
    const int64_t uid = ++uids_;
    return g_.graph.AddTensor({.name = std::move(name),
                               .uid = uid,
                               .dtype = type,
                               .dims = std::move(dims),
                               .strides = std::move(strides)});
  }
  TensorId Output(std::string name, Dims dims) {
    return Add(std::move(name), c_.type, std::move(dims));
  }
  double Draw(double scale) {
    return RoundTo(c_.type, std::uniform_real_distribution<double>(-scale, scale)(random_));
  }
  TensorId Input(std::string name, DType type, Dims dims, double scale) {
    Doubles values(static_cast<size_t>(NumElements(dims)));
    for (double& v : values) v = Draw(scale);
    const TensorId id = Add(std::move(name), type, std::move(dims));
    g_.inputs[id] = std::move(values);
    return id;
  }
  TensorId Integer(std::string name, double value) {
    const TensorId id = Add(std::move(name), DType::kI64, {1});
    g_.inputs[id] = {value};
    return id;
  }
  TensorId Lengths() {
    if (c_.lengths.empty()) return kAbsent;
    const TensorId id = Add("lengths", DType::kI32, {c_.batch});
    // Lengths of all steps may say more, those of none less.
    for (int64_t length : c_.lengths) {
      if (c_.seed % 3 == 0 && length == c_.steps) length += 2;
      if (c_.seed % 3 == 0 && length == 0) length = -1;
      g_.inputs[id].push_back(static_cast<double>(length));
    }
    return id;
  }
  TensorId Data(std::string name, int64_t width, bool is_input) {
    const auto rows = Rows(c_);
    Dims dims = {c_.steps, c_.batch, width}, strides;
    if (c_.layout == RnnLayout::kPacked) dims = {static_cast<int64_t>(rows.size()), width};
    if (c_.layout == RnnLayout::kBatchMajor) strides = {width, c_.steps * width, 1};
    const TensorId id = Add(std::move(name), c_.type, std::move(dims), std::move(strides));
    if (!is_input) return id;
    Doubles& values = g_.inputs[id];
    for (const auto& [t, b] : rows)
      for (int64_t i = 0; i < width; ++i)
        values.push_back(t < c_.Length(b) ? Draw(1) : std::numeric_limits<double>::quiet_NaN());
    return id;
  }
  void Node(GraphOp op, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
            const graph::RnnAttrs& attrs) {
    g_.graph.AddNode({.op = op,
                      .inputs = std::move(inputs),
                      .outputs = std::move(outputs),
                      .compute = c_.type == DType::kF64 ? DType::kF64 : DType::kF32,
                      .attrs = attrs,
                      .name = ""});
  }

  const RnnCase& c_;
  RnnGraph g_;
  std::mt19937_64 random_;
  int64_t uids_ = 0;
};

std::vector<Doubles> Masks(const RnnCase& c) {
  std::vector<Doubles> masks;
  const double p = c.attrs.dropout;
  if (p == 0) return masks;
  const int64_t count = c.steps * c.batch * OutputWidth(c);
  for (int64_t l = 0; l + 1 < c.attrs.layers; ++l) {
    Doubles mask(count);
    for (int64_t i = 0; i < count; ++i) {
      const auto half = oracle::RandomHalf(l * count + i, 77 + static_cast<int64_t>(c.seed), 5);
      const bool kept = half * 0x1p-16 < static_cast<double>(static_cast<float>(1 - p));
      mask[i] = kept && p < 1 ? 1 / (1 - p) : 0;
    }
    masks.push_back(std::move(mask));
  }
  return masks;
}

Doubles ValuesOr(const graph::TensorValues& values, TensorId id) {
  return id == kAbsent ? Doubles() : values.at(id);
}

std::string CompareOne(const Graph& g, TensorId id, const Doubles& want, const Doubles& got,
                       double tolerance) {
  double largest = 0;
  for (const double v : want)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  if (want.size() != got.size())
    return fmt::format("%{} has {} elements, not {}", g[id].name, got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const bool both_nan = std::isnan(want[i]) && std::isnan(got[i]);
    if (both_nan || std::abs(want[i] - got[i]) <= tolerance * std::max(largest, 1e-3)) continue;
    return fmt::format("%{} element {} is {}, not {} (largest {}, tolerance {})", g[id].name, i,
                       got[i], want[i], largest, tolerance);
  }
  return {};
}

}  // namespace

std::string RnnCase::Text() const {
  return fmt::format(
      "{} {} bias {} L{} H{} P{} {}{}{} T{} B{} I{} {} lengths {} layout {} hx {} cx {} dhy {} dcy "
      "{} states {} dropout {} fill {} seed {}",
      graph::Text(attrs.cell), kiln::Info(type).text, graph::Text(attrs.bias), attrs.layers,
      attrs.hidden, attrs.projected, attrs.bidirectional ? "bidirectional " : "",
      attrs.skip_input ? "skip " : "", attrs.clip ? "clip" : "", steps, batch, input,
      has_before ? "adds" : "", fmt::join(lengths, ","), static_cast<int>(layout), has_hx, has_cx,
      has_dhy, has_dcy, wants_states, attrs.dropout, attrs.padding, seed);
}

RnnCase RandomRnnCase(uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15u + 7);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const auto chance = [&](int64_t percent) { return below(100) < percent; };
  constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  constexpr int64_t kHidden[] = {1, 3, 4, 5, 8, 17};
  RnnCase c{.type = kTypes[below(4)],
            .steps = 1 + below(5),
            .batch = 1 + below(5),
            .input = 1 + below(6),
            .layout = static_cast<RnnLayout>(below(3)),
            .has_hx = chance(60),
            .has_cx = chance(60),
            .has_dhy = chance(60),
            .has_dcy = chance(60),
            .wants_states = chance(80),
            .has_before = chance(50),
            .seed = seed};
  graph::RnnAttrs& a = c.attrs;
  a.cell = static_cast<RnnCell>(below(4));
  a.bias = static_cast<RnnBias>(below(4));
  a.layers = 1 + below(3);
  a.hidden = a.projected = kHidden[below(6)];
  a.bidirectional = chance(45);
  a.skip_input = chance(20);
  if (a.skip_input) c.input = a.hidden;
  if (a.cell == RnnCell::kLstm && a.hidden > 1 && chance(40)) a.projected = 1 + below(a.hidden - 1);
  if (a.cell == RnnCell::kLstm && chance(30)) {
    a.clip = true;
    a.clip_propagates_nan = chance(50);
    a.clip_lower = -0.125;
    a.clip_upper = 0.25;
  }
  if (chance(25)) a.dropout = chance(10) ? 1 : 0.25;
  if (chance(40)) a.padding = 7.5;
  if (c.layout == RnnLayout::kPacked || chance(60)) {
    for (int64_t b = 0; b < c.batch; ++b) c.lengths.push_back(below(c.steps + 1));
    if (c.layout == RnnLayout::kPacked) {
      for (int64_t& length : c.lengths) length = std::max<int64_t>(length, 1);
      c.lengths[0] = c.steps;
      std::ranges::sort(c.lengths, std::greater<>());
    }
  }
  return c;
}

RnnGraph InferenceGraph(const RnnCase& c) { return GraphWriter(c).Write(false); }
RnnGraph TrainingGraph(const RnnCase& c) { return GraphWriter(c).Write(true); }

RnnExpected Expect(const RnnCase& c, const RnnGraph& g, bool training) {
  const oracle::RnnNetwork net = NetworkOf(c);
  oracle::RnnOperands in{.steps = c.steps,
                         .batch = c.batch,
                         .x = Spread(c, g.inputs.at(g.x), c.input),
                         .w = g.inputs.at(g.w),
                         .hx = ValuesOr(g.inputs, g.hx),
                         .cx = ValuesOr(g.inputs, g.cx)};
  for (int64_t b = 0; b < c.batch; ++b) in.lengths.push_back(c.Length(b));
  if (training) in.masks = Masks(c);
  RnnExpected out{.results = oracle::RunRnn(net, in)};
  out.results.y = Gathered(c, out.results.y, OutputWidth(c));
  if (!training) return out;
  const oracle::RnnSlopes slopes{.dy = Spread(c, g.inputs.at(g.dy), OutputWidth(c)),
                                 .dhy = ValuesOr(g.inputs, g.dhy),
                                 .dcy = ValuesOr(g.inputs, g.dcy)};
  out.gradients = oracle::RunRnnBackward(net, in, slopes);
  out.gradients.dx = Gathered(c, out.gradients.dx, c.input);
  const Doubles before = ValuesOr(g.inputs, g.before);
  for (size_t i = 0; i < before.size(); ++i) out.gradients.dw[i] += before[i];
  return out;
}

namespace {

std::string CompareWith(const RnnCase& c, const RnnGraph& g, const graph::TensorValues& got,
                        bool training, double tolerance) {
  const RnnExpected want = Expect(c, g, training);
  const std::pair<TensorId, const Doubles*> rows[] = {
      {g.y, &want.results.y},     {g.hy, &want.results.hy},     {g.cy, &want.results.cy},
      {g.dx, &want.gradients.dx}, {g.dhx, &want.gradients.dhx}, {g.dcx, &want.gradients.dcx},
      {g.dw, &want.gradients.dw}};
  for (const auto& [id, values] : rows) {
    if (id == kAbsent) continue;
    std::string wrong = CompareOne(g.graph, id, *values, got.at(id), tolerance);
    if (!wrong.empty()) return wrong + "\n" + c.Text();
  }
  return {};
}

}  // namespace

std::string CompareRnn(const RnnCase& c, const RnnGraph& g, const graph::TensorValues& got,
                       bool training, double tolerance) {
  const std::string wrong = CompareWith(c, g, got, training, tolerance);
  if (wrong.empty() || !training || !c.attrs.clip || SizeOf(c.type) != 2) return wrong;
  // A gradient stops at a state that was clipped. One that lies within its own roundings of a bound
  // is on either side of it: what the network with bounds moved as far gives is right, too.
  const double roundings = c.type == DType::kF16 ? 0x1p-10 : 0x1p-7;
  for (const double lower : {1 - roundings, 1 + roundings})
    for (const double upper : {1 - roundings, 1 + roundings}) {
      RnnCase moved = c;
      moved.attrs.clip_lower *= lower;
      moved.attrs.clip_upper *= upper;
      if (CompareWith(moved, g, got, training, tolerance).empty()) return {};
    }
  return wrong;
}

double RnnTolerance(const RnnCase& c) {
  switch (c.type) {
    case DType::kF64:
      return 1e-12;
    case DType::kF32:
      return 2e-5;
    case DType::kF16:
      return 2e-2;
    default:
      return 1.2e-1;
  }
}

}  // namespace kiln::testing
