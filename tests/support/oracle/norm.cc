// Norms and their gradients, statistic by statistic. Errors are carried through each step: the
// rounding of a step is `kSlack` units, so that an implementation may contract or reorder products.
#include <algorithm>
#include <cmath>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

constexpr double kSlack = 3;

// Arithmetic on values with errors.
class Arithmetic {
 public:
  explicit Arithmetic(DType compute) : compute_(compute), u_(kSlack * UnitRoundoff(compute)) {}

  Value Add(Value a, Value b) const {
    const double v = a.v + b.v;
    return Made(v, a.e + b.e + u_ * (std::fabs(a.v) + std::fabs(b.v)));
  }
  Value Sub(Value a, Value b) const { return Add(a, {.v = -b.v, .e = b.e}); }
  Value Mul(Value a, Value b) const {
    const double v = a.v * b.v;
    return Made(v, std::fabs(a.v) * b.e + std::fabs(b.v) * a.e + a.e * b.e + u_ * std::fabs(v));
  }
  Value Divide(Value a, double by) const {
    return Made(a.v / by, a.e / by + u_ * std::fabs(a.v / by));
  }
  // 1 / sqrt(a + epsilon); a is no less than 0 whatever its error.
  Value InverseRoot(Value a, double epsilon) const {
    const double v = 1 / std::sqrt(a.v + epsilon);
    const double most = 1 / std::sqrt(std::max(0.0, a.v - a.e) + epsilon);
    const double least = 1 / std::sqrt(a.v + a.e + epsilon);
    return Made(v, std::max(most - v, v - least) + 2 * u_ * v);
  }
  Value Sum(const std::vector<Value>& terms) const {
    Accumulator sum;
    for (const Value t : terms) sum.Add(t.v, t.e);
    return sum.Result(compute_);
  }
  Value Mean(const std::vector<Value>& terms) const {
    return Divide(Sum(terms), static_cast<double>(terms.size()));
  }

 private:
  Value Made(double v, double error) const { return Finish(v, error, compute_); }

  DType compute_;
  double u_;
};

Value At(const Dense* d, size_t i, double absent) {
  return d != nullptr ? d->values[i] : Value{.v = absent, .e = 0};
}

// The elements of x that belong to each statistic, and for each element its place in the weights.
struct Places {
  std::vector<std::vector<size_t>> members;
  std::vector<size_t> of;
};

// `groups` of channels share a statistic where stats has fewer channels than x, more than one.
Places PlacesOf(const Dims& x, const Dims& stats) {
  Places p;
  p.members.resize(static_cast<size_t>(Count(stats)));
  if (Count(x) == 0) return p;
  Dims index(x.size(), 0);
  do {
    Dims at = index;
    for (size_t d = 0; d < x.size(); ++d) at[d] = index[d] / (x[d] / stats[d]);
    size_t place = 0;
    for (size_t d = 0; d < x.size(); ++d)
      place = place * static_cast<size_t>(stats[d]) + static_cast<size_t>(at[d]);
    p.members[place].push_back(p.of.size());
    p.of.push_back(place);
  } while (Next(x, index));
  return p;
}

std::vector<size_t> WeightsPlaces(const Dims& x, const Dims& weights) {
  std::vector<size_t> places;
  if (Count(x) == 0) return places;
  Dims index(x.size(), 0);
  do {
    Dims last(index.end() - static_cast<int64_t>(weights.size()), index.end());
    places.push_back(BroadcastIndex(weights, last));
  } while (Next(x, index));
  return places;
}

// A weight of each element of x.
std::vector<Value> Weights(const Dims& x, const Dense* weights, double absent) {
  if (weights == nullptr)
    return std::vector<Value>(static_cast<size_t>(Count(x)), Value{.v = absent, .e = 0});
  std::vector<Value> values;
  for (const size_t place : WeightsPlaces(x, weights->dims))
    values.push_back(weights->values[place]);
  return values;
}

