// ir/dtype.h against formulas that share nothing with it: every pattern of the 8- and 16-bit floats
// is decoded from the definition of its format, and every gap between neighbours is checked for its
// rounding.
#include "ir/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace kiln {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Format {
  DType type;
  int patterns;   // 256 or 65536
  int exponents;  // values of the exponent field
  int mantissas;  // values of the mantissa field
  int bias;
  bool ieee_top;  // the top exponent is infinity and NaN; else only its last mantissa is NaN
  bool saturates;
};

constexpr Format kFormats[] = {
    {DType::kF16, 65536, 32, 1024, 15, true, false},
    {DType::kBF16, 65536, 256, 128, 127, true, false},
    {DType::kE4M3, 256, 16, 8, 7, false, true},
    {DType::kE5M2, 256, 32, 4, 15, true, true},
};

// (-1)^s * 2^(e-bias) * (1 + m/M), or 2^(1-bias) * m/M for e = 0.
double Definition(const Format& f, int pattern) {
  const double sign = pattern >= f.patterns / 2 ? -1 : 1;
  const int magnitude = pattern % (f.patterns / 2);
  const int e = magnitude / f.mantissas;
  const double fraction = static_cast<double>(magnitude % f.mantissas) / f.mantissas;
  if (e == f.exponents - 1) {
    if (f.ieee_top) return fraction == 0 ? sign * kInf : kNaN;
    if (magnitude % f.mantissas == f.mantissas - 1) return kNaN;
  }
  if (e == 0) return sign * std::pow(2.0, 1 - f.bias) * fraction;
  return sign * std::pow(2.0, e - f.bias) * (1 + fraction);
}

double Load(DType type, int pattern) {
  const auto wide = static_cast<uint16_t>(pattern);
  return LoadValue(type, &wide);  // little endian: the low byte is an 8-bit pattern
}

int Stored(DType type, double value) {
  uint16_t bits = 0;
  StoreValue(type, value, &bits);
  return bits;
}

class SmallFloatTest : public ::testing::TestWithParam<Format> {};

TEST_P(SmallFloatTest, EveryPatternDecodesByTheDefinition) {
  const Format& f = GetParam();
  for (int pattern = 0; pattern < f.patterns; ++pattern) {
    const double want = Definition(f, pattern);
    const double got = Load(f.type, pattern);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << "pattern " << pattern;
    } else {
      ASSERT_EQ(got, want) << "pattern " << pattern;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << "pattern " << pattern;
    }
  }
}

TEST_P(SmallFloatTest, EveryFinitePatternSurvivesARoundTrip) {
  const Format& f = GetParam();
  for (int pattern = 0; pattern < f.patterns; ++pattern) {
    const double value = Definition(f, pattern);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(Load(f.type, Stored(f.type, value))));
    } else if (std::isinf(value) && f.saturates) {
      ASSERT_EQ(std::fabs(RoundTo(f.type, value)), 57344.0);
    } else {
      ASSERT_EQ(Stored(f.type, value), pattern);
    }
  }
}

// Between neighbours a < b: the midpoint goes to the even pattern, everything nearer to its
// neighbour.
TEST_P(SmallFloatTest, RoundsToNearestAndTiesToEvenInEveryGap) {
  const Format& f = GetParam();
  for (int pattern = 0; pattern + 1 < f.patterns / 2; ++pattern) {
    const double a = Definition(f, pattern);
    const double b = Definition(f, pattern + 1);
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    const double middle = a + (b - a) / 2;  // exact: double has bits to spare
    const int even = pattern % 2 == 0 ? pattern : pattern + 1;
    const int negative = f.patterns / 2;
    ASSERT_EQ(Stored(f.type, middle), even) << "gap above pattern " << pattern;
    ASSERT_EQ(Stored(f.type, -middle), even + negative) << "gap above pattern " << pattern;
    ASSERT_EQ(Stored(f.type, std::nextafter(middle, 0)), pattern);
    ASSERT_EQ(Stored(f.type, std::nextafter(middle, kInf)), pattern + 1);
    ASSERT_EQ(Stored(f.type, -std::nextafter(middle, kInf)), pattern + 1 + negative);
  }
}

