// Softmax, the mask of a diagonal band and rotary embedding, as one operation each. What a softmax
// or a rotation may err by follows from its steps, each by its own rule.
#include <cmath>
#include <numbers>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

Dense Step(std::string_view mode, std::initializer_list<const Dense*> operands, const Dims& out,
           DType compute) {
  const std::vector<const Dense*> list = operands;
  return Pointwise(*FindPointwiseMode(mode), {}, list, out, compute);
}

bool Holds(std::string_view comparison, int64_t a, int64_t b) {
  if (comparison == "eq") return a == b;
  if (comparison == "neq") return a != b;
  if (comparison == "gt") return a > b;
  if (comparison == "ge") return a >= b;
  return comparison == "lt" ? a < b : a <= b;
}

}  // namespace

SoftmaxResult Softmax(const Dense& x, const Dense* sink, bool log2, DType compute) {
  Dims rows = x.dims;
  rows.back() = 1;
  SoftmaxResult r;
  r.max = Reduction(Reduce::kMax, x, rows, compute);
  if (sink != nullptr) r.max = Step("max", {&r.max, sink}, rows, compute);
  const Dense shifted = Step("sub", {&x, &r.max}, x.dims, compute);
  const Dense exp = Step("exp", {&shifted}, x.dims, compute);
  r.sum = Reduction(Reduce::kAdd, exp, rows, compute);
  if (sink != nullptr) {
    const Dense below = Step("sub", {sink, &r.max}, rows, compute);
    const Dense of_sink = Step("exp", {&below}, rows, compute);
    r.sum = Step("add", {&r.sum, &of_sink}, rows, compute);
  }
  r.y = Step("div", {&exp, &r.sum}, x.dims, compute);
  const Dense log = Step("log", {&r.sum}, rows, compute);
  r.stats = Step("add", {&r.max, &log}, rows, compute);
  if (log2) {
    const Dense factor = Dense::Of(Dims(rows.size(), 1), {std::numbers::log2e});
    r.stats = Step("mul", {&r.stats, &factor}, rows, compute);
  }
  return r;
}

Dense BandMask(const BandMaskInputs& in) {
  const size_t rank = in.x->dims.size();
  Dense y{.dims = in.x->dims, .values = {}};
  if (Count(y.dims) == 0) return y;
  const auto at = [&](const Dense* t, const Dims& index) {
    return t == nullptr ? 0 : static_cast<int64_t>(t->values[BroadcastIndex(t->dims, index)].v);
  };
  Dims index(rank, 0);
  do {
    int64_t len_q = at(in.len_q, index), len_kv = at(in.len_kv, index);
    for (const auto& [cumulative, length] : {std::pair{in.cu_q, &len_q}, {in.cu_kv, &len_kv}}) {
      if (cumulative == nullptr) continue;
      Dims from(rank, 0), to(rank, 0);
      from[0] = index[0];
      to[0] = index[0] + 1;
      *length = at(cumulative, to) - at(cumulative, from);
    }
    const int64_t row = index[rank - 2], column = index[rank - 1];
    const bool seen =
        in.left != nullptr
            ? Holds(in.comparison, column + at(in.left, index) - len_kv + len_q, row)
            : Holds(in.comparison, row + len_kv - len_q + at(in.shift, index), column);
    y.values.push_back(seen                 ? in.x->values[BroadcastIndex(in.x->dims, index)]
                       : in.fill != nullptr ? in.fill->values[BroadcastIndex(in.fill->dims, index)]
                                            : Value{-INFINITY, 0});
  } while (Next(y.dims, index));
  return y;
}

Dense Rope(const Rotation& in, DType compute) {
  const Dims& dims = in.x->dims;
  const size_t rank = dims.size();
  const int64_t turned = in.rope_dim == 0 ? dims[rank - 1] : in.rope_dim, half = turned / 2,
                begin = dims[rank - 1] - turned, width = in.angles->dims[rank - 1];
  const auto one = [](Value v) { return Dense{.dims = {1}, .values = {v}}; };
  const auto of = [&](std::string_view mode, Value a) {
    const Dense x = one(a);
    return Step(mode, {&x}, {1}, compute).values[0];
  };
  const auto with = [&](std::string_view mode, Value a, Value b) {
    const Dense x = one(a), y = one(b);
    return Step(mode, {&x, &y}, {1}, compute).values[0];
  };
  const Value scale{.v = in.scale, .e = 0};
  const auto scaled = [&](Value v) { return in.scale == 1 ? v : with("mul", v, scale); };

  Dense y{.dims = dims, .values = {}};
  if (Count(dims) == 0) return y;
  Dims index(rank, 0);
  do {
    const Value own = in.x->values[BroadcastIndex(dims, index)];
    const int64_t j = index[rank - 1] - begin;
    if (j < 0) {
      y.values.push_back(scaled(own));
      continue;
    }
    Dims place = index;  // of the other one of the pair
    place[rank - 1] += j < half ? half : -half;
    const Value other = in.x->values[BroadcastIndex(dims, place)];
    const Value angle = in.angles->values[static_cast<size_t>(index[rank - 2] * width + j % half)];
    const Value by_cos = with("mul", own, scaled(of("cos", angle)));
    const Value by_sin = with("mul", other, scaled(of("sin", angle)));
    const bool adds = (j < half) == in.is_backward;
    y.values.push_back(with(adds ? "add" : "sub", by_cos, by_sin));
  } while (Next(dims, index));
  return y;
}

}  // namespace kiln::oracle
