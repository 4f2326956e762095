// Formats as a table; floating types narrower than f32 are taken apart with frexp and ldexp.
#include "tests/support/oracle/dtype.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace kiln::oracle {
namespace {

constexpr double kI64Max = 9223372036854774784.0;  // the largest f64 below 2^63

constexpr std::array kRows = {
    DTypeRow{DType::kF32, "f32", 0, 4, 24, -126, -0x1.fffffep127, 0x1.fffffep127, true, false},
    DTypeRow{DType::kF64, "f64", 1, 8, 53, -1022, -0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023,
             true, false},
    DTypeRow{DType::kF16, "f16", 2, 2, 11, -14, -65504, 65504, true, false},
    DTypeRow{DType::kBF16, "bf16", 9, 2, 8, -126, -0x1.fep127, 0x1.fep127, true, false},
    DTypeRow{DType::kE4M3, "e4m3", 12, 1, 4, -6, -448, 448, false, true},
    DTypeRow{DType::kE5M2, "e5m2", 13, 1, 3, -14, -57344, 57344, true, true},
    DTypeRow{DType::kE8M0, "e8m0", 15, 1, 1, -127, 0x1p-127, 0x1p127, false, true},
    DTypeRow{DType::kI8, "i8", 3, 1, 0, 0, -128, 127, false, true},
    DTypeRow{DType::kU8, "u8", 6, 1, 0, 0, 0, 255, false, true},
    DTypeRow{DType::kI32, "i32", 4, 4, 0, 0, -2147483648.0, 2147483647.0, false, true},
    DTypeRow{DType::kI64, "i64", 10, 8, 0, 0, -9223372036854775808.0, kI64Max, false, true},
    DTypeRow{DType::kBool, "bool", 11, 1, 0, 0, 0, 1, false, true, 1},
    DTypeRow{DType::kE2M1, "e2m1", 16, 1, 2, 0, -6, 6, false, true, 4},
    DTypeRow{DType::kI4, "i4", 17, 1, 0, 0, -8, 7, false, true, 4},
    DTypeRow{DType::kU4, "u4", 18, 1, 0, 0, 0, 15, false, true, 4},
    DTypeRow{DType::kU32, "u32", 19, 4, 0, 0, 0, 4294967295.0, false, true},
    // Complex types: numbers of the parts, but for the bytes.
    DTypeRow{DType::kC64, "c64", 20, 8, 24, -126, -0x1.fffffep127, 0x1.fffffep127, true, false},
    DTypeRow{DType::kC128, "c128", 21, 16, 53, -1022, -0x1.fffffffffffffp1023,
             0x1.fffffffffffffp1023, true, false},
};

// Ties-to-even without the floating environment.
double RoundHalfEven(double value) {
  const double low = std::floor(value);
  const double rest = value - low;
  if (rest < 0.5) return low;
  if (rest > 0.5) return low + 1;
  return std::fmod(low, 2) == 0 ? low : low + 1;
}

double RoundFloating(const DTypeRow& row, double value) {
  if (row.mantissa == 53 || value == 0 || std::isnan(value)) return value;
  if (std::isinf(value)) return row.saturates ? std::copysign(row.highest, value) : value;
  int exponent = std::ilogb(value);
  exponent = std::max(exponent, row.min_exponent);
  const int step = exponent - row.mantissa + 1;  // the unit in the last place is 2^step
  const double rounded = std::ldexp(RoundHalfEven(std::ldexp(std::fabs(value), -step)), step);
  double magnitude = rounded;
  if (magnitude > row.highest)
    magnitude = row.saturates ? row.highest : std::numeric_limits<double>::infinity();
  return std::copysign(magnitude, value);
}

// The least power of two that is no smaller than |value|, within what the format holds.
double RoundUpToPower(const DTypeRow& row, double value) {
  if (std::isnan(value)) return value;
  double power = row.lowest;
  while (power < std::fabs(value) && power < row.highest) power *= 2;
  return power;
}

// Sign, exponent and fraction of an exactly representable value in `row`'s format.
uint64_t PackSmall(const DTypeRow& row, double value) {
  const int fraction_bits = row.mantissa - 1;
  const int total = row.packed != 0 ? row.packed : row.bytes * 8;
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (total - 1) : 0;
  const uint64_t exponent_mask = (uint64_t{1} << (total - row.mantissa)) - 1;
  if (std::isnan(value))
    return sign | exponent_mask << fraction_bits | ((uint64_t{1} << fraction_bits) - 1);
  if (std::isinf(value)) return sign | exponent_mask << fraction_bits;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), row.min_exponent);
  const auto units = static_cast<uint64_t>(std::ldexp(magnitude, fraction_bits - exponent));
  const uint64_t hidden = uint64_t{1} << fraction_bits;
  if (units < hidden) return sign | units;  // subnormal
  return sign | static_cast<uint64_t>(exponent - row.min_exponent + 1) << fraction_bits |
         (units - hidden);
}