Dense Empty(const Dims& dims) {
  return {.dims = dims, .values = std::vector<Value>(static_cast<size_t>(Count(dims)))};
}

// The sums over the elements of x that one weight scales.
Dense SumTo(const Arithmetic& math, const Dims& x, const std::vector<Value>& terms,
            const Dims& weights) {
  std::vector<std::vector<Value>> groups(static_cast<size_t>(Count(weights)));
  const std::vector<size_t> places = WeightsPlaces(x, weights);
  for (size_t i = 0; i < terms.size(); ++i) groups[places[i]].push_back(terms[i]);
  Dense sums{.dims = weights, .values = {}};
  for (const auto& group : groups) sums.values.push_back(math.Sum(group));
  return sums;
}

std::vector<Value> Pick(const std::vector<Value>& values, const std::vector<size_t>& members) {
  std::vector<Value> picked;
  for (const size_t i : members) picked.push_back(values[i]);
  return picked;
}

}  // namespace

Dims NormStats(Norm mode, const Dims& x, const Dense* scale, const Dense* bias) {
  Dims stats(x.size(), 1);
  if (mode == Norm::kBatch || mode == Norm::kInstance) {
    stats[1] = x[1];
    if (mode == Norm::kInstance) stats[0] = x[0];
    return stats;
  }
  for (size_t d = 0; d < x.size(); ++d) {
    bool weighed = scale == nullptr && bias == nullptr && d > 0;
    for (const Dense* w : {scale, bias}) {
      const size_t missing = w == nullptr ? 0 : x.size() - w->dims.size();
      weighed |= w != nullptr && d >= missing && w->dims[d - missing] != 1;
    }
    if (!weighed || (mode == Norm::kAdaLayer && d == 0)) stats[d] = x[d];
  }
  return stats;
}

NormForwardResult NormForward(const NormForwardInputs& in, DType compute) {
  const Arithmetic math(compute);
  const Dims& dims = in.x->dims;
  const Places places = PlacesOf(dims, in.stats);
  const std::vector<Value> scale = Weights(dims, in.scale, 1), bias = Weights(dims, in.bias, 0);
  NormForwardResult r{.y = Empty(dims),
                      .mean = Empty(in.stats),
                      .inv_variance = Empty(in.stats),
                      .next_mean = Empty(in.stats),
                      .next_var = Empty(in.stats)};
  const auto blend = [&](const Dense* before, size_t s, Value now) {
    const double f = in.factor;
    return math.Add(
        math.Mul({.v = 1 - f, .e = std::fabs(1 - f) * UnitRoundoff(compute)}, At(before, s, 0)),
        math.Mul({.v = f, .e = 0}, now));
  };
  for (size_t s = 0; s < places.members.size(); ++s) {
    const std::vector<size_t>& members = places.members[s];
    const std::vector<Value> x = Pick(in.x->values, members);
    const auto n = static_cast<double>(members.size());
    Value mean = At(in.mean, s, 0), inv = At(in.inv_variance, s, 0);
    if (in.inv_variance == nullptr) {
      mean = in.mode == Norm::kRms ? Value{} : math.Mean(x);
      std::vector<Value> squares;
      for (const Value value : x) {
        const Value centred = in.mode == Norm::kRms ? value : math.Sub(value, mean);
        squares.push_back(math.Mul(centred, centred));
      }
      const Value variance = math.Mean(squares);
      inv = math.InverseRoot(variance, in.epsilon);
      r.next_mean.values[s] = blend(in.running_mean, s, mean);
      const Value unbiased = n > 1 ? math.Mul(variance, {.v = n / (n - 1), .e = 0}) : variance;
      r.next_var.values[s] = blend(in.running_var, s, unbiased);
    }
    r.mean.values[s] = mean;
    r.inv_variance.values[s] = inv;
    for (size_t i = 0; i < members.size(); ++i) {
      const Value centred = in.mode == Norm::kRms ? x[i] : math.Sub(x[i], mean);
      const Value xhat = math.Mul(centred, inv);
      r.y.values[members[i]] = math.Add(math.Mul(xhat, scale[members[i]]), bias[members[i]]);
    }
  }
  return r;
}

