// Random numbers: Philox4x32-7 as its paper states it, on four words at a time.
#include <array>
#include <cmath>
#include <numbers>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

using Words = std::array<uint32_t, 4>;

Words Philox(Words counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 7; ++round) {
    if (round > 0) key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
    const uint64_t a = uint64_t{counter[0]} * 0xD2511F53, b = uint64_t{counter[2]} * 0xCD9E8D57;
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
  }
  return counter;
}

}  // namespace

uint32_t RandomWord(int64_t place, int64_t seed, int64_t offset) {
  const auto halves = [](int64_t v) {
    return std::array{static_cast<uint32_t>(v),
                      static_cast<uint32_t>(static_cast<uint64_t>(v) >> 32)};
  };
  const auto count = halves(place / 4), stream = halves(offset);
  return Philox({count[0], count[1], stream[0], stream[1]},
                halves(seed))[static_cast<size_t>(place % 4)];
}

uint32_t RandomHalf(int64_t place, int64_t seed, int64_t offset) {
  const uint32_t word = RandomWord(place / 2, seed, offset);
  return place % 2 == 0 ? word % 65536 : word / 65536;
}

Dense Random(const RandomNumbers& r, const Dims& dims, DType compute) {
  const auto unit = [&](int64_t i) { return (RandomWord(i, r.seed, r.offset) >> 8) * 0x1p-24; };
  const auto half = [&](int64_t i) { return RandomHalf(i, r.seed, r.offset) * 0x1p-16; };
  const double u = UnitRoundoff(compute);
  Dense y{.dims = dims, .values = {}};
  for (int64_t i = 0; i < Count(dims); ++i) {
    if (r.distribution == "bernoulli") {
      y.values.push_back({.v = half(i) < double(float(r.first)) ? 1.0 : 0.0, .e = 0});
    } else if (r.distribution == "uniform") {
      const double v = r.first + (r.second - r.first) * unit(i);
      y.values.push_back({.v = v, .e = 4 * u * (std::fabs(r.first) + std::fabs(r.second))});
    } else {
      const int64_t pair = i / 2 * 2;
      const double radius = std::sqrt(-2 * std::log(unit(pair) + 0x1p-24));
      const double angle = 2 * std::numbers::pi * unit(pair + 1);
      const double wave = i % 2 == 0 ? std::cos(angle) : std::sin(angle);
      const double v = r.first + r.second * radius * wave;
      y.values.push_back({.v = v, .e = 32 * u * (std::fabs(r.first) + r.second * 6)});
    }
  }
  return y;
}

}  // namespace kiln::oracle
