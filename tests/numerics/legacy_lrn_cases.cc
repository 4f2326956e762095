// cudnnLRNCrossChannel… and cudnnDivisiveNormalization…: the division by a power of what surrounds
// an element, along channels or over places, and its gradients, sum by sum.
#include <cmath>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

struct LrnCase {
  bool divisive = false;
  unsigned window = 5;
  double alpha = 0.5, beta = 0.75, k = 1.5;
  Layout layout = {};
  Dims dims = {2, 7, 3, 5};
  Factors factors = {1, 0};
  bool means = false, in_place = false;
  bool not_nvidia = false;
};

cudnnLRNDescriptor_t Describe(const LrnCase& l, const LegacyContext& c) {
  auto lrn = c.client.New<cudnnLRNDescriptor_t>("LRN");
  KILN_CALL(c.client, cudnnSetLRNDescriptor, lrn, l.window, l.alpha, l.beta, l.k);
  return lrn;
}

// Elements that the window around `at` has, or (back) whose windows have it.
template <class F>
void ForEachNear(const LrnCase& l, const Dims& at, bool back, F&& visit) {
  const int64_t behind = (l.window - 1) / 2, ahead = l.window - 1 - behind;
  const size_t first = l.divisive ? 2 : 1, last = l.divisive ? l.dims.size() : 2;
  const int64_t low = back ? ahead : behind;
  const Dims extents(last - first, l.window);
  Dims step(last - first, 0);
  do {
    Dims near = at;
    bool inside = true;
    for (size_t d = first; d < last; ++d) {
      near[d] += step[d - first] - low;
      inside = inside && near[d] >= 0 && near[d] < l.dims[d];
    }
    if (inside) visit(oracle::BroadcastIndex(l.dims, near));
  } while (oracle::Next(extents, step));
}

// Elements of a window, all of them.
double Count(const LrnCase& l) {
  return std::pow(l.window, l.divisive ? static_cast<double>(l.dims.size() - 2) : 1);
}

double MeanAt(const Dense* means, size_t i) { return means != nullptr ? means->values[i].v : 0; }

// k + alpha * the mean square around each element, of x less the centre's mean.
std::vector<double> ScalesOf(const LrnCase& l, const Dense& x, const Dense* means) {
  std::vector<double> scales;
  Dims at(l.dims.size(), 0);
  do {
    const double mean = MeanAt(means, scales.size());
    long double sum = 0;
    ForEachNear(l, at, false, [&](size_t j) {
      const double apart = x.values[j].v - mean;
      sum += apart * apart;
    });
    scales.push_back(l.k + l.alpha / Count(l) * static_cast<double>(sum));
  } while (oracle::Next(l.dims, at));
  return scales;
}

// `stored`: roundings of what passes through temp, which is of x's type.
Dense Forward(const LrnCase& l, const Dense& x, const Dense* means, bool stored) {
  const double u = oracle::UnitRoundoff(FactorType(l.layout.type));
  const double kept = stored ? oracle::UnitRoundoff(ElementOf(l.layout.type)) : 0;
  const std::vector<double> scales = ScalesOf(l, x, means);
  Dense y = x;
  for (size_t i = 0; i < y.values.size(); ++i) {
    const double v = x.values[i].v * std::pow(scales[i], -l.beta);
    y.values[i] = {v, std::fabs(v) * (u * (16 + 2 * Count(l)) + kept)};
  }
  return y;
}

