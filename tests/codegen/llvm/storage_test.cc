// Loads, stores and casts of every data type, against the exact conversions of ir/dtype.h.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/codegen/llvm/kernel_runner.h"

namespace kiln::test {
namespace {

constexpr DType kAllTypes[] = {DType::kF32,  DType::kF64,  DType::kF16,  DType::kBF16,
                               DType::kE4M3, DType::kE5M2, DType::kI8,   DType::kU8,
                               DType::kI32,  DType::kI64,  DType::kBool, DType::kE8M0};
constexpr DType kSmallTypes[] = {DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2,
                                 DType::kI8,  DType::kU8,   DType::kBool, DType::kE8M0};

std::string CastKernel(DType from, DType to, size_t count) {
  return fmt::format(R"(kernel cast_{0}_{1}(x: ptr<{0}> const, y: ptr<{1}>) threads 1 {{
  for i in 0..{2} vector {{
    store y[i] = {3}
  }}
}}
)",
                     Info(from).text, Info(to).text, count,
                     from == to ? "load x[i]" : fmt::format("cast<{}>(load x[i])", Info(to).text));
}

// All values of a type of 8 or 16 bits; zeros of both signs, infinities and NaNs included.
std::vector<double> AllValues(DType type) {
  std::vector<double> values;
  const uint32_t codes = type == DType::kBool ? 2 : 1u << Info(type).bits;
  for (uint32_t code = 0; code < codes; ++code) values.push_back(LoadValue(type, &code));
  return values;
}

// The neighbourhood of every rounding decision: each value, each midpoint of two neighbours, and
// the nearest numbers of `from` on both sides of it; then the extremes and random bit patterns.
std::vector<double> Probes(DType from, DType to) {
  std::vector<double> values;
  const auto add_around = [&](double v) {
    values.push_back(v);
    const double inf = std::numeric_limits<double>::infinity();
    if (from == DType::kF32) {
      values.push_back(std::nextafterf(static_cast<float>(v), static_cast<float>(inf)));
      values.push_back(std::nextafterf(static_cast<float>(v), -static_cast<float>(inf)));
    } else {
      values.push_back(std::nextafter(v, inf));
      values.push_back(std::nextafter(v, -inf));
      values.push_back(v * (1 + 0x1p-40));  // lost in f32, which must not make it a tie
      values.push_back(v * (1 - 0x1p-40));
    }
  };
  std::vector<double> exact = AllValues(to);
  std::erase_if(exact, [](double v) { return !std::isfinite(v); });
  std::ranges::sort(exact);
  for (size_t i = 0; i < exact.size(); ++i) {
    add_around(exact[i]);
    if (i > 0) add_around((exact[i - 1] + exact[i]) / 2);
  }
  add_around(exact.back() * (1 + std::ldexp(1.0, to == DType::kF16    ? -11
                                                 : to == DType::kBF16 ? -8
                                                                      : -4)));
  for (const double v :
       {0.0, -0.0, 1e-45, 1e-300, 1e30, 3.4028234e38, 1e300, 0.5, 1.5, 2.5, 127.5, 255.5, 1e10}) {
    values.push_back(v), values.push_back(-v);
  }
  for (const double v : {INFINITY, -INFINITY, NAN, -NAN}) values.push_back(v);
  std::mt19937_64 random(20240607);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t bits = random();
    values.push_back(LoadValue(from, &bits));
  }
  if (from == DType::kF32) {
    for (double& v : values) v = RoundTo(DType::kF32, v);
  }
  return values;
}

void ExpectConversion(DType from, DType to, const std::vector<double>& values,
                      runtime::CpuDevice& device) {
  const auto results = RunCompiled(
      CastKernel(from, to, values.size()),
      {Buffer{from, values}, Buffer{to, std::vector<double>(values.size())}}, {1, 1, 1}, device);
  ASSERT_TRUE(results.ok()) << results.status().message();
  int wrong = 0;
  for (size_t i = 0; i < values.size() && wrong < 5; ++i) {
    const double expected = from == to ? values[i] : RoundTo(to, values[i]),
                 actual = (*results)[1][i];
    // Integers have no negative zero.
    const bool same = IsFloat(to) ? SameValue(expected, actual) : expected == actual;
    if (same) continue;
    ++wrong;
    ADD_FAILURE() << fmt::format("{} {:a} as {}: {:a}, not {:a}", Info(from).text, values[i],
                                 Info(to).text, actual, expected);
  }
}

