// Operations that move values and compute nothing.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

// Memory offset of each element in row-major order.
std::vector<int64_t> Offsets(const Dims& dims, const Dims& strides) {
  std::vector<int64_t> offsets;
  if (Count(dims) == 0) return offsets;
  Dims index(dims.size(), 0);
  do {
    int64_t at = 0;
    for (size_t i = 0; i < dims.size(); ++i) at += index[i] * strides[i];
    offsets.push_back(at);
  } while (Next(dims, index));
  return offsets;
}

bool IsDense(const std::vector<int64_t>& offsets) {
  std::vector<int64_t> sorted = offsets;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

}  // namespace

Dense Reshape(const Dense& x, const Dims& x_strides, const Dims& out, const Dims& out_strides) {
  const std::vector<int64_t> from = Offsets(x.dims, x_strides), to = Offsets(out, out_strides);
  Dense y{.dims = out, .values = x.values};
  if (!IsDense(from) || !IsDense(to)) return y;
  std::vector<Value> memory(x.values.size());
  for (size_t i = 0; i < from.size(); ++i) memory[static_cast<size_t>(from[i])] = x.values[i];
  for (size_t i = 0; i < to.size(); ++i) y.values[i] = memory[static_cast<size_t>(to[i])];
  return y;
}

Dense Transpose(const Dense& x, const Dims& permutation) {
  Dense y{.dims = Dims(x.dims.size()), .values = {}};
  for (size_t i = 0; i < permutation.size(); ++i)
    y.dims[i] = x.dims[static_cast<size_t>(permutation[i])];
  if (x.values.empty()) return y;
  Dims index(y.dims.size(), 0), source(y.dims.size(), 0);
  do {
    for (size_t i = 0; i < permutation.size(); ++i)
      source[static_cast<size_t>(permutation[i])] = index[i];
    y.values.push_back(x.values[BroadcastIndex(x.dims, source)]);
  } while (Next(y.dims, index));
  return y;
}

Dense Slice(const Dense& x, const Dims& start, const Dims& step, const Dims& out) {
  Dense y{.dims = out, .values = {}};
  if (Count(out) == 0) return y;
  Dims index(out.size(), 0), source(out.size(), 0);
  do {
    for (size_t i = 0; i < out.size(); ++i) source[i] = start[i] + index[i] * step[i];
    y.values.push_back(x.values[BroadcastIndex(x.dims, source)]);
  } while (Next(out, index));
  return y;
}

Dense Concat(std::span<const Dense* const> xs, int64_t axis) {
  const auto along = static_cast<size_t>(axis);
  Dense y{.dims = xs.front()->dims, .values = {}};
  y.dims[along] = 0;
  for (const Dense* x : xs) y.dims[along] += x->dims[along];
  if (Count(y.dims) == 0) return y;
  Dims index(y.dims.size(), 0);
  do {
    Dims source = index;
    size_t part = 0;
    while (source[along] >= xs[part]->dims[along]) source[along] -= xs[part++]->dims[along];
    y.values.push_back(xs[part]->values[BroadcastIndex(xs[part]->dims, source)]);
  } while (Next(y.dims, index));
  return y;
}

Value MayRound(DType dtype, Value x) {
  if (!std::isfinite(x.v)) return x;
  const double u = UnitRoundoff(dtype), tiny = std::ldexp(1.0, Row(dtype).min_exponent);
  return {.v = x.v, .e = x.e + u * (std::fabs(x.v) + x.e + tiny)};
}

Dense RoundTo(DType dtype, const Dense& x) {
  Dense y{.dims = x.dims, .values = {}};
  y.values.reserve(x.values.size());
  for (const Value in : x.values) {
    const double v = Round(dtype, in.v);
    if (!std::isfinite(in.v) || !std::isfinite(v) || std::isinf(in.e)) {
      const bool overflowed = std::isfinite(in.v) && std::isinf(v);
      y.values.push_back({.v = overflowed ? in.v : v,
                          .e = overflowed         ? std::fabs(v)
                               : std::isinf(in.e) ? in.e
                                                  : 0});
      continue;
    }
    const double kept = std::fabs(v - in.v) + in.e;
    const double up = std::fabs(Round(dtype, in.v + in.e) - v),
                 down = std::fabs(Round(dtype, in.v - in.e) - v);
    y.values.push_back({.v = v, .e = std::max({kept, up, down})});
  }
  return y;
}

}  // namespace kiln::oracle