TEST_P(SmallFloatTest, OverflowSaturatesOrBecomesInfinite) {
  const Format& f = GetParam();
  double largest = 0;
  double below = 0;
  for (int pattern = 0; pattern < f.patterns / 2; ++pattern) {
    const double value = Definition(f, pattern);
    if (!std::isfinite(value)) break;
    below = largest;
    largest = value;
  }
  const double half_step = (largest - below) / 2;
  EXPECT_EQ(RoundTo(f.type, largest + half_step * 0.999), largest);
  const double above = f.saturates ? largest : kInf;
  for (const double value : {largest + half_step, largest * 2, 1e300, kInf}) {
    EXPECT_EQ(RoundTo(f.type, value), above) << value;
    EXPECT_EQ(RoundTo(f.type, -value), -above) << value;
  }
}

TEST_P(SmallFloatTest, UnderflowKeepsTheSign) {
  const Format& f = GetParam();
  const double smallest = Definition(f, 1);
  EXPECT_EQ(Stored(f.type, smallest / 2), 0) << "a tie between 0 and the smallest goes to 0";
  EXPECT_EQ(Stored(f.type, -smallest / 2), f.patterns / 2);
  EXPECT_EQ(RoundTo(f.type, smallest * 0.51), smallest);
  EXPECT_EQ(RoundTo(f.type, std::numeric_limits<double>::denorm_min()), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallFloatTest, ::testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(Info(info.param.type).text); });

TEST(DType, KnownConstants) {
  EXPECT_EQ(RoundTo(DType::kE4M3, 1e9), 448.0);
  EXPECT_EQ(RoundTo(DType::kE5M2, -1e9), -57344.0);
  EXPECT_EQ(RoundTo(DType::kF16, 65519.0), 65504.0);
  EXPECT_EQ(RoundTo(DType::kF16, 65520.0), kInf);
  EXPECT_EQ(Stored(DType::kBF16, 1.0), 0x3f80);
  EXPECT_EQ(Stored(DType::kF16, -2.0), 0xc000);
  EXPECT_EQ(Stored(DType::kE4M3, 1.0), 0x38);
  EXPECT_EQ(Stored(DType::kE5M2, 1.0), 0x3c);
  EXPECT_TRUE(std::isnan(RoundTo(DType::kE4M3, kNaN)));
  EXPECT_TRUE(std::isnan(RoundTo(DType::kE5M2, kNaN)));
}

TEST(DType, E8M0HoldsPowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const double power = std::pow(2.0, code - 127);
    EXPECT_EQ(Load(DType::kE8M0, code), power);
    EXPECT_EQ(Stored(DType::kE8M0, power), code);
    EXPECT_EQ(Stored(DType::kE8M0, -power), code) << "there is no sign";
    EXPECT_EQ(Stored(DType::kE8M0, power * (1 + 0x1p-40)), std::min(code + 1, 254));
    EXPECT_EQ(Stored(DType::kE8M0, power * (1 - 0x1p-40)), code);
  }
  EXPECT_TRUE(std::isnan(Load(DType::kE8M0, 255)));
  EXPECT_EQ(Stored(DType::kE8M0, kNaN), 255);
  EXPECT_EQ(Stored(DType::kE8M0, kInf), 254);
  EXPECT_EQ(Stored(DType::kE8M0, 0), 0);
  EXPECT_EQ(Stored(DType::kE8M0, 1e-300), 0);
}