double UnpackSmall(const DTypeRow& row, uint64_t bits) {
  const int fraction_bits = row.mantissa - 1;
  const int total = row.packed != 0 ? row.packed : row.bytes * 8;
  const uint64_t exponent_mask = (uint64_t{1} << (total - row.mantissa)) - 1;
  const bool negative = bits >> (total - 1) & 1;
  const uint64_t exponent = bits >> fraction_bits & exponent_mask;
  const uint64_t fraction = bits & ((uint64_t{1} << fraction_bits) - 1);
  const double sign = negative ? -1 : 1;
  const bool all_ones = exponent == exponent_mask;
  // E4M3 has no infinity: only the largest fraction of the top exponent is NaN.
  if (all_ones && !row.has_inf && row.packed == 0 && fraction == (uint64_t{1} << fraction_bits) - 1)
    return std::nan("");
  if (all_ones && row.has_inf)
    return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0)
    return sign * std::ldexp(static_cast<double>(fraction), row.min_exponent - fraction_bits);
  const auto units = static_cast<double>(fraction + (uint64_t{1} << fraction_bits));
  return sign *
         std::ldexp(units, static_cast<int>(exponent) - 1 + row.min_exponent - fraction_bits);
}

template <typename T>
double Read(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return static_cast<double>(value);
}

template <typename T>
void Write(double value, uint8_t* bytes) {
  const auto typed = static_cast<T>(value);
  std::memcpy(bytes, &typed, sizeof(T));
}

}  // namespace

const DTypeRow& Row(DType type) { return kRows[static_cast<size_t>(type)]; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeRow& row : kRows) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

double Round(DType type, double value) {
  const DTypeRow& row = Row(type);
  if (type == DType::kE8M0) return RoundUpToPower(row, value);
  if (type == DType::kE2M1 && std::isnan(value)) return row.highest;
  if (row.mantissa > 0) return RoundFloating(row, value);
  if (type == DType::kBool) return value != 0 ? 1 : 0;
  if (std::isnan(value)) return 0;
  return std::clamp(RoundHalfEven(std::clamp(value, row.lowest, row.highest)), row.lowest,
                    row.highest);
}

double Decode(DType type, const uint8_t* bytes) {
  switch (type) {
    case DType::kF32:
    case DType::kC64:
      return Read<float>(bytes);
    case DType::kF64:
    case DType::kC128:
      return Read<double>(bytes);
    case DType::kI8:
      return Read<int8_t>(bytes);
    case DType::kU8:
      return Read<uint8_t>(bytes);
    case DType::kI32:
      return Read<int32_t>(bytes);
    case DType::kI64:
      return Read<int64_t>(bytes);
    case DType::kBool:
      return *bytes % 2;
    case DType::kF16:
    case DType::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, bytes, 2);
      return UnpackSmall(Row(type), bits);
    }
    case DType::kE4M3:
    case DType::kE5M2:
      return UnpackSmall(Row(type), *bytes);
    case DType::kE2M1:
      return UnpackSmall(Row(type), *bytes % 16);
    case DType::kI4:
      return *bytes % 16 - *bytes / 8 % 2 * 16;
    case DType::kU4:
      return *bytes % 16;
    case DType::kU32:
      return Read<uint32_t>(bytes);
    case DType::kE8M0:
      return *bytes == 255 ? std::nan("") : std::ldexp(1.0, *bytes - 127);
  }
  return 0;
}

