// Sums with error bounds, and broadcast indexing: what the families share.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {

void Accumulator::Add(double term, double error) {
  sum_ += term;
  magnitude_ += std::fabs(term);
  error_ += error;
  ++terms_;
}

Value Accumulator::Result(DType compute, double sum_roundoff) const {
  const auto n = static_cast<double>(terms_);
  const double growth = std::min(n, 4 + 2 * std::sqrt(n));
  const double roundoff = UnitRoundoff(compute) * growth + sum_roundoff;
  const double error = static_cast<double>(error_ + roundoff * magnitude_);
  return Finish(sum_, error, compute);
}

Value Finish(long double value, double error, DType compute) {
  auto v = static_cast<double>(value);
  if (!std::isfinite(v)) return {.v = v, .e = std::isinf(error) && std::isinf(v) ? error : 0};
  if (!IsFloating(compute)) return {.v = v, .e = error};
  // A value next to the compute type's overflow may come out either way.
  const double highest = Row(compute).highest;
  const bool low_overflows = std::fabs(v) - error > highest;
  const bool high_overflows = std::fabs(v) + error > highest;
  if (low_overflows)
    return {.v = std::copysign(std::numeric_limits<double>::infinity(), v), .e = 0};
  if (high_overflows) return {.v = v, .e = std::numeric_limits<double>::infinity()};
  // Results below the smallest normal number may be flushed to zero.
  if (UnitRoundoff(compute) > 0 && v != 0 && error > 0)
    error += std::ldexp(1.0, Row(compute).min_exponent);
  return {.v = v, .e = error};
}

size_t BroadcastIndex(const Dims& dims, const Dims& index) {
  int64_t at = 0;
  const size_t skip = index.size() - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) at = at * dims[i] + (dims[i] == 1 ? 0 : index[i + skip]);
  return static_cast<size_t>(at);
}

}  // namespace kiln::oracle
