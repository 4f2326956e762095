// Reductions and batch norm statistics.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The operands of one output element.
using Terms = std::vector<Value>;

Value Sum(const Terms& terms, DType compute, double (*map)(double)) {
  Accumulator sum;
  for (const Value t : terms) {
    const double at = map(t.v);
    sum.Add(at, std::max(std::fabs(map(t.v + t.e) - at), std::fabs(map(t.v - t.e) - at)));
  }
  return sum.Result(compute);
}

// `keep_zeros` false: cudnn's MUL_NO_ZEROS.
Value Product(const Terms& terms, DType compute, bool keep_zeros) {
  long double product = 1, largest = 1;
  for (const Value t : terms) {
    if (!keep_zeros && t.v == 0) continue;
    product *= t.v;
    largest *= std::fabs(t.v) + t.e;
  }
  const double rounding = UnitRoundoff(compute) * static_cast<double>(terms.size());
  const auto spread = static_cast<double>(largest - std::fabs(product));
  return Finish(product, spread + rounding * static_cast<double>(largest), compute);
}

// Min is -max(-x). NaN is skipped, as fmax does.
Value Largest(const Terms& terms, double sign, bool absolute, double start) {
  double value = start, low = start, high = start;
  for (const Value t : terms) {
    if (std::isnan(t.v)) continue;
    const double at = absolute ? std::fabs(t.v) : sign * t.v;
    value = std::max(value, at);
    low = std::max(low, at - t.e);
    high = std::max(high, at + t.e);
  }
  if (!std::isfinite(value)) return {.v = sign * value, .e = 0};
  return {.v = sign * value, .e = std::max(high - value, value - low)};
}

Value Root(Value square, DType compute) {
  const double root = std::sqrt(square.v);
  const double spread = std::max(std::sqrt(square.v + square.e) - root,
                                 root - std::sqrt(std::max(0.0, square.v - square.e)));
  return Finish(root, spread + 4 * UnitRoundoff(compute) * root, compute);
}

Value Mean(Value sum, double count, DType compute) {
  return Finish(sum.v / count, sum.e / count + 4 * UnitRoundoff(compute) * std::fabs(sum.v / count),
                compute);
}

double Same(double x) { return x; }
double Square(double x) { return x * x; }
double Magnitude(double x) { return std::fabs(x); }

Value ReduceTerms(Reduce mode, const Terms& terms, DType compute) {
  switch (mode) {
    case Reduce::kAdd:
      return Sum(terms, compute, Same);
    case Reduce::kMul:
      return Product(terms, compute, true);
    case Reduce::kMin:
      return Largest(terms, -1, false, -kInf);
    case Reduce::kMax:
      return Largest(terms, 1, false, -kInf);
    case Reduce::kAmax:
      return Largest(terms, 1, true, 0);
    case Reduce::kAvg:
      return Mean(Sum(terms, compute, Same), static_cast<double>(terms.size()), compute);
    case Reduce::kNorm1:
      return Sum(terms, compute, Magnitude);
    case Reduce::kNorm2:
      return Root(Sum(terms, compute, Square), compute);
    case Reduce::kMulNoZeros:
      return Product(terms, compute, false);
  }
  return {};
}

std::vector<Terms> GroupTerms(const Dense& x, const Dims& out) {
  std::vector<Terms> groups(static_cast<size_t>(Count(out)));
  if (x.values.empty()) return groups;
  Dims index(x.dims.size(), 0);
  size_t at = 0;
  do {
    groups[BroadcastIndex(out, index)].push_back(x.values[at++]);
  } while (Next(x.dims, index));
  return groups;
}

}  // namespace

Dense Reduction(Reduce mode, const Dense& x, const Dims& out, DType compute) {
  Dense y{.dims = out, .values = {}};
  for (const Terms& terms : GroupTerms(x, out))
    y.values.push_back(ReduceTerms(mode, terms, compute));
  return y;
}

GenStatsResult GenStats(const Dense& x, DType compute) {
  Dims out(x.dims.size(), 1);
  out[1] = x.dims[1];
  GenStatsResult result{.sum = {.dims = out, .values = {}}, .sq_sum = {.dims = out, .values = {}}};
  for (const Terms& terms : GroupTerms(x, out)) {
    result.sum.values.push_back(Sum(terms, compute, Same));
    result.sq_sum.values.push_back(Sum(terms, compute, Square));
  }
  return result;
}

BnFinalizeResult BnFinalize(const BnFinalizeInputs& in, DType compute) {
  const double u = UnitRoundoff(compute);
  const Dims& dims = in.inference && in.prev_mean ? in.prev_mean->dims : in.sum->dims;
  BnFinalizeResult result;
  for (Dense* d : {&result.updated_mean, &result.updated_var, &result.saved_mean,
                   &result.saved_inv_std, &result.eq_scale, &result.eq_bias}) {
    d->dims = dims;
  }
  const auto at = [](const Dense* d, size_t i, double absent) {
    return d ? d->values[i] : Value{.v = absent, .e = 0};
  };
  for (size_t i = 0; i < static_cast<size_t>(Count(dims)); ++i) {
    const double running_mean = at(in.prev_mean, i, 0).v, running_var = at(in.prev_var, i, 0).v;
    double mean = running_mean, var = running_var, mean_error = 0, var_error = 0;
    if (!in.inference) {
      const Value sum = at(in.sum, i, 0), squares = at(in.sq_sum, i, 0);
      mean = sum.v / in.count;
      mean_error = sum.e / in.count + 4 * u * std::fabs(mean);
      const double mean_of_squares = squares.v / in.count;
      var = std::max(0.0, mean_of_squares - mean * mean);
      // The subtraction cancels: the error is of the size of its operands.
      var_error = squares.e / in.count + 2 * std::fabs(mean) * mean_error +
                  8 * u * (mean_of_squares + mean * mean);
    }
    const double inv_std = 1 / std::sqrt(var + in.epsilon);
    const double inv_error = inv_std * (8 * u + var_error / (var + in.epsilon));
    const double scale = at(in.scale, i, 1).v, bias = at(in.bias, i, 0).v;
    const double eq_scale = scale * inv_std,
                 eq_error = std::fabs(scale) * inv_error + 2 * u * std::fabs(eq_scale);
    const double eq_bias = bias - mean * eq_scale;
    const double bias_error = std::fabs(mean) * eq_error + mean_error * std::fabs(eq_scale) +
                              4 * u * (std::fabs(bias) + std::fabs(mean * eq_scale));
    const double unbiased = in.count > 1 ? var * in.count / (in.count - 1) : var;
    const double new_mean = (1 - in.factor) * running_mean + in.factor * mean;
    const double new_var = (1 - in.factor) * running_var + in.factor * unbiased;
    result.updated_mean.values.push_back(
        {new_mean, mean_error + 8 * u * (std::fabs(running_mean) + std::fabs(mean))});
    result.updated_var.values.push_back(
        {new_var, 2 * var_error + 8 * u * (running_var + unbiased)});
    result.saved_mean.values.push_back({mean, mean_error});
    result.saved_inv_std.values.push_back({inv_std, inv_error});
    result.eq_scale.values.push_back({eq_scale, eq_error});
    result.eq_bias.values.push_back({eq_bias, bias_error});
  }
  return result;
}

}  // namespace kiln::oracle