TEST(Storage, EveryCodeDecodesExactly) {
  for (const DType from : kSmallTypes) {
    for (const DType to : {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kBool}) {
      ExpectConversion(from, to, AllValues(from), TestDevice());
    }
  }
}

TEST(Storage, EveryRoundingDecisionFromF32AndF64) {
  for (const DType from : {DType::kF32, DType::kF64}) {
    for (const DType to : kSmallTypes) ExpectConversion(from, to, Probes(from, to), TestDevice());
  }
}

TEST(Storage, HalfWithoutHardwareConversion) {
  runtime::CpuDevice& device = TestDevice({.use_native_half = false, .use_vector_math = true});
  ExpectConversion(DType::kF16, DType::kF32, AllValues(DType::kF16), device);
  ExpectConversion(DType::kF32, DType::kF16, Probes(DType::kF32, DType::kF16), device);
  ExpectConversion(DType::kF64, DType::kF16, Probes(DType::kF64, DType::kF16), device);
}

TEST(Storage, EveryCodeIntoEveryOtherSmallType) {
  for (const DType from : kSmallTypes) {
    for (const DType to : kSmallTypes) ExpectConversion(from, to, AllValues(from), TestDevice());
  }
}

TEST(Storage, CastsOfEveryPairAgreeWithTheInterpreter) {
  const std::vector<double> values = {
      0,        1,     -1,       2,        3,     0.5,    -0.5,       1.5,           2.5, -2.5,
      100,      127,   128,      -128,     -129,  200,    255,        256,           448, 464,
      465,      57344, 61440,    65504,    65520, 100000, 2147483647, -2147483648.0, 4e9, -4e9,
      16777217, 0.1,   -3.14159, 16777219, 1e15,  -1e15};
  for (const DType from : kAllTypes) {
    for (const DType to : kAllTypes) {
      const auto outcome =
          RunBoth(CastKernel(from, to, values.size()),
                  {Buffer{from, values}, Buffer{to, std::vector<double>(values.size())}});
      ASSERT_TRUE(outcome.ok()) << outcome.status().message();
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(outcome->compiled[1][i], outcome->interpreted[1][i])
            << Info(from).text << " " << RoundTo(from, values[i]) << " as " << Info(to).text;
      }
    }
  }
}

TEST(Storage, WideCopiesMoveEveryType) {
  for (const DType type : kAllTypes) {
    for (int bytes = 2; bytes <= 16; bytes *= 2) {
      const int lanes = bytes / SizeOf(type);
      if (lanes < 1) continue;
      const int count = lanes * 5;
      const std::string text = fmt::format(
          R"(kernel copy_{0}_{1}(x: ptr<{0}> const align 16, y: ptr<{0}> align 16) threads 1 {{
  for i in 0..5 {{
    alloc v : {0}[{1}] reg
    copy v[0] <- x[mul(i, {1})] lanes {1}
    copy y[mul(i, {1})] <- v[0] lanes {1}
  }}
}}
)",
          Info(type).text, lanes);
      std::vector<double> values;
      for (int i = 0; i < count; ++i) values.push_back(RoundTo(type, i % 7 - 3));
      const auto outcome =
          RunBoth(text, {Buffer{type, values}, Buffer{type, std::vector<double>(count)}});
      ASSERT_TRUE(outcome.ok()) << outcome.status().message();
      EXPECT_EQ(outcome->compiled[1], values) << text;
      EXPECT_EQ(outcome->interpreted[1], values) << text;
    }
  }
}

}  // namespace
}  // namespace kiln::test
