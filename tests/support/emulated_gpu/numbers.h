// Numbers of the formats that x86 lacks, as the GPU has them: conversions round once, a NaN that is
// computed is the canonical one. Written from the formats.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace kiln::emulated {

template <class To, class From>
inline To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline float Canonical(float v) { return v != v ? BitsAs<float>(0x7fffffffu) : v; }
inline double Canonical(double v) { return v != v ? BitsAs<double>(0xfff8000000000000ull) : v; }
inline float Flushed(float v) {
  return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.f, v) : v;
}

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp, kAway /* ties away from zero */ };

// The f32 that tensor cores make of a sum: the nearest one towards zero.
inline float CutOff(double sum) {
  const auto nearest = static_cast<float>(sum);
  const bool is_too_far = std::isfinite(nearest) && std::abs(double{nearest}) > std::abs(sum);
  return is_too_far ? std::nextafter(nearest, 0.f) : Canonical(nearest);
}

// Integer nearest to v (of small size) as a double.
inline double RoundToInteger(double v, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return std::nearbyint(v);
    case Rounding::kZero:
      return std::trunc(v);
    case Rounding::kDown:
      return std::floor(v);
    case Rounding::kUp:
      return std::ceil(v);
    case Rounding::kAway:
      return std::round(v);
  }
  return v;
}

// A binary format of at most 32 bits without its sign.
struct Format {
  int exponent_bits, mantissa_bits;
  int bias;
  bool has_inf;        // else the largest code is NaN alone (e4m3)
  uint32_t canonical;  // NaN
  double largest;
};
constexpr Format kHalf = {5, 10, 15, true, 0x7fff, 65504};
constexpr Format kBfloat = {8, 7, 127, true, 0x7fff, 0x1.fep127};
constexpr Format kSingle = {8, 23, 127, true, 0x7fffffff, 0x1.fffffep127};
constexpr Format kTfloat = {8, 10, 127, true, 0x7fffffff, 0x1.ffcp127};
constexpr Format kE4M3 = {4, 3, 7, false, 0x7f, 448};
constexpr Format kE5M2 = {5, 2, 15, true, 0x7f, 57344};

// v in the format's bits (sign included). `saturates`: what is too large becomes the largest
// number.
inline uint32_t Encode(const Format& f, double v, Rounding rounding, bool saturates) {
  const int bits = f.exponent_bits + f.mantissa_bits;
  const uint32_t sign = std::signbit(v) ? 1u << bits : 0;
  if (v != v) return f.canonical;
  double a = std::fabs(v);
  const uint32_t infinity = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  const double largest = f.largest;
  const auto overflow = [&]() -> uint32_t {
    const bool inward = rounding == Rounding::kZero || (rounding == Rounding::kDown && sign == 0) ||
                        (rounding == Rounding::kUp && sign != 0);
    if (saturates || !f.has_inf || (inward && !std::isinf(a)))
      return sign | (f.has_inf ? infinity - 1 : f.canonical - 1);
    return sign | infinity;
  };
  if (std::isinf(a)) return overflow();
  if (a == 0) return sign;
  int exponent = std::ilogb(a);
  exponent = std::max(exponent, 1 - f.bias);
  const double unit = std::ldexp(1.0, exponent - f.mantissa_bits);
  Rounding of_magnitude = rounding;
  if (sign != 0 && rounding == Rounding::kDown) of_magnitude = Rounding::kUp;
  if (sign != 0 && rounding == Rounding::kUp) of_magnitude = Rounding::kDown;
  a = RoundToInteger(a / unit, of_magnitude) * unit;
  if (a > largest) return overflow();
  if (a == 0) return sign;
  exponent = std::max(std::ilogb(a), 1 - f.bias);
  const auto mantissa = static_cast<uint32_t>(std::ldexp(a, f.mantissa_bits - exponent));
  // The hidden bit carries into the exponent; a subnormal has none.
  return sign | ((static_cast<uint32_t>(exponent + f.bias - 1) << f.mantissa_bits) + mantissa);
}

inline double Decode(const Format& f, uint32_t code) {
  const int bits = f.exponent_bits + f.mantissa_bits;
  const double sign = (code >> bits & 1) != 0 ? -1 : 1;
  const uint32_t magnitude = code & ((1u << bits) - 1);
  const uint32_t mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  const auto exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const int top = (1 << f.exponent_bits) - 1;
  if (f.has_inf && exponent == top)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (!f.has_inf && magnitude == (1u << bits) - 1) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1u << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
}

// Rounds f32 to f16 and bf16, to nearest, by their bits.
inline uint16_t HalfBits(float v) {
  const uint32_t u = BitsAs<uint32_t>(v), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return 0x7fff;
  if (a >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (a < 0x38800000) {  // multiples of 2^-24: the sum's low bits are the number of them
    const float sum = BitsAs<float>(a) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsAs<uint32_t>(sum) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
}
inline uint16_t BfloatBits(float v) {
  const uint32_t u = BitsAs<uint32_t>(v);
  return v != v ? 0x7fff : static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// f16 and bf16 as values; arithmetic is done in f32 or f64, whose result rounds to the same number.
struct F16 {
  uint16_t bits;
  static F16 From(double v) {
    return {static_cast<uint16_t>(Encode(kHalf, v, Rounding::kNearest, false))};
  }
  float Value() const {
    const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    const uint32_t sign = (bits & 0x8000u) << 16;
    if (exponent == 0)
      return BitsAs<float>(BitsAs<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f) | sign);
    return BitsAs<float>(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13);
  }
};
struct BF16 {
  uint16_t bits;
  static BF16 From(double v) {
    return {static_cast<uint16_t>(Encode(kBfloat, v, Rounding::kNearest, false))};
  }
  float Value() const { return BitsAs<float>(static_cast<uint32_t>(bits) << 16); }
};
template <class Half>
struct Pair {
  Half low, high;
};

}  // namespace kiln::emulated
