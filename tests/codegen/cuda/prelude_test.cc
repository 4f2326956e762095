// The prelude's portable conversions, compiled for the host, against ir/dtype.h bit by bit.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ir/dtype.h"
#include "tests/codegen/cuda/host_device.h"
// The prelude stands in no namespace and includes nothing: CUDA's names come from the header above.
#include "codegen/cuda/device/numbers/bfloat16.cuh"
#include "codegen/cuda/device/numbers/bit.cuh"
#include "codegen/cuda/device/numbers/erf_to_add.cuh"
#include "codegen/cuda/device/numbers/fast_div.cuh"
#include "codegen/cuda/device/numbers/fp8_e4m3.cuh"
#include "codegen/cuda/device/numbers/fp8_e5m2.cuh"
#include "codegen/cuda/device/numbers/fp8_e8m0.cuh"
#include "codegen/cuda/device/numbers/integer.cuh"
#include "codegen/cuda/device/numbers/minmax.cuh"
#include "codegen/cuda/device/numbers/one_over.cuh"
#include "codegen/cuda/device/numbers/philox.cuh"
#include "codegen/cuda/device/numbers/round_odd.cuh"
#include "codegen/cuda/device/numbers/saturate.cuh"
#include "ir/scalar.h"

namespace kiln {
namespace {

template <class T>
unsigned BitsOf(DType type, double value) {
  unsigned char bytes[sizeof(T)];
  StoreValue(type, value, bytes);
  decltype(T::bits) bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

// Every float whose lower 12 bits are 0, 1, 0x7ff, 0x800, 0x801 or 0xfff: all roundings of 8-bit
// formats, and random ones for bf16, whose ties lie at bit 15.
template <class T>
void ExpectEncodes(DType type) {
  std::mt19937 random(3);
  for (uint64_t high = 0; high < (1u << 20); ++high) {
    for (const unsigned low :
         {0x000u, 0x001u, 0x7ffu, 0x800u, 0xfffu, static_cast<unsigned>(random()) & 0xfffu}) {
      const float v = __uint_as_float(static_cast<unsigned>(high << 12) | low);
      const unsigned expected = BitsOf<T>(type, v);
      if (T(v).bits == expected) continue;
      FAIL() << Info(type).text << " of " << v << " (" << __float_as_uint(v) << ") is "
             << unsigned(T(v).bits) << ", not " << expected;
    }
  }
}

template <class T>
void ExpectDecodes(DType type) {
  for (unsigned bits = 0; bits < 1u << (8 * sizeof(T)); ++bits) {
    T storage;
    storage.bits = static_cast<decltype(T::bits)>(bits);
    const double expected = LoadValue(type, &storage.bits), got = float(storage);
    EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
        << bits << ": " << got << ", not " << expected;
    if (!std::isnan(expected)) {
      EXPECT_EQ(std::signbit(got), std::signbit(expected)) << bits;
    }
  }
}

// Denormals and their reciprocals too, of which scaling must lose none.
TEST(Prelude, OneOverIsTheReciprocal) {
  std::mt19937 random(5);
  for (uint64_t i = 0; i < (1u << 22); ++i) {
    const float x = __uint_as_float(static_cast<unsigned>(i << 10 | (random() & 0x3ff)));
    const float expected = 1.f / x, got = one_over(x);
    const auto ulps = static_cast<int64_t>(__float_as_uint(got)) - __float_as_uint(expected);
    ASSERT_TRUE(std::isnan(x) ? std::isnan(got) : std::abs(ulps) <= 1)
        << x << ": " << got << ", not " << expected;
  }
  EXPECT_EQ(one_over(-0.f), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(__float_as_uint(one_over(-std::numeric_limits<float>::infinity())), 0x80000000u);
}

TEST(Prelude, Bfloat16) {
  ExpectEncodes<bf16_t>(DType::kBF16);
  ExpectDecodes<bf16_t>(DType::kBF16);
}
TEST(Prelude, E4M3) {
  ExpectEncodes<e4m3_t>(DType::kE4M3);
  ExpectDecodes<e4m3_t>(DType::kE4M3);
}
TEST(Prelude, E5M2) {
  ExpectEncodes<e5m2_t>(DType::kE5M2);
  ExpectDecodes<e5m2_t>(DType::kE5M2);
}

TEST(Prelude, E8M0) {
  ExpectEncodes<e8m0_t>(DType::kE8M0);
  ExpectDecodes<e8m0_t>(DType::kE8M0);
}

// Doubles around the ties of the narrow types, where rounding by way of a float would go wrong.
TEST(Prelude, DoublesRoundOnce) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000000; ++i) {
    const float near = __uint_as_float(static_cast<unsigned>(random()) & 0xffff8000u);
    double v = near;
    if (!std::isnan(v)) v *= 1 + std::ldexp(static_cast<double>(random() % 5) - 2, -40);
    ASSERT_EQ(bf16_t(round_odd(v)).bits, BitsOf<bf16_t>(DType::kBF16, v)) << v;
    ASSERT_EQ(e4m3_t(round_odd(v)).bits, BitsOf<e4m3_t>(DType::kE4M3, v)) << v;
    ASSERT_EQ(e5m2_t(round_odd(v)).bits, BitsOf<e5m2_t>(DType::kE5M2, v)) << v;
    ASSERT_EQ(e8m0_t(round_odd(v)).bits, BitsOf<e8m0_t>(DType::kE8M0, v)) << v;
  }
}

TEST(Prelude, IntegersSaturate) {
  const double values[] = {0,      -0.5,  0.5,      1.5,          2.5,          126.5,
                           127.5,  128,   254.5,    255.5,        300,          -127.5,
                           -128.5, -300,  1e6,      2147483647.0, 2147483648.0, -2147483649.0,
                           1e30,   -1e30, HUGE_VAL, -HUGE_VAL,    NAN};
  for (const double v : values) {
    const float f = static_cast<float>(v);
    EXPECT_EQ(to_i8(v), RoundTo(DType::kI8, v)) << v;
    EXPECT_EQ(to_u8(v), RoundTo(DType::kU8, v)) << v;
    EXPECT_EQ(to_i32(v), RoundTo(DType::kI32, v)) << v;
    EXPECT_EQ(to_i8(f), RoundTo(DType::kI8, f)) << f;
    EXPECT_EQ(to_u8(f), RoundTo(DType::kU8, f)) << f;
    EXPECT_EQ(to_i32(f), RoundTo(DType::kI32, f)) << f;
  }
  EXPECT_EQ(to_i64(2.5), 2);
  EXPECT_EQ(to_i64(NAN), 0);
  EXPECT_EQ(to_i64(1e30f), INT64_MAX);
  EXPECT_EQ(to_i32(-3000000000ll), INT32_MIN);
  EXPECT_EQ(to_i8(-3000000000ll), -128);
  EXPECT_EQ(to_u8(-3), 0);
  EXPECT_EQ(to_u8(3000), 255);
}

TEST(Prelude, RandomBitsAreTheInterpretersBits) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    const auto place = static_cast<int64_t>(random() >> (1 + i % 60));
    const auto seed = static_cast<int64_t>(random()), offset = static_cast<int64_t>(random());
    ASSERT_EQ(philox(place, seed, offset), PhiloxWord(place, seed, offset)) << place;
  }
}

