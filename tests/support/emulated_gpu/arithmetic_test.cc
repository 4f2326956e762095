// Arithmetic of the emulated GPU against the host's: integers of all widths at their ends, floats
// with NaN, infinities and subnormals, roundings, conversions against the oracle's formats.
#include <fmt/format.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <random>

#include "tests/support/emulated_gpu/kernel_test.h"
#include "tests/support/oracle/dtype.h"

namespace kiln::emulated {
namespace {

class ArithmeticTest : public KernelTest {
 protected:
  // out[i] = `expression` of a = x[i], b = y[i], c = z[i].
  template <class T, class R = T>
  std::vector<R> Each(const std::string& type, const std::string& result,
                      const std::string& expression, const std::vector<T>& x,
                      const std::vector<T>& y, const std::vector<T>& z) {
    const DeviceArray<T> a(x), b(y), c(z);
    const DeviceArray<R> out(x.size());
    Run(fmt::format(
            R"(extern "C" __global__ void f(const {0}* x, const {0}* y, const {0}* z, {1}* out, int n) {{
          for (int i = threadIdx.x; i < n; i += blockDim.x) {{
            const {0} a = x[i], b = y[i], c = z[i];
            {1} r;
            {2};
            out[i] = r;
          }}
        }})",
            type, result, expression),
        {.block = {64, 1, 1}}, a.data(), b.data(), c.data(), out.data(),
        static_cast<int>(x.size()));
    return out.values();
  }
};

template <class T>
std::vector<T> Integers(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values;
  const T ends[] = {0,
                    1,
                    2,
                    31,
                    32,
                    33,
                    static_cast<T>(-1),
                    std::numeric_limits<T>::max(),
                    std::numeric_limits<T>::min(),
                    static_cast<T>(std::numeric_limits<T>::max() - 1)};
  for (size_t i = 0; i < 200; ++i)
    values.push_back(random() % 3 == 0 ? ends[random() % std::size(ends)]
                                       : static_cast<T>(random() >> random() % 60));
  return values;
}

std::vector<float> Floats(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values;
  const float ends[] = {0.f,    -0.f,    1.f,     -1.f, INFINITY, -INFINITY, NAN,
                        1e-40f, -3e-45f, 3.4e38f, 0.5f, 1.5f,     2.5f};
  for (size_t i = 0; i < 300; ++i)
    values.push_back(random() % 3 == 0 ? ends[random() % std::size(ends)]
                                       : std::ldexp(static_cast<float>(random() % 20001) - 10000,
                                                    static_cast<int>(random() % 40) - 30));
  return values;
}

void ExpectSame(float got, float want, const std::string& what) {
  if (want != want)
    EXPECT_TRUE(got != got) << what << ": " << got;
  else
    EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want))
        << what << ": " << got << ", not " << want;
}

template <class T>
struct Row {
  const char* expression;
  T (*expected)(T a, T b, T c);
};