void Encode(DType type, double value, uint8_t* bytes) {
  const double rounded = Round(type, value);
  switch (type) {
    case DType::kF32:
    case DType::kC64:
      return Write<float>(rounded, bytes);
    case DType::kF64:
    case DType::kC128:
      return Write<double>(rounded, bytes);
    case DType::kI8:
      return Write<int8_t>(rounded, bytes);
    case DType::kU8:
      return Write<uint8_t>(rounded, bytes);
    case DType::kI32:
      return Write<int32_t>(rounded, bytes);
    case DType::kI64:
      return Write<int64_t>(rounded, bytes);
    case DType::kBool:
      *bytes = rounded != 0;
      return;
    case DType::kF16:
    case DType::kBF16: {
      const auto bits = static_cast<uint16_t>(PackSmall(Row(type), rounded));
      std::memcpy(bytes, &bits, 2);
      return;
    }
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE2M1:
      *bytes = static_cast<uint8_t>(PackSmall(Row(type), rounded));
      return;
    case DType::kI4:
    case DType::kU4:
      *bytes = static_cast<uint8_t>(static_cast<int>(rounded) + (rounded < 0 ? 16 : 0));
      return;
    case DType::kU32:
      return Write<uint32_t>(rounded, bytes);
    case DType::kE8M0:
      *bytes = static_cast<uint8_t>(std::isnan(rounded) ? 255 : std::ilogb(rounded) + 127);
      return;
  }
}

DType PartOf(DType type) {
  return type == DType::kC64 ? DType::kF32 : type == DType::kC128 ? DType::kF64 : type;
}

namespace {

// Place of a packed element: its byte, what its code counts there, and how many codes there are.
struct Place {
  int64_t byte;
  int below, codes;
};
Place PlaceOf(const DTypeRow& row, int64_t index) {
  const int per_byte = 8 / row.packed, codes = 1 << row.packed;
  return {index / per_byte, 1 << index % per_byte * row.packed, codes};
}

}  // namespace

double DecodeAt(DType type, const uint8_t* bytes, int64_t index) {
  const DTypeRow& row = Row(type);
  if (row.packed == 0) return Decode(type, bytes + index * row.bytes);
  const auto [byte, below, codes] = PlaceOf(row, index);
  const auto code = static_cast<uint8_t>(bytes[byte] / below % codes);
  return Decode(type, &code);
}

void EncodeAt(DType type, double value, uint8_t* bytes, int64_t index) {
  const DTypeRow& row = Row(type);
  if (row.packed == 0) return Encode(type, value, bytes + index * row.bytes);
  uint8_t code;
  Encode(type, value, &code);
  const auto [byte, below, codes] = PlaceOf(row, index);
  const int old = bytes[byte] / below % codes;
  bytes[byte] = static_cast<uint8_t>(bytes[byte] + (code - old) * below);
}

double Ulp(DType type, double value) {
  const DTypeRow& row = Row(type);
  if (row.mantissa == 0) return 1;
  if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
  const int exponent =
      value == 0 ? row.min_exponent : std::max(std::ilogb(value), row.min_exponent);
  return std::ldexp(1.0, exponent - row.mantissa + 1);
}

double UnitRoundoff(DType type) {
  const int mantissa = Row(type).mantissa;
  return mantissa > 0 ? std::ldexp(1.0, -mantissa) : 0;
}

}  // namespace kiln::oracle
