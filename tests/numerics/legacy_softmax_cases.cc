// cudnnSoftmaxForward and cudnnSoftmaxBackward, from the reference's words: e^x over its sum, the
// same of x less its maximum, or the logarithm of that; of all of an image, or of a place's
// channels.
#include <algorithm>
#include <cmath>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

struct SoftmaxCase {
  cudnnSoftmaxAlgorithm_t algorithm = CUDNN_SOFTMAX_ACCURATE;
  cudnnSoftmaxMode_t mode = CUDNN_SOFTMAX_MODE_CHANNEL;
  Layout layout = {};
  Dims dims = {2, 5, 3, 7};
  Factors factors = {1, 0};
  std::string fill = "span4";
  bool in_place = false;
  bool not_nvidia = false;
};

// Numbers of the elements that each element is normalised with, by row.
std::vector<std::vector<size_t>> RowsOf(const SoftmaxCase& s) {
  const int64_t channels = s.dims[1];
  const int64_t places = oracle::Count(s.dims) / (s.dims[0] * channels);
  const bool instance = s.mode == CUDNN_SOFTMAX_MODE_INSTANCE;
  std::vector<std::vector<size_t>> rows(
      static_cast<size_t>(instance ? s.dims[0] : s.dims[0] * places));
  for (int64_t n = 0, i = 0; n < s.dims[0]; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < places; ++p, ++i)
        rows[static_cast<size_t>(instance ? n : n * places + p)].push_back(static_cast<size_t>(i));
  return rows;
}

Dense Forward(const SoftmaxCase& s, const Dense& x, oracle::DType compute) {
  const double u = oracle::UnitRoundoff(compute);
  Dense y = x;
  for (const std::vector<size_t>& row : RowsOf(s)) {
    double largest = -INFINITY, magnitude = 0;
    for (const size_t i : row) {
      largest = std::max(largest, x.values[i].v);
      magnitude = std::max(magnitude, std::fabs(x.values[i].v));
    }
    const bool is_fast = s.algorithm == CUDNN_SOFTMAX_FAST;
    const double subtracted = is_fast ? 0 : largest;
    long double sum = 0;
    for (const size_t i : row) sum += std::exp(x.values[i].v - subtracted);
    // Errors of the exponential, of a sum of positive terms, and of the exponentials' arguments:
    // e^-a is off by a e^-a roundings, which is less than one for each a.
    const auto size = static_cast<double>(row.size());
    const double of_sum = u * (8 + 2 * std::sqrt(size) + (is_fast ? 4 * magnitude : size));
    for (const size_t i : row) {
      const double apart = x.values[i].v - subtracted;
      const double relative = of_sum + (is_fast ? 0 : 4 * u * std::fabs(apart));
      if (s.algorithm == CUDNN_SOFTMAX_LOG) {
        const double v = apart - static_cast<double>(std::log(sum));
        y.values[i] = {v, of_sum + 4 * u * (std::fabs(v) + std::fabs(apart))};
      } else {
        const auto v = static_cast<double>(std::exp(apart) / sum);
        y.values[i] = {v, v == 0 ? 0 : 2 * relative * v};
      }
      if (!std::isfinite(y.values[i].v)) y.values[i].e = 0;
    }
  }
  return y;
}

Dense Backward(const SoftmaxCase& s, const Dense& y, const Dense& dy, oracle::DType compute) {
  const double u = oracle::UnitRoundoff(compute);
  Dense dx = y;
  const bool log = s.algorithm == CUDNN_SOFTMAX_LOG;
  for (const std::vector<size_t>& row : RowsOf(s)) {
    oracle::Accumulator sum;
    for (const size_t i : row) {
      const double term = log ? dy.values[i].v : dy.values[i].v * y.values[i].v;
      sum.Add(term, u * std::fabs(term));
    }
    const oracle::Value total = sum.Result(compute);
    for (const size_t i : row) {
      const double v = y.values[i].v, grad = dy.values[i].v;
      const double factor = log ? std::exp(v) : v;
      const double direct = log ? grad : grad * v;
      dx.values[i] = {
          direct - factor * total.v,
          std::fabs(factor) * total.e +
              u * ((8 + 4 * std::fabs(v)) * std::fabs(factor * total.v) + 4 * std::fabs(direct))};
    }
  }
  return dx;
}

std::string RunForward(const SoftmaxCase& s, const LegacyContext& c) {
  const LegacyTensor x = c.Tensor(s.layout, s.dims, 1, s.fill),
                     other = c.Tensor(s.layout, s.dims, 2);
  const LegacyTensor& y = s.in_place ? x : other;
  const Factor alpha(s.factors.alpha, s.layout.type), beta(s.factors.beta, s.layout.type);
  const cudnnStatus_t status =
      KILN_CALL(c.client, cudnnSoftmaxForward, c.handle, s.algorithm, s.mode, alpha.get(), x.desc(),
                x.data(), beta.get(), y.desc(), y.data());
  const oracle::DType compute = FactorType(s.layout.type);
  const Dense result = Forward(s, x.Before(), compute);
  return FirstOf({c.Done(status),
                  y.Check(Blended(result, s.factors.alpha, s.factors.beta, y.Before(), compute), 1),
                  s.in_place ? "" : x.CheckUnchanged()});
}