template <class T>
T WrappedProduct(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

TEST_F(ArithmeticTest, SignedWords) {
  using T = int32_t;
  const Row<T> rows[] = {
      {"r = a + b", [](T a, T b, T) { return static_cast<T>(uint32_t(a) + uint32_t(b)); }},
      {"r = a * b + c",
       [](T a, T b, T c) { return static_cast<T>(uint32_t(WrappedProduct(a, b)) + uint32_t(c)); }},
      {"r = __mulhi(a, b)", [](T a, T b, T) { return static_cast<T>(int64_t{a} * b >> 32); }},
      {"r = b == 0 || b == -1 ? 7 : a / b",
       [](T a, T b, T) { return b == 0 || b == -1 ? 7 : a / b; }},
      {"r = b == 0 || b == -1 ? 7 : a % b",
       [](T a, T b, T) { return b == 0 || b == -1 ? 7 : a % b; }},
      {"r = min(a, b) ^ max(b, c)", [](T a, T b, T c) { return std::min(a, b) ^ std::max(b, c); }},
      {"r = a >> (b & 31)", [](T a, T b, T) { return a >> (b & 31); }},
      {"r = a < b ? b : c", [](T a, T b, T c) { return a < b ? b : c; }},
      {"r = __popc(a) + 100 * __clz(b) + 10000 * __ffs(c)",
       [](T a, T b, T c) {
         return std::popcount(uint32_t(a)) + 100 * std::countl_zero(uint32_t(b)) +
                10000 * (c == 0 ? 0 : std::countr_zero(uint32_t(c)) + 1);
       }},
      {"asm(\"bfe.s32 %0, %1, 5, 9;\" : \"=r\"(r) : \"r\"(a))",
       [](T a, T, T) { return static_cast<T>(uint32_t(a) << 18) >> 23; }},
      {"asm(\"bfi.b32 %0, %1, %2, 7, 11;\" : \"=r\"(r) : \"r\"(a), \"r\"(b))",
       [](T a, T b, T) { return static_cast<T>((b & ~(0x7ff << 7)) | (a & 0x7ff) << 7); }},
      {"asm(\"lop3.b32 %0, %1, %2, %3, 0xca;\" : \"=r\"(r) : \"r\"(a), \"r\"(b), \"r\"(c))",
       [](T a, T b, T c) { return (a & b) | (~a & c); }},
      {"r = __dp4a(a, b, c)",
       [](T a, T b, T c) {
         int64_t sum = c;
         for (int k = 0; k < 4; ++k) sum += int8_t(a >> (8 * k)) * int8_t(b >> (8 * k));
         return static_cast<T>(sum);
       }},
      {"r = __byte_perm(a, b, 0x6152)",
       [](T a, T b, T) {
         const uint8_t bytes[] = {uint8_t(a), uint8_t(a >> 8), uint8_t(a >> 16), uint8_t(a >> 24),
                                  uint8_t(b), uint8_t(b >> 8), uint8_t(b >> 16), uint8_t(b >> 24)};
         return static_cast<T>(bytes[2] | bytes[5] << 8 | bytes[1] << 16 |
                               uint32_t(bytes[6]) << 24);
       }},
      {"r = __funnelshift_l(a, b, c)",
       [](T a, T b, T c) {
         return static_cast<T>(((uint64_t(uint32_t(b)) << 32 | uint32_t(a)) << (c & 31)) >> 32);
       }},
  };
  const auto x = Integers<T>(1), y = Integers<T>(2), z = Integers<T>(3);
  for (const Row<T>& row : rows) {
    const auto got = Each<T>("int", "int", row.expression, x, y, z);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(got[i], row.expected(x[i], y[i], z[i]))
          << row.expression << " of " << x[i] << ", " << y[i] << ", " << z[i];
  }
}

TEST_F(ArithmeticTest, LongIntegers) {
  using T = uint64_t;
  const Row<T> rows[] = {
      {"r = a * b - c", [](T a, T b, T c) { return a * b - c; }},
      {"r = __umul64hi(a, b)",
       [](T a, T b, T) { return static_cast<T>((unsigned __int128)a * b >> 64); }},
      {"r = b == 0 ? a : a / b + a % b", [](T a, T b, T) { return b == 0 ? a : a / b + a % b; }},
      {"r = (a << (b & 63)) | (c >> (b & 63))",
       [](T a, T b, T c) { return a << (b & 63) | c >> (b & 63); }},
      {"r = (unsigned)a * (unsigned long long)(unsigned)b",
       [](T a, T b, T) { return uint64_t(uint32_t(a)) * uint32_t(b); }},
      {"r = (long long)(int)a * (int)b",
       [](T a, T b, T) { return static_cast<T>(int64_t{int32_t(a)} * int32_t(b)); }},
      {"r = (short)a + (unsigned char)b + (signed char)c",
       [](T a, T b, T c) { return static_cast<T>(int64_t{int16_t(a)} + uint8_t(b) + int8_t(c)); }},
      {"r = __brevll(a) + __popcll(b)",
       [](T a, T b, T) {
         T reversed = 0;
         for (int k = 0; k < 64; ++k) reversed |= (a >> k & 1) << (63 - k);
         return reversed + static_cast<T>(std::popcount(b));
       }},
  };
  const auto x = Integers<T>(4), y = Integers<T>(5), z = Integers<T>(6);
  for (const Row<T>& row : rows) {
    const auto got = Each<T>("unsigned long long", "unsigned long long", row.expression, x, y, z);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(got[i], row.expected(x[i], y[i], z[i])) << row.expression;
  }
}

float In(int mode, float (*op)(float, float), float a, float b) {
  const volatile float x = a, y = b;
  std::fesetround(mode);
  const volatile float r = op(x, y);
  std::fesetround(FE_TONEAREST);
  return r;
}

TEST_F(ArithmeticTest, Floats) {
  using T = float;
  static const auto add = [](float a, float b) { return a + b; };
  static const auto multiply = [](float a, float b) { return a * b; };
  const Row<T> rows[] = {
      {"r = __fadd_rn(a, b)", [](T a, T b, T) { return a + b; }},
      {"r = __fmaf_rn(a, b, c)", [](T a, T b, T c) { return std::fma(a, b, c); }},
      {"r = __fadd_rz(a, b)", [](T a, T b, T) { return In(FE_TOWARDZERO, add, a, b); }},
      {"r = __fadd_ru(a, b)", [](T a, T b, T) { return In(FE_UPWARD, add, a, b); }},
      {"r = __fmul_rd(a, b)", [](T a, T b, T) { return In(FE_DOWNWARD, multiply, a, b); }},
      {"r = __fdiv_rn(a, b)", [](T a, T b, T) { return a / b; }},
      {"r = __fsqrt_rn(a)", [](T a, T, T) { return std::sqrt(a); }},
      {"r = fminf(a, b)",
       [](T a, T b, T) {
         return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
       }},
      {"asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b))",
       [](T a, T b, T) {
         return a != a || b != b ? NAN : a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
       }},
      {"r = __saturatef(a)",
       [](T a, T, T) { return a != a ? 0.f : std::min(std::max(a, 0.f), 1.f) + 0.f; }},
      {"r = a < b ? 1.f : a >= b ? 2.f : 3.f",
       [](T a, T b, T) { return a < b    ? 1.f
                                : a >= b ? 2.f
                                         : 3.f; }},
      {"r = rintf(a) + truncf(b)", [](T a, T b, T) { return std::nearbyint(a) + std::trunc(b); }},
      {"asm(\"add.ftz.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b))",
       [](T a, T b, T) {
         const auto flush = [](float v) {
           return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.f, v) : v;
         };
         return flush(flush(a) + flush(b));
       }},
      {"asm(\"ex2.approx.f32 %0, %1;\" : \"=f\"(r) : \"f\"(a))",
       [](T a, T, T) { return static_cast<float>(std::exp2(double{a})); }},
      {"asm(\"rcp.approx.f32 %0, %1;\" : \"=f\"(r) : \"f\"(a))",
       [](T a, T, T) { return static_cast<float>(1 / double{a}); }},
      {"asm(\"tanh.approx.f32 %0, %1;\" : \"=f\"(r) : \"f\"(a))",
       [](T a, T, T) { return static_cast<float>(std::tanh(double{a})); }},
  };
  const auto x = Floats(7), y = Floats(8), z = Floats(9);
  for (const Row<T>& row : rows) {
    const auto got = Each<T>("float", "float", row.expression, x, y, z);
    for (size_t i = 0; i < x.size(); ++i)
      ExpectSame(got[i], row.expected(x[i], y[i], z[i]),
                 fmt::format("{} of {}, {}, {}", row.expression, x[i], y[i], z[i]));
  }
}

