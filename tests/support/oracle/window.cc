// Resampling, by lists of taps: what each output reads and with which weight. The gradient adds
// along the same lists backwards.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// One element that an output reads. `at` is the row-major element of x; -1: padding of the value
// `pad`.
struct Tap {
  int64_t at;
  double weight, pad;
  int64_t number;
};

// Along one dim: the element (or a place outside) and its weight.
struct Step {
  int64_t element;
  double weight;
};

std::vector<Step> StepsOf(const Window& w, size_t s, int64_t p) {
  const int64_t unit = w.unit[s];
  if (w.mode == Window::Mode::kNearest || w.mode == Window::Mode::kBilinear) {
    // In halves of 1 / unit.
    const int64_t twice = (2 * p + 1) * w.stride[s] - 2 * w.pre_padding[s], whole = 2 * unit;
    const auto floor = [&](int64_t v) {
      int64_t rest = v % whole;
      if (rest < 0) rest += whole;
      return (v - rest) / whole;
    };
    if (w.mode == Window::Mode::kNearest) return {{floor(twice + unit), 1}};
    const int64_t left = floor(twice);
    const double part = static_cast<double>(twice - left * whole) / static_cast<double>(whole);
    return {{left, 1 - part}, {left + 1, part}};
  }
  std::vector<Step> steps;
  for (int64_t t = 0; t < w.window[s] / unit; ++t)
    steps.push_back({p * (w.stride[s] / unit) - w.pre_padding[s] / unit + t, 1});
  return steps;
}

std::vector<Tap> TapsOf(const Window& w, const Dims& x, const Dims& place) {
  std::vector<Tap> taps = {{place[0] * x[1] + place[1], 1, 0, 0}};
  for (size_t s = 0; s < w.window.size(); ++s) {
    const int64_t extent = x[s + 2];
    const std::vector<Step> steps = StepsOf(w, s, place[s + 2]);
    std::vector<Tap> longer;
    for (const Tap& tap : taps) {
      for (size_t t = 0; t < steps.size(); ++t) {
        int64_t element = steps[t].element;
        if (w.padding == Window::Padding::kEdge && w.mode != Window::Mode::kAvgExclude)
          element = std::clamp<int64_t>(element, 0, extent - 1);
        const bool outside = tap.at < 0 || element < 0 || element >= extent;
        longer.push_back(
            {outside ? -1 : tap.at * extent + element, tap.weight * steps[t].weight,
             w.padding == Window::Padding::kNegInf ? -kInf : 0,
             tap.number * static_cast<int64_t>(steps.size()) + static_cast<int64_t>(t)});
      }
    }
    taps = std::move(longer);
  }
  return taps;
}

// The tap that is the maximum, or null where there is none; its value in `value`.
const Tap* Largest(const Window& w, const std::vector<Tap>& taps, const Dense& x, Value& value) {
  const Tap* best = nullptr;
  for (const Tap& tap : taps) {
    if (tap.at < 0 && w.padding == Window::Padding::kNegInf) continue;
    const Value v =
        tap.at < 0 ? Value{.v = tap.pad, .e = 0} : x.values[static_cast<size_t>(tap.at)];
    if (std::isnan(v.v)) {
      if (!w.propagate_nan) continue;
      value = v;
      return &tap;
    }
    if (best != nullptr && !(v.v > value.v)) continue;
    best = &tap;
    value = v;
  }
  return best;
}

double DivisorOf(const Window& w, const std::vector<Tap>& taps) {
  if (w.mode == Window::Mode::kAvg) return static_cast<double>(taps.size());
  if (w.mode != Window::Mode::kAvgExclude) return 1;
  const auto inside = std::ranges::count_if(taps, [](const Tap& tap) { return tap.at >= 0; });
  return static_cast<double>(std::max<int64_t>(inside, 1));
}

// The error that a few roundings of v may make.
double Rounded(double v, DType compute) {
  constexpr double kRoundings = 6;
  return std::isfinite(v) ? kRoundings * UnitRoundoff(compute) * std::fabs(v) : 0;
}

Value Divided(Value sum, double divisor, DType compute) {
  sum.v /= divisor;
  sum.e = sum.e / divisor + (divisor == 1 ? 0 : Rounded(sum.v, compute));
  return sum;
}

}  // namespace

WindowResult WindowForward(const Window& w, const Dense& x, const Dims& y, DType compute) {
  WindowResult result{.y = {.dims = y, .values = {}}, .index = {.dims = y, .values = {}}};
  if (Count(y) == 0) return result;
  Dims place(y.size(), 0);
  do {
    const std::vector<Tap> taps = TapsOf(w, x.dims, place);
    if (w.mode == Window::Mode::kMax) {
      Value value{.v = -kInf, .e = 0};
      const Tap* best = Largest(w, taps, x, value);
      // Another element may be the maximum as well, where values may be off.
      for (const Tap& tap : taps)
        if (tap.at >= 0) value.e = std::max(value.e, x.values[static_cast<size_t>(tap.at)].e);
      result.y.values.push_back(value);
      result.index.values.push_back(
          {.v = best == nullptr ? 0 : static_cast<double>(best->number), .e = 0});
      continue;
    }
    Accumulator sum;
    for (const Tap& tap : taps) {
      if (tap.at < 0) {
        if (w.mode == Window::Mode::kAvg && tap.pad != 0) sum.Add(tap.pad, 0);
        continue;
      }
      const Value v = x.values[static_cast<size_t>(tap.at)];
      const bool weighted = w.mode == Window::Mode::kBilinear;  // by quotients
      sum.Add(tap.weight * v.v, tap.weight * v.e + (weighted ? Rounded(v.v, compute) : 0));
    }
    result.y.values.push_back(Divided(sum.Result(compute), DivisorOf(w, taps), compute));
  } while (Next(y, place));
  return result;
}

Dense WindowBackward(const Window& w, const Dense& dy, const Dense* index, const Dense* x,
                     const Dims& dx, DType compute) {
  std::vector<Accumulator> sums(static_cast<size_t>(Count(dx)));
  Dims place(dy.dims.size(), 0);
  size_t i = 0;
  if (Count(dy.dims) != 0) {
    do {
      const std::vector<Tap> taps = TapsOf(w, dx, place);
      const Value gradient = Divided(dy.values[i], DivisorOf(w, taps), compute);
      double chosen = 0;
      if (w.mode == Window::Mode::kMax && index != nullptr) {
        chosen = index->values[i].v;
      } else if (w.mode == Window::Mode::kMax) {
        Value value{.v = -kInf, .e = 0};
        const Tap* best = Largest(w, taps, *x, value);
        chosen = best == nullptr ? 0 : static_cast<double>(best->number);
      }
      for (const Tap& tap : taps) {
        if (tap.at < 0) continue;
        if (w.mode == Window::Mode::kMax && static_cast<double>(tap.number) != chosen) continue;
        const bool exact = w.mode == Window::Mode::kMax || w.mode == Window::Mode::kNearest;
        sums[static_cast<size_t>(tap.at)].Add(
            tap.weight * gradient.v,
            tap.weight * gradient.e + (exact ? 0 : Rounded(gradient.v, compute)));
      }
      ++i;
    } while (Next(dy.dims, place));
  }
  Dense result{.dims = dx, .values = {}};
  for (const Accumulator& sum : sums) result.values.push_back(sum.Result(compute));
  return result;
}

}  // namespace kiln::oracle