TEST(DType, Bf16RoundsOnceFromDouble) {
  // Through float this value would round twice: to the midpoint 1 + 2^-8, then down to 1.
  EXPECT_EQ(RoundTo(DType::kBF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
}

TEST(DType, F32AndF64) {
  EXPECT_EQ(RoundTo(DType::kF32, 1 + 0x1p-24), 1.0);
  EXPECT_EQ(RoundTo(DType::kF32, 1 + 0x1.8p-24), 1 + 0x1p-23);
  EXPECT_EQ(RoundTo(DType::kF32, 1e39), kInf);
  EXPECT_EQ(RoundTo(DType::kF64, 0.1), 0.1);
}

struct IntegerCase {
  DType type;
  double lowest, highest;
};

class IntegerTest : public ::testing::TestWithParam<IntegerCase> {};

TEST_P(IntegerTest, SaturatesAndRoundsTiesToEven) {
  const auto [type, lowest, highest] = GetParam();
  EXPECT_EQ(RoundTo(type, 2.5), 2);
  EXPECT_EQ(RoundTo(type, 3.5), 4);
  EXPECT_EQ(RoundTo(type, 0.5), 0);
  EXPECT_EQ(RoundTo(type, 1.4999), 1);
  EXPECT_EQ(RoundTo(type, lowest), lowest);
  EXPECT_EQ(RoundTo(type, highest), highest);
  EXPECT_EQ(RoundTo(type, highest * 2), highest);
  EXPECT_EQ(RoundTo(type, -1e30), lowest);
  EXPECT_EQ(RoundTo(type, kInf), highest);
  EXPECT_EQ(RoundTo(type, -kInf), lowest);
  EXPECT_EQ(RoundTo(type, kNaN), 0);
  EXPECT_EQ(RoundTo(type, -2.5), lowest == 0 ? 0 : -2);
}

INSTANTIATE_TEST_SUITE_P(Types, IntegerTest,
                         ::testing::Values(IntegerCase{DType::kI8, -128, 127},
                                           IntegerCase{DType::kU8, 0, 255},
                                           IntegerCase{DType::kI32, -0x1p31, 0x1p31 - 1},
                                           IntegerCase{DType::kI64, -0x1p63, 0x1p63}),
                         [](const auto& info) { return std::string(Info(info.param.type).text); });

TEST(DType, Int64StoresItsLimitsExactly) {
  int64_t bits = 0;
  StoreValue(DType::kI64, 1e30, &bits);
  EXPECT_EQ(bits, INT64_MAX);
  StoreValue(DType::kI64, -1e30, &bits);
  EXPECT_EQ(bits, INT64_MIN);
}

TEST(DType, BoolIsWhetherNotZero) {
  EXPECT_EQ(RoundTo(DType::kBool, 0.0), 0);
  EXPECT_EQ(RoundTo(DType::kBool, -0.0), 0);
  EXPECT_EQ(RoundTo(DType::kBool, 1e-300), 1);
  EXPECT_EQ(RoundTo(DType::kBool, kNaN), 1);
  const uint8_t two = 2;
  EXPECT_EQ(LoadValue(DType::kBool, &two), 1);
}

TEST(DType, E2M1HasSixteenNumbers) {
  const double numbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int code = 0; code < 8; ++code) {
    EXPECT_EQ(Load(DType::kE2M1, code), numbers[code]);
    EXPECT_EQ(Load(DType::kE2M1, code + 8), -numbers[code]);
    EXPECT_TRUE(std::signbit(Load(DType::kE2M1, code + 8)));
    EXPECT_EQ(Stored(DType::kE2M1, numbers[code]), code);
    EXPECT_EQ(Stored(DType::kE2M1, -numbers[code]), code + 8);
    if (code == 7) continue;
    const double middle = (numbers[code] + numbers[code + 1]) / 2;
    EXPECT_EQ(Stored(DType::kE2M1, middle), code + code % 2);
    EXPECT_EQ(Stored(DType::kE2M1, std::nextafter(middle, 0)), code);
    EXPECT_EQ(Stored(DType::kE2M1, -std::nextafter(middle, kInf)), code + 9);
  }
  for (const double above : {6.5, 1e30, kInf, kNaN}) EXPECT_EQ(Stored(DType::kE2M1, above), 7);
  EXPECT_EQ(Stored(DType::kE2M1, -kInf), 15);
}

TEST(DType, IntegersOfFourBitsSaturate) {
  for (int code = 0; code < 16; ++code) {
    EXPECT_EQ(Load(DType::kU4, code), code);
    EXPECT_EQ(Load(DType::kI4, code), code < 8 ? code : code - 16);
    EXPECT_EQ(Stored(DType::kU4, code), code);
    EXPECT_EQ(Stored(DType::kI4, code < 8 ? code : code - 16), code);
  }
  EXPECT_EQ(RoundTo(DType::kI4, 2.5), 2);
  EXPECT_EQ(RoundTo(DType::kI4, 1e30), 7);
  EXPECT_EQ(RoundTo(DType::kI4, -1e30), -8);
  EXPECT_EQ(RoundTo(DType::kI4, kNaN), 0);
  EXPECT_EQ(RoundTo(DType::kU4, 20), 15);
  EXPECT_EQ(RoundTo(DType::kU4, -1), 0);
  EXPECT_EQ(RoundTo(DType::kU32, 5e9), 4294967295.0);
  EXPECT_EQ(RoundTo(DType::kU32, -5e9), 0);
}

TEST(DType, TwoElementsOfFourBitsShareAByte) {
  uint8_t bytes[] = {0xee, 0xee, 0xee};
  StoreElement(DType::kI4, -3, bytes, 2);
  EXPECT_EQ(bytes[1], 0xed);
  StoreElement(DType::kI4, 5, bytes, 3);
  EXPECT_EQ(bytes[1], 0x5d);
  EXPECT_EQ(bytes[0], 0xee);
  EXPECT_EQ(bytes[2], 0xee);
  EXPECT_EQ(LoadElement(DType::kI4, bytes, 2), -3);
  EXPECT_EQ(LoadElement(DType::kI4, bytes, 3), 5);
  EXPECT_EQ(BytesOf(DType::kE2M1, 5), 3);
  EXPECT_EQ(BytesOf(DType::kF16, 5), 10);
  const uint16_t halves[] = {0x3c00, 0x4000};
  EXPECT_EQ(LoadElement(DType::kF16, halves, 1), 2);
}

TEST(DType, EightBoolsOfOneBitShareAByte) {
  uint8_t bytes[] = {0xee, 0xee, 0xee};
  StoreElement(DType::kB1, 1, bytes, 8);
  EXPECT_EQ(bytes[1], 0xef);
  StoreElement(DType::kB1, 0, bytes, 15);
  EXPECT_EQ(bytes[1], 0x6f);
  StoreElement(DType::kB1, kNaN, bytes, 12);
  EXPECT_EQ(bytes[1], 0x7f);
  EXPECT_EQ(bytes[0], 0xee);
  EXPECT_EQ(bytes[2], 0xee);
  for (int64_t i = 0; i < 24; ++i)
    EXPECT_EQ(LoadElement(DType::kB1, bytes, i), bytes[i / 8] >> i % 8 & 1) << i;
  EXPECT_EQ(BytesOf(DType::kB1, 17), 3);
  EXPECT_EQ(RoundTo(DType::kB1, -0.0), 0);
  EXPECT_EQ(RoundTo(DType::kB1, 1e-300), 1);
}

constexpr DType kAll[] = {
#define DTYPE(Name, ...) DType::k##Name,
#include "ir/dtype.def"
#undef DTYPE
};

TEST(DType, TextAndTypeNameEachOther) {
  for (const DType type : kAll) EXPECT_EQ(DTypeFromText(Info(type).text), type) << Info(type).text;
  EXPECT_EQ(DTypeFromText("f32 "), std::nullopt);
  EXPECT_EQ(DTypeFromText(""), std::nullopt);
}

TEST(DType, StoreTouchesItsBytesAloneAtAnyAddress) {
  for (const DType type : kAll) {
    std::vector<unsigned char> bytes(2 + SizeOf(type) + 2, 0xee);
    StoreValue(type, 1.0, bytes.data() + 1);
    EXPECT_EQ(LoadValue(type, bytes.data() + 1), 1.0) << Info(type).text;
    EXPECT_EQ(bytes[0], 0xee) << Info(type).text;
    EXPECT_EQ(bytes[1 + SizeOf(type)], 0xee) << Info(type).text;
  }
}

TEST(DType, KindsAreWhatTheNamesSay) {
  EXPECT_TRUE(IsFloat(DType::kE4M3));
  EXPECT_FALSE(IsInteger(DType::kE4M3));
  EXPECT_TRUE(IsInteger(DType::kU8));
  EXPECT_FALSE(IsFloat(DType::kBool));
  EXPECT_FALSE(IsInteger(DType::kBool));
}

}  // namespace
}  // namespace kiln