struct Gradients {
  Dense dx, dmeans;
};
Gradients Backward(const LrnCase& l, const Dense& x, const Dense* means, const Dense& dy,
                   bool stored) {
  const double u = oracle::UnitRoundoff(FactorType(l.layout.type)) * (24 + 4 * Count(l)) +
                   (stored ? 2 * oracle::UnitRoundoff(ElementOf(l.layout.type)) : 0);
  const std::vector<double> scales = ScalesOf(l, x, means);
  const double factor = 2 * l.alpha * l.beta / Count(l);
  // Derivatives of s[i] by x[j], and by means[i], for each pair of a centre i and an element j of
  // its window.
  std::vector<double> terms;
  for (size_t i = 0; i < x.values.size(); ++i)
    terms.push_back(dy.values[i].v * x.values[i].v * std::pow(scales[i], -l.beta - 1));
  Gradients g{.dx = x, .dmeans = x};
  Dims at(l.dims.size(), 0);
  size_t k = 0;
  do {
    long double of_x = 0, of_mean = 0, size_x = 0, size_mean = 0;
    ForEachNear(l, at, true, [&](size_t i) {
      of_x += terms[i] * (x.values[k].v - MeanAt(means, i));
      size_x += std::fabs(terms[i]) * (std::fabs(x.values[k].v) + std::fabs(MeanAt(means, i)));
    });
    ForEachNear(l, at, false, [&](size_t j) {
      of_mean += x.values[j].v - MeanAt(means, k);
      size_mean += std::fabs(x.values[j].v) + std::fabs(MeanAt(means, k));
    });
    const double direct = dy.values[k].v * std::pow(scales[k], -l.beta);
    g.dx.values[k] = {direct - factor * static_cast<double>(of_x),
                      u * (std::fabs(direct) + factor * static_cast<double>(size_x))};
    g.dmeans.values[k] = {factor * terms[k] * static_cast<double>(of_mean),
                          u * factor * std::fabs(terms[k]) * static_cast<double>(size_mean)};
    ++k;
  } while (oracle::Next(l.dims, at));
  return g;
}

std::string RunForward(const LrnCase& l, const LegacyContext& c) {
  const LegacyTensor x = c.Tensor(l.layout, l.dims, 1), other = c.Tensor(l.layout, l.dims, 2),
                     means = c.Tensor(l.layout, l.dims, 3), temp = c.Tensor(l.layout, l.dims, 4),
                     temp2 = c.Tensor(l.layout, l.dims, 5);
  const LegacyTensor& y = l.in_place ? x : other;
  const Factor alpha(l.factors.alpha, l.layout.type), beta(l.factors.beta, l.layout.type);
  const auto lrn = Describe(l, c);
  const cudnnStatus_t status =
      l.divisive ? KILN_CALL(c.client, cudnnDivisiveNormalizationForward, c.handle, lrn,
                             CUDNN_DIVNORM_PRECOMPUTED_MEANS, alpha.get(), x.desc(), x.data(),
                             l.means ? means.data() : nullptr, temp.data(), temp2.data(),
                             beta.get(), y.desc(), y.data())
                 : KILN_CALL(c.client, cudnnLRNCrossChannelForward, c.handle, lrn,
                             CUDNN_LRN_CROSS_CHANNEL_DIM1, alpha.get(), x.desc(), x.data(),
                             beta.get(), y.desc(), y.data());
  const Dense mean = means.Before();
  const Dense result = Forward(l, x.Before(), l.means ? &mean : nullptr, l.divisive);
  return FirstOf({c.Done(status),
                  y.Check(Blended(result, l.factors.alpha, l.factors.beta, y.Before(),
                                  FactorType(l.layout.type)),
                          1),
                  l.in_place ? "" : x.CheckUnchanged(), means.CheckUnchanged()});
}

std::string RunBackward(const LrnCase& l, const LegacyContext& c) {
  const LegacyTensor x = c.Tensor(l.layout, l.dims, 1), y = c.Tensor(l.layout, l.dims, 2),
                     means = c.Tensor(l.layout, l.dims, 3), temp = c.Tensor(l.layout, l.dims, 4),
                     temp2 = c.Tensor(l.layout, l.dims, 5), dy = c.Tensor(l.layout, l.dims, 6),
                     dx = c.Tensor(l.layout, l.dims, 7), dmeans = c.Tensor(l.layout, l.dims, 8);
  const Factor alpha(l.factors.alpha, l.layout.type), beta(l.factors.beta, l.layout.type);
  const Factor one(1, l.layout.type), zero(0, l.layout.type);
  const auto lrn = Describe(l, c);
  if (!l.divisive)
    KILN_CALL(c.client, cudnnLRNCrossChannelForward, c.handle, lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1,
              one.get(), x.desc(), x.data(), zero.get(), y.desc(), y.data());
  void* const no_means = nullptr;
  const cudnnStatus_t status =
      l.divisive
          ? KILN_CALL(c.client, cudnnDivisiveNormalizationBackward, c.handle, lrn,
                      CUDNN_DIVNORM_PRECOMPUTED_MEANS, alpha.get(), x.desc(), x.data(),
                      l.means ? means.data() : no_means, dy.data(), temp.data(), temp2.data(),
                      beta.get(), dx.desc(), dx.data(), l.means ? dmeans.data() : no_means)
          : KILN_CALL(c.client, cudnnLRNCrossChannelBackward, c.handle, lrn,
                      CUDNN_LRN_CROSS_CHANNEL_DIM1, alpha.get(), y.desc(), y.data(), dy.desc(),
                      dy.data(), x.desc(), x.data(), beta.get(), dx.desc(), dx.data());
  const Dense mean = means.Before();
  const Gradients g = Backward(l, x.Before(), l.means ? &mean : nullptr, dy.Before(), l.divisive);
  const auto blended = [&](const Dense& result, const LegacyTensor& t) {
    return t.Check(
        Blended(result, l.factors.alpha, l.factors.beta, t.Before(), FactorType(l.layout.type)), 1);
  };
  return FirstOf({c.Done(status), blended(g.dx, dx),
                  l.means ? blended(g.dmeans, dmeans) : dmeans.CheckUnchanged(), x.CheckUnchanged(),
                  dy.CheckUnchanged()});
}