std::string RunBackward(const SoftmaxCase& s, const LegacyContext& c) {
  const LegacyTensor y = c.Tensor(s.layout, s.dims, 1), dy = c.Tensor(s.layout, s.dims, 2),
                     other = c.Tensor(s.layout, s.dims, 3);
  const LegacyTensor& dx = s.in_place ? dy : other;
  const Factor alpha(s.factors.alpha, s.layout.type), beta(s.factors.beta, s.layout.type);
  const cudnnStatus_t status =
      KILN_CALL(c.client, cudnnSoftmaxBackward, c.handle, s.algorithm, s.mode, alpha.get(),
                y.desc(), y.data(), dy.desc(), dy.data(), beta.get(), dx.desc(), dx.data());
  const oracle::DType compute = FactorType(s.layout.type);
  const Dense result = Backward(s, y.Before(), dy.Before(), compute);
  return FirstOf(
      {c.Done(status),
       dx.Check(Blended(result, s.factors.alpha, s.factors.beta, dx.Before(), compute), 1),
       y.CheckUnchanged()});
}

void Add(std::vector<LegacyCase>& cases, const SoftmaxCase& s) {
  constexpr const char* kAlgorithms[] = {"fast", "accurate", "log"};
  const std::string name = std::string(kAlgorithms[s.algorithm]) +
                           (s.mode == CUDNN_SOFTMAX_MODE_INSTANCE ? "_instance_" : "_channel_") +
                           Text(s.layout) + "_" + Text(s.dims) + "_" + Text(s.factors) + "_" +
                           s.fill + (s.in_place ? "_in_place" : "");
  cases.push_back({"softmax_forward/" + name,
                   [=](const LegacyContext& c) { return RunForward(s, c); }, s.not_nvidia});
  if (s.fill == "span4")
    cases.push_back({"softmax_backward/" + name,
                     [=](const LegacyContext& c) { return RunBackward(s, c); }, s.not_nvidia});
}

}  // namespace

std::vector<LegacyCase> SoftmaxCases() {
  std::vector<LegacyCase> cases;
  for (const auto algorithm : {CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_LOG}) {
    for (const auto mode : {CUDNN_SOFTMAX_MODE_INSTANCE, CUDNN_SOFTMAX_MODE_CHANNEL}) {
      const SoftmaxCase plain = {.algorithm = algorithm, .mode = mode};
      Add(cases, plain);
      SoftmaxCase other = plain;
      other.layout = {CUDNN_DATA_HALF, Layout::kNhwc};
      other.dims = {3, 40, 5, 6};
      Add(cases, other);
      other.layout = {CUDNN_DATA_DOUBLE};
      other.dims = {2, 3, 4, 3, 5};
      other.factors = {-2, 0.25};
      Add(cases, other);
      other.layout = {CUDNN_DATA_BFLOAT16, Layout::kGaps};
      other.dims = {2, 9, 4, 5};
      other.factors = {0.5, 0};
      Add(cases, other);
      other = plain;
      other.in_place = true;
      other.factors = {1, 1};
      Add(cases, other);
      other = plain;
      other.dims = {2, 1000, 1, 1};
      Add(cases, other);
      other.dims = {2, 130, 37, 11};
      Add(cases, other);
      other.layout = {CUDNN_DATA_HALF};
      other.dims = {5, 1, 1, 1};
      Add(cases, other);
    }
  }
  // Rows that neither registers nor shared memory hold; numbers whose exponentials overflow.
  Add(cases, {.mode = CUDNN_SOFTMAX_MODE_INSTANCE, .dims = {2, 64, 90, 33}});
  Add(cases, {.layout = {CUDNN_DATA_FLOAT}, .dims = {1, 9000, 3, 5}});
  for (const auto mode : {CUDNN_SOFTMAX_MODE_INSTANCE, CUDNN_SOFTMAX_MODE_CHANNEL})
    Add(cases, {.mode = mode, .dims = {2, 16, 3, 5}, .fill = "index"});
  // Large numbers, the lowest of some types and -inf, of which whole rows are, in any part of
  // others.
  for (const auto algorithm : {CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_LOG}) {
    for (const auto type : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16}) {
      SoftmaxCase masked = {.algorithm = algorithm,
                            .mode = CUDNN_SOFTMAX_MODE_INSTANCE,
                            .layout = {type},
                            .dims = {60, 12, 1, 1},
                            .fill = "mask",
                            .not_nvidia = true};
      Add(cases, masked);
      masked.dims = {9, 300, 1, 1};
      Add(cases, masked);
      masked.mode = CUDNN_SOFTMAX_MODE_CHANNEL;
      masked.dims = {2, 5, 6, 7};
      Add(cases, masked);
    }
  }
  return cases;
}

}  // namespace kiln::testing
