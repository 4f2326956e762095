// Block scales, one element after the other: the scale of an element is found by its index.
#include <algorithm>
#include <cmath>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

size_t ScaleOf(const Dims& scale_dims, const Dims& blocks, const Dims& index) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at = at * scale_dims[d] + index[d] / blocks[d];
  return static_cast<size_t>(at);
}

// The least number of the type that is no smaller than `value`, found by walking up from 0.
double LeastAbove(DType type, double value) {
  if (type == DType::kF32 || type == DType::kF64) return Round(type, value);
  double at = type == DType::kE8M0 ? Row(type).lowest : 0;
  while (at < value && at < Row(type).highest) at += Ulp(type, at);
  return at;
}

}  // namespace

Dense BlockScaleDequantize(const Dense& x, const Dense& scale, const Dims& blocks, DType compute) {
  Dense y{.dims = x.dims, .values = {}};
  if (Count(x.dims) == 0) return y;
  Dims index(x.dims.size(), 0);
  for (size_t i = 0; i < x.values.size(); ++i, Next(x.dims, index)) {
    const Value a = x.values[i], b = scale.values[ScaleOf(scale.dims, blocks, index)];
    const double v = a.v * b.v;
    const double error = std::fabs(a.v) * b.e + std::fabs(b.v) * a.e + a.e * b.e +
                         UnitRoundoff(compute) * std::fabs(v);
    y.values.push_back(Finish(v, error, compute));
  }
  return y;
}

BlockQuantized BlockScaleQuantize(const Dense& x, const Dims& scale_dims, const Dims& blocks,
                                  DType y_type, DType scale_type, DType compute) {
  BlockQuantized result{
      .y = {.dims = x.dims, .values = {}},
      .scale = Dense::Of(scale_dims, std::vector<double>(static_cast<size_t>(Count(scale_dims))))};
  if (Count(x.dims) == 0) return result;
  auto& scales = result.scale.values;
  Dims index(x.dims.size(), 0);
  for (const Value a : x.values) {
    Value& most = scales[ScaleOf(scale_dims, blocks, index)];
    if (!std::isnan(a.v)) {
      most.v = std::max(most.v, std::fabs(a.v));
      most.e = std::max(most.e, a.e);
    }
    Next(x.dims, index);
  }
  for (Value& s : scales) {
    const double quotient = s.v / Row(y_type).highest;
    const double off = s.e / Row(y_type).highest + 2 * UnitRoundoff(compute) * quotient;
    // A quotient beside a number of the type may be rounded to either side of it.
    s.v = LeastAbove(scale_type, quotient);
    s.e = std::max(LeastAbove(scale_type, quotient + off) - s.v,
                   s.v - LeastAbove(scale_type, std::max(quotient - off, 0.0)));
  }
  index.assign(x.dims.size(), 0);
  for (const Value a : x.values) {
    const Value s = scales[ScaleOf(scale_dims, blocks, index)];
    const double v = s.v == 0 ? 0 : a.v / s.v;
    const double least = s.v - s.e;
    const double error = s.v == 0 ? 0
                                  : (a.e + std::fabs(v) * s.e) / std::max(least, s.v / 2) +
                                        2 * UnitRoundoff(compute) * std::fabs(v);
    result.y.values.push_back(Finish(v, error, compute));
    Next(x.dims, index);
  }
  return result;
}

}  // namespace kiln::oracle