TEST(Prelude, ErfToAddIsNearErf) {
  double worst = 0;
  for (float x = -7; x < 7; x += 0.37e-4f)
    worst = std::fmax(worst, std::fabs(erf_to_add(x) - std::erf(double{x})));
  EXPECT_LE(worst, 6e-7);
  for (const float x : {1e-30f, 4.f, 100.f, INFINITY}) {
    EXPECT_EQ(erf_to_add(-x), -erf_to_add(x)) << x;
    EXPECT_NEAR(erf_to_add(x), std::erf(x), 6e-7) << x;
  }
  EXPECT_TRUE(std::isnan(erf_to_add(NAN)));
}

TEST(Prelude, BitsAreCountedFromTheLowest) {
  for (const int n : {0, 1, 2, 0x5a, 255, -1, INT32_MIN})
    for (int k = -40; k < 70; ++k)
      ASSERT_EQ(bit(n, k), (static_cast<uint32_t>(n) >> (static_cast<uint32_t>(k) % 32)) % 2 == 1)
          << n << " " << k;
}

TEST(Prelude, MinMaxKeepNan) {
  EXPECT_TRUE(std::isnan(min_nan(double{NAN}, 1.0)) && std::isnan(max_nan(1.f, float{NAN})));
  EXPECT_EQ(min_nan(-1.f, 2.f), -1.f);
  EXPECT_EQ(max_nan(-1.0, 2.0), 2.0);
}

TEST(Prelude, Division) {
  EXPECT_EQ(div_or_zero(7, 0), 0);
  EXPECT_EQ(mod_or_zero(7ll, 0ll), 0);
  EXPECT_EQ(div_or_zero(7ll, 2ll), 3);
  std::mt19937 random(11);
  for (int i = 0; i < 200000; ++i) {
    const int divisor = 1 + static_cast<int>(random() >> (1 + random() % 30)),
              n = static_cast<int>(random() >> 1);
    const Magic magic = MagicFor(divisor);
    ASSERT_EQ(fast_div(n, static_cast<int>(magic.mul), static_cast<int>(magic.shift)), n / divisor)
        << n << " / " << divisor;
  }
}

}  // namespace
}  // namespace kiln