void Add(std::vector<LegacyCase>& cases, const LrnCase& l) {
  const std::string kind = l.divisive ? "divisive" : "lrn";
  const auto number = [](double v) { return std::to_string(v).substr(0, 4); };
  const std::string name = std::to_string(l.window) + "_a" + number(l.alpha) + "_b" +
                           number(l.beta) + "_k" + number(l.k) + "_" + Text(l.layout) + "_" +
                           Text(l.dims) + "_" + Text(l.factors) + (l.means ? "_means" : "") +
                           (l.in_place ? "_in_place" : "");
  cases.push_back({kind + "_forward/" + name,
                   [=](const LegacyContext& c) { return RunForward(l, c); }, l.not_nvidia});
  // 9.19 does not turn windows round that have no centre.
  const bool is_turned = l.divisive && l.window % 2 == 0;
  if (!l.in_place)
    cases.push_back({kind + "_backward/" + name,
                     [=](const LegacyContext& c) { return RunBackward(l, c); },
                     l.not_nvidia || is_turned});
}

}  // namespace

std::vector<LegacyCase> LrnCases() {
  std::vector<LegacyCase> cases;
  for (const unsigned window : {1u, 2u, 4u, 5u, 16u}) Add(cases, {.window = window});
  for (const double beta : {0.5, 1.0, 1.3, 0.01}) Add(cases, {.beta = beta});
  Add(cases, {.alpha = 1e-4, .k = 2});
  Add(cases, {.layout = {CUDNN_DATA_HALF, Layout::kNhwc}, .dims = {3, 24, 5, 6}});
  Add(cases, {.layout = {CUDNN_DATA_HALF}, .dims = {2, 24, 5, 8}, .factors = {-2, 0.25}});
  Add(cases, {.layout = {CUDNN_DATA_BFLOAT16}, .not_nvidia = true});
  Add(cases, {.layout = {CUDNN_DATA_DOUBLE}, .dims = {2, 6, 3, 2, 4}, .factors = {0.5, 1}});
  Add(cases, {.layout = {CUDNN_DATA_FLOAT, Layout::kGaps}});
  Add(cases, {.dims = {2, 9, 11}});
  Add(cases, {.dims = {1, 1, 1, 1}});
  for (const bool means : {false, true}) {
    for (const unsigned window : {1u, 2u, 5u}) {
      Add(cases, {.divisive = true, .window = window, .means = means});
    }
    Add(cases, {.divisive = true,
                .beta = 0.5,
                .layout = {CUDNN_DATA_HALF},
                .dims = {2, 3, 7, 9},
                .factors = {-2, 0.25},
                .means = means});
    Add(cases, {.divisive = true,
                .window = 3,
                .layout = {CUDNN_DATA_DOUBLE},
                .dims = {2, 3, 4, 5, 3},
                .means = means});
    Add(cases, {.divisive = true,
                .window = 3,
                .layout = {CUDNN_DATA_FLOAT, Layout::kGaps},
                .factors = {0.5, 1},
                .means = means});
    Add(cases, {.divisive = true, .means = means, .in_place = true});
  }
  return cases;
}

}  // namespace kiln::testing