NormBackwardResult NormBackward(const NormBackwardInputs& in, DType compute) {
  const Arithmetic math(compute);
  const Dims& dims = in.x->dims;
  const Dims& stats = in.inv_variance->dims;
  const Places places = PlacesOf(dims, stats);
  const std::vector<Value> scale = Weights(dims, in.scale, 1);
  std::vector<Value> g, xhat, by_xhat;
  for (size_t i = 0; i < in.x->values.size(); ++i) {
    const size_t s = places.of[i];
    const Value centred =
        in.mean == nullptr ? in.x->values[i] : math.Sub(in.x->values[i], in.mean->values[s]);
    xhat.push_back(math.Mul(centred, in.inv_variance->values[s]));
    g.push_back(math.Mul(in.dy->values[i], scale[i]));
    by_xhat.push_back(math.Mul(g[i], xhat[i]));
  }
  NormBackwardResult r{.dx = Empty(dims), .dscale = {}, .dbias = {}};
  for (size_t s = 0; s < places.members.size(); ++s) {
    const std::vector<size_t>& members = places.members[s];
    if (members.empty()) continue;
    const Value mean_g = in.mean == nullptr ? Value{} : math.Mean(Pick(g, members));
    const Value mean_by_xhat = math.Mean(Pick(by_xhat, members));
    for (const size_t i : members) {
      const Value inner = math.Sub(math.Sub(g[i], mean_g), math.Mul(xhat[i], mean_by_xhat));
      r.dx.values[i] = math.Mul(inner, in.inv_variance->values[s]);
    }
  }
  std::vector<Value> weighed;
  for (size_t i = 0; i < g.size(); ++i) weighed.push_back(math.Mul(in.dy->values[i], xhat[i]));
  r.dscale = SumTo(math, dims, weighed, in.weights);
  r.dbias = SumTo(math, dims, in.dy->values, in.weights);
  return r;
}

BnBwdWeightsResult BnBwdWeights(const BnBwdWeightsInputs& in, DType compute) {
  const Arithmetic math(compute);
  const Dims stats = in.mean->dims;
  const NormBackwardResult gradients = NormBackward({.x = in.x,
                                                     .dy = in.dy,
                                                     .mean = in.mean,
                                                     .inv_variance = in.inv_std,
                                                     .scale = nullptr,
                                                     .weights = stats},
                                                    compute);
  BnBwdWeightsResult r{.dscale = gradients.dscale,
                       .dbias = gradients.dbias,
                       .eq_dy_scale = Empty(stats),
                       .eq_x_scale = Empty(stats),
                       .eq_bias = Empty(stats)};
  const double n = static_cast<double>(Count(in.x->dims)) / static_cast<double>(Count(stats));
  // dx = a * (dy - dbias / n - (x - mean) * inv * dscale / n), a = scale * inv, sorted by dy and x
  for (size_t c = 0; c < r.eq_bias.values.size(); ++c) {
    const Value inv = in.inv_std->values[c];
    const Value a = math.Mul(At(in.scale, c, 1), inv);
    const Value per_x = math.Divide(math.Mul(math.Mul(a, inv), r.dscale.values[c]), n);
    r.eq_dy_scale.values[c] = a;
    r.eq_x_scale.values[c] = {.v = -per_x.v, .e = per_x.e};
    r.eq_bias.values[c] = math.Sub(math.Mul(per_x, in.mean->values[c]),
                                   math.Divide(math.Mul(a, r.dbias.values[c]), n));
  }
  return r;
}

}  // namespace kiln::oracle