TEST_F(ArithmeticTest, FloatsToIntegers) {
  const auto x = Floats(10);
  const auto saturated = [](double v, double least, double most) {
    return v != v ? 0 : std::min(std::max(v, least), most);
  };
  const auto nearest = Each<float, int32_t>("float", "int", "r = __float2int_rn(a)", x, x, x);
  const auto down = Each<float, int32_t>("float", "int", "r = __float2int_rd(a)", x, x, x);
  const auto cut = Each<float, uint32_t>("float", "unsigned", "r = __float2uint_rz(a)", x, x, x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(nearest[i], saturated(std::nearbyint(double{x[i]}), -0x1p31, 0x1p31 - 1)) << x[i];
    EXPECT_EQ(down[i], saturated(std::floor(double{x[i]}), -0x1p31, 0x1p31 - 1)) << x[i];
    EXPECT_EQ(cut[i], saturated(std::trunc(double{x[i]}), 0, 0x1p32 - 1)) << x[i];
  }
}

// Narrow floats: f32 to them, and arithmetic in them, as the oracle rounds.
TEST_F(ArithmeticTest, NarrowFloats) {
  using oracle::DType;
  const struct {
    DType type;
    const char* convert;
    int bytes;
  } formats[] = {
      {DType::kF16,
       "unsigned short h; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(a)); r = h", 2},
      {DType::kBF16,
       "unsigned short h; asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(a)); r = h", 2},
      {DType::kE4M3,
       "unsigned short h; asm(\"cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\" : \"=h\"(h) : \"f\"(b), "
       "\"f\"(a)); r = h & 255",
       1},
      {DType::kE5M2,
       "unsigned short h; asm(\"cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;\" : \"=h\"(h) : \"f\"(b), "
       "\"f\"(a)); r = h & 255",
       1},
  };
  const auto x = Floats(11), y = Floats(12);
  for (const auto& format : formats) {
    const auto got = Each<float, uint32_t>("float", "unsigned", format.convert, x, y, y);
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = oracle::Round(format.type, x[i]);
      const double is = oracle::Decode(format.type, reinterpret_cast<const uint8_t*>(&got[i]));
      if (want != want)
        EXPECT_TRUE(is != is) << x[i];
      else
        EXPECT_EQ(is, want) << oracle::Row(format.type).name << " of " << x[i];
    }
  }
  const auto sums = Each<float, float>(
      "float", "float",
      "unsigned short p, q, s; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(p) : \"f\"(a));"
      "asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(q) : \"f\"(b));"
      "asm(\"fma.rn.f16 %0, %1, %2, %1;\" : \"=h\"(s) : \"h\"(p), \"h\"(q));"
      "asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(s))",
      x, y, y);
  for (size_t i = 0; i < x.size(); ++i) {
    const double p = oracle::Round(DType::kF16, x[i]), q = oracle::Round(DType::kF16, y[i]);
    ExpectSame(sums[i], static_cast<float>(oracle::Round(DType::kF16, std::fma(p, q, p))),
               fmt::format("{} * {} + {}", p, q, p));
  }
  const auto rounded = Each<float, float>("float", "float",
                                          "unsigned t; asm(\"cvt.rna.tf32.f32 %0, %1;\" : "
                                          "\"=r\"(t) : \"f\"(a)); r = __uint_as_float(t)",
                                          x, x, x);
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isnormal(x[i])) continue;
    const double unit = std::ldexp(1.0, std::ilogb(x[i]) - 10);
    EXPECT_EQ(rounded[i], static_cast<float>(std::round(double{x[i]} / unit) * unit)) << x[i];
  }
}

}  // namespace
}  // namespace kiln::emulated
