// cudnnDropoutForward and cudnnDropoutBackward: two masks from one descriptor, the gradients by the
// first, and the first again after the states were set again.
#include <cmath>
#include <vector>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

constexpr unsigned long long kSeed = 0x9e3779b97f4a7c15ull;

struct DropCase {
  float dropout = 0.3f;
  Layout x = {}, y = {};
  Dims dims = {2, 5, 6, 7};
  bool in_place = false;
};

// x where it is kept, scaled; the offset moves by x's elements from call to call.
Dense Dropped(const DropCase& d, const Dense& x, int64_t offset) {
  const double keep = 1 - static_cast<double>(d.dropout);
  const Dense mask = oracle::Random({.distribution = "bernoulli",
                                     .first = keep,
                                     .seed = static_cast<int64_t>(kSeed),
                                     .offset = offset},
                                    x.dims, oracle::DType::kF32);
  const double u = oracle::UnitRoundoff(FactorType(d.x.type));
  Dense y = x;
  for (size_t i = 0; i < y.values.size(); ++i) {
    const double value = mask.values[i].v > 0.5 ? x.values[i].v / keep : 0;
    y.values[i] = {value, 2 * u * std::abs(value)};
  }
  return y;
}

std::string RunDropout(const DropCase& d, const LegacyContext& c) {
  auto dropout = c.client.New<cudnnDropoutDescriptor_t>("Dropout");
  const LegacyTensor x = c.Tensor(d.x, d.dims, 1), other = c.Tensor(d.y, d.dims, 2),
                     again = c.Tensor(d.y, d.dims, 3), dy = c.Tensor(d.y, d.dims, 4),
                     dx = c.Tensor(d.x, d.dims, 5);
  const LegacyTensor& y = d.in_place ? x : other;
  size_t state_bytes = 0, reserve_bytes = 0;
  KILN_CALL(c.client, cudnnDropoutGetStatesSize, c.handle, &state_bytes);
  KILN_CALL(c.client, cudnnDropoutGetReserveSpaceSize, x.desc(), &reserve_bytes);
  const Buffer states(c.device, state_bytes), first(c.device, reserve_bytes),
      second(c.device, reserve_bytes);
  void *const memory = states.data(), *const one = first.data(), *const two = second.data();
  const Dense before = x.Before();
  std::string error = c.Done(KILN_CALL(c.client, cudnnSetDropoutDescriptor, dropout, c.handle,
                                       d.dropout, memory, state_bytes, kSeed));
  // The second first where x is overwritten.
  const auto forward = [&](const LegacyTensor& to, void* reserve) {
    return c.Done(KILN_CALL(c.client, cudnnDropoutForward, c.handle, dropout, x.desc(), x.data(),
                            to.desc(), to.data(), reserve, reserve_bytes));
  };
  if (error.empty()) error = forward(d.in_place ? again : y, one);
  if (error.empty()) error = forward(d.in_place ? y : again, two);
  if (error.empty())
    error = c.Done(KILN_CALL(c.client, cudnnDropoutBackward, c.handle, dropout, dy.desc(),
                             dy.data(), dx.desc(), dx.data(), one, reserve_bytes));
  if (!error.empty()) return error;
  const Dense at_first = Dropped(d, before, 0), then = Dropped(d, before, oracle::Count(d.dims));
  error = FirstOf({(d.in_place ? again : y).Check(at_first), (d.in_place ? y : again).Check(then),
                   dx.Check(Dropped(d, dy.Before(), 0))});
  if (!error.empty() || d.in_place) return error;
  KILN_CALL(c.client, cudnnSetDropoutDescriptor, dropout, c.handle, d.dropout, memory, state_bytes,
            kSeed);
  error = forward(again, two);
  return FirstOf({error, again.Check(at_first)});
}

LegacyCase Drop(const DropCase& d) {
  return {"dropout/" + std::to_string(d.dropout).substr(0, 4) + "_" + Text(d.x) + "_" + Text(d.y) +
              "_" + Text(d.dims) + (d.in_place ? "_in_place" : ""),
          [=](const LegacyContext& c) { return RunDropout(d, c); }, true};
}

}  // namespace

std::vector<LegacyCase> DropoutCases() {
  const Layout h16 = {CUDNN_DATA_HALF, Layout::kNhwc}, f64 = {CUDNN_DATA_DOUBLE};
  std::vector<LegacyCase> cases;
  for (const float dropout : {0.0f, 0.3f, 1.0f}) cases.push_back(Drop({.dropout = dropout}));
  cases.push_back(Drop({.in_place = true}));
  cases.push_back(Drop({.x = h16, .y = {CUDNN_DATA_HALF, Layout::kGaps}}));
  cases.push_back(Drop({.dropout = 0.75f, .x = f64, .y = f64, .dims = {2, 3, 4, 5, 6}}));
  return cases;
}

}  // namespace kiln::testing
