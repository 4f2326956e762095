// The interval test of compare.h.
#include "tests/support/oracle/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln::oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Interval {
  double low, high;
};

double Allowed(DType dtype, Value expected, const Tolerance& tolerance) {
  double e = tolerance.scale * expected.e;
  if (tolerance.output_ulps > 0 && std::isfinite(expected.v))
    e += tolerance.output_ulps * Ulp(dtype, expected.v);
  return e;
}

Interval Bounds(DType dtype, Value expected, const Tolerance& tolerance) {
  const double e = Allowed(dtype, expected, tolerance);
  if (e == 0 || !std::isfinite(expected.v)) {
    const double exact = Round(dtype, expected.v);
    return {exact, exact};
  }
  return {Round(dtype, expected.v - e), Round(dtype, expected.v + e)};
}

// The distance that `actual` is out of place: at most 1 inside the interval.
double Ratio(DType dtype, Value expected, double actual, const Tolerance& tolerance) {
  const auto [low, high] = Bounds(dtype, expected, tolerance);
  if (std::isnan(low)) return std::isnan(actual) ? 0 : kInf;
  if (std::isnan(actual)) return kInf;
  const double want = Round(dtype, expected.v);
  if (actual == want) return 0;
  if (std::isinf(actual) || std::isinf(want)) return low <= actual && actual <= high ? 1 : kInf;
  const double room = actual > want ? high - want : want - low;
  return room > 0 ? std::fabs(actual - want) / room : kInf;
}

void Note(Comparison& result, double ratio, const Dims& index, double want, double got,
          DType dtype) {
  if (ratio > 1) ++result.wrong;
  if (ratio < result.worst_ratio || (ratio == result.worst_ratio && !result.worst_index.empty()))
    return;
  result.worst_ratio = ratio;
  result.worst_index = index;
  result.expected = want;
  result.actual = got;
  result.ulps = want == got ? 0 : std::fabs(got - want) / Ulp(dtype, want);
}

void Conclude(Comparison& result, const Tolerance& tolerance) {
  if (result.wrong > 0) {
    result.error = fmt::format("{} of {} elements are wrong; worst {}", result.wrong,
                               result.elements, result.Summary());
  } else if (static_cast<double>(result.unconstrained) >
             tolerance.max_unconstrained * static_cast<double>(result.elements)) {
    result.error =
        fmt::format("the oracle constrains only {} of {} elements: the case's data are unfit",
                    result.elements - result.unconstrained, result.elements);
  }
}

}  // namespace

std::string Comparison::Summary() const {
  return fmt::format("at {}: expected {:.9g}, got {:.9g}, {:.3g} ulp, {:.3g} of the tolerance",
                     ToText(worst_index), expected, actual, ulps, worst_ratio);
}

Comparison Compare(const Dense& expected, const Image& actual, const Tolerance& tolerance) {
  Comparison result;
  if (expected.dims != actual.dims) {
    result.error = fmt::format("expected dims {}, the tensor has {}", ToText(expected.dims),
                               ToText(actual.dims));
    return result;
  }
  if (Count(actual.dims) == 0) return result;
  Dims index(actual.dims.size(), 0);
  do {
    const Value want = expected.values[static_cast<size_t>(result.elements++)];
    const double got = actual.At(index);
    if (std::isinf(Allowed(actual.dtype, want, tolerance))) {
      ++result.unconstrained;
      continue;
    }
    Note(result, Ratio(actual.dtype, want, got, tolerance), index, Round(actual.dtype, want.v), got,
         actual.dtype);
  } while (Next(actual.dims, index));
  Conclude(result, tolerance);
  return result;
}

Comparison CompareImages(const Dense& expected, const Image& left, const Image& right,
                         const Tolerance& tolerance) {
  Comparison result;
  if (Count(left.dims) == 0) return result;
  Dims index(left.dims.size(), 0);
  do {
    const Value want = expected.values[static_cast<size_t>(result.elements++)];
    const double a = left.At(index);
    const double b = right.At(index);
    const double e = Allowed(left.dtype, want, tolerance);
    if (std::isinf(e)) {
      ++result.unconstrained;
      continue;
    }
    // Both may be off by e, in opposite directions.
    const Value around{.v = b, .e = std::isfinite(b) ? 2 * e + Ulp(left.dtype, b) / 2 : 0};
    Note(result, Ratio(left.dtype, around, a, {}), index, b, a, left.dtype);
  } while (Next(left.dims, index));
  Conclude(result, tolerance);
  return result;
}

}  // namespace kiln::oracle
