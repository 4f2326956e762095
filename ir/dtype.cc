// The numbers behind every data type: decoding is exact, encoding rounds to nearest even in one
// place. Interpreters, oracles, by-value scalars and constant folding all convert here, so that
// they agree with what the generated code stores (cvt.rn on the GPU, with .satfinite for fp8).
#include "ir/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

namespace kiln {
namespace {

constexpr DTypeInfo kInfos[] = {
#define DTYPE(Name, text, bits, cuda, kind) {text, bits, cuda, DTypeKind::kind},
#include "ir/dtype.def"
#undef DTYPE
};

// A float format of at most 16 bits: sign, exponent, mantissa, from the top bit down.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  double largest;     // finite
  uint16_t nan;       // the one that is stored, without a sign; a number where there is none
  bool saturates;     // above `largest`: stay there, else become infinite
  bool has_infinity;  // else the top exponent holds numbers too, and only `nan` is no number
  bool has_nan = true;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int sign_shift() const { return exponent_bits + mantissa_bits; }
  constexpr unsigned exponent_mask() const { return (1u << exponent_bits) - 1; }
  constexpr unsigned mantissa_mask() const { return (1u << mantissa_bits) - 1; }
};

constexpr SmallFloat kHalf = {.exponent_bits = 5,
                              .mantissa_bits = 10,
                              .largest = 65504.0,
                              .nan = 0x7fff,
                              .saturates = false,
                              .has_infinity = true};
constexpr SmallFloat kBfloat = {.exponent_bits = 8,
                                .mantissa_bits = 7,
                                .largest = 0x1.fep127,
                                .nan = 0x7fff,
                                .saturates = false,
                                .has_infinity = true};
constexpr SmallFloat kE4M3 = {.exponent_bits = 4,
                              .mantissa_bits = 3,
                              .largest = 448.0,
                              .nan = 0x7f,
                              .saturates = true,
                              .has_infinity = false};
constexpr SmallFloat kE5M2 = {.exponent_bits = 5,
                              .mantissa_bits = 2,
                              .largest = 57344.0,
                              .nan = 0x7f,
                              .saturates = true,
                              .has_infinity = true};

constexpr SmallFloat kE2M1 = {.exponent_bits = 2,
                              .mantissa_bits = 1,
                              .largest = 6.0,
                              .nan = 0x7,
                              .saturates = true,
                              .has_infinity = false,
                              .has_nan = false};

double Decode(const SmallFloat& format, unsigned bits) {
  const unsigned mantissa = bits & format.mantissa_mask();
  const unsigned exponent = bits >> format.mantissa_bits & format.exponent_mask();
  const double sign = (bits >> format.sign_shift() & 1u) != 0 ? -1.0 : 1.0;
  const unsigned magnitude = bits & ((1u << format.sign_shift()) - 1);
  if (format.has_infinity && exponent == format.exponent_mask()) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (!format.has_infinity && format.has_nan && magnitude == format.nan)
    return std::numeric_limits<double>::quiet_NaN();
  // Subnormals have the smallest normal exponent and no leading one.
  const unsigned leading = exponent == 0 ? 0 : 1u << format.mantissa_bits;
  const int power =
      static_cast<int>(exponent == 0 ? 1 : exponent) - format.bias() - format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(leading + mantissa), power);
}

uint16_t Encode(const SmallFloat& format, double value) {
  if (std::isnan(value)) return format.nan;
  const unsigned sign = std::signbit(value) ? 1u << format.sign_shift() : 0;
  double magnitude = std::fabs(value);

  const int smallest_normal = 1 - format.bias();
  int power = smallest_normal;  // of the leading bit
  if (std::isfinite(magnitude) && magnitude > 0)
    power = std::max(std::ilogb(magnitude), smallest_normal);
  const double unit = std::ldexp(1.0, power - format.mantissa_bits);
  // Dividing by a power of two is exact here, so that nearbyint is the only rounding.
  double steps = std::nearbyint(magnitude / unit);
  if (steps * unit > format.largest) {
    if (!format.saturates)
      return static_cast<uint16_t>(sign | format.exponent_mask() << format.mantissa_bits);
    power = std::ilogb(format.largest);
    steps = std::ldexp(format.largest, format.mantissa_bits - power);
  }
  // The leading one adds 1 to the exponent field, and a step up to the next power of two carries
  // into it.
  const unsigned exponent_before_leading = static_cast<unsigned>(power - smallest_normal);
  return static_cast<uint16_t>(
      sign | ((exponent_before_leading << format.mantissa_bits) + static_cast<unsigned>(steps)));
}

// e8m0 is the exponent of a power of two, biased by 127; all ones is NaN.
constexpr int kE8M0Bias = 127, kE8M0Nan = 255;

double LoadE8M0(const void* bytes) {
  uint8_t code;
  std::memcpy(&code, bytes, sizeof code);
  if (code == kE8M0Nan) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1.0, code - kE8M0Bias);
}

// |value| rounded up, as cvt.rp.satfinite.ue8m0x2 does.
void StoreE8M0(double value, void* bytes) {
  uint8_t code = kE8M0Nan;
  if (!std::isnan(value)) {
    int exponent = 0;  // |value| = fraction * 2^exponent with a fraction in [0.5, 1)
    const double magnitude = std::fabs(value);
    const double fraction = std::isinf(value) ? 1 : std::frexp(magnitude, &exponent);
    if (fraction == 0.5) --exponent;
    if (magnitude == 0) exponent = -kE8M0Bias;
    if (std::isinf(value)) exponent = kE8M0Bias;
    code = static_cast<uint8_t>(std::clamp(exponent, -kE8M0Bias, kE8M0Bias) + kE8M0Bias);
  }
  std::memcpy(bytes, &code, sizeof code);
}

template <class T>
T RoundToInteger(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  // The limits as doubles: the upper one of 64 bits is one more than the type holds.
  if (rounded <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  if (rounded >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return static_cast<T>(rounded);
}

template <class T>
double Load(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<double>(value);
}

template <class T>
void Store(T value, void* bytes) {
  std::memcpy(bytes, &value, sizeof value);
}

template <const SmallFloat& format, class Bits>
double LoadSmall(const void* bytes) {
  Bits bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return Decode(format, bits);
}

template <const SmallFloat& format, class Bits>
void StoreSmall(double value, void* bytes) {
  Store(static_cast<Bits>(Encode(format, value)), bytes);
}

// Integers of 4 bits, in the low half of a byte; a sign is bit 3.
constexpr int kNibble = 16;

double LoadI4(const void* bytes) {
  const int code = static_cast<int>(Load<uint8_t>(bytes)) % kNibble;
  return code < kNibble / 2 ? code : code - kNibble;
}

double LoadU4(const void* bytes) { return static_cast<int>(Load<uint8_t>(bytes)) % kNibble; }

void StoreNibble(double value, int low, int high, void* bytes) {
  const int rounded = std::clamp<int>(RoundToInteger<int8_t>(value), low, high);
  Store(static_cast<uint8_t>(rounded & (kNibble - 1)), bytes);
}

double LoadE2M1(const void* bytes) {
  return Decode(kE2M1, static_cast<unsigned>(Load<uint8_t>(bytes)) % kNibble);
}

template <class T>
void StoreComplex(double value, void* bytes) {
  Store(std::array{static_cast<T>(value), T{0}}, bytes);
}

// One row a type, in the order of dtype.def (checked below).
struct Conversion {
  DType type;
  double (*load)(const void*);
  void (*store)(double, void*);
};

constexpr Conversion kConversions[] = {
    {DType::kF32, Load<float>, [](double v, void* b) { Store(static_cast<float>(v), b); }},
    {DType::kF64, Load<double>, [](double v, void* b) { Store(v, b); }},
    {DType::kF16, LoadSmall<kHalf, uint16_t>, StoreSmall<kHalf, uint16_t>},
    {DType::kBF16, LoadSmall<kBfloat, uint16_t>, StoreSmall<kBfloat, uint16_t>},
    {DType::kE4M3, LoadSmall<kE4M3, uint8_t>, StoreSmall<kE4M3, uint8_t>},
    {DType::kE5M2, LoadSmall<kE5M2, uint8_t>, StoreSmall<kE5M2, uint8_t>},
    {DType::kE8M0, LoadE8M0, StoreE8M0},
    {DType::kI8, Load<int8_t>, [](double v, void* b) { Store(RoundToInteger<int8_t>(v), b); }},
    {DType::kU8, Load<uint8_t>, [](double v, void* b) { Store(RoundToInteger<uint8_t>(v), b); }},
    {DType::kI32, Load<int32_t>, [](double v, void* b) { Store(RoundToInteger<int32_t>(v), b); }},
    {DType::kI64, Load<int64_t>, [](double v, void* b) { Store(RoundToInteger<int64_t>(v), b); }},
    {DType::kBool, [](const void* b) { return Load<uint8_t>(b) != 0 ? 1.0 : 0.0; },
     [](double v, void* b) { Store(static_cast<uint8_t>(v != 0), b); }},
    {DType::kE2M1, LoadE2M1, StoreSmall<kE2M1, uint8_t>},
    {DType::kI4, LoadI4, [](double v, void* b) { StoreNibble(v, -8, 7, b); }},
    {DType::kU4, LoadU4, [](double v, void* b) { StoreNibble(v, 0, 15, b); }},
    {DType::kU32, Load<uint32_t>, [](double v, void* b) { Store(RoundToInteger<uint32_t>(v), b); }},
    {DType::kC64, Load<float>, StoreComplex<float>},
    {DType::kC128, Load<double>, StoreComplex<double>},
    {DType::kB1, [](const void* b) { return std::fmod(Load<uint8_t>(b), 2); },
     [](double v, void* b) { Store(static_cast<uint8_t>(v != 0), b); }},
};

constexpr bool RowsMatchTheEnumerators() {
  for (size_t i = 0; i < std::size(kConversions); ++i) {
    if (static_cast<size_t>(kConversions[i].type) != i) return false;
  }
  return std::size(kConversions) == std::size(kInfos);
}
static_assert(RowsMatchTheEnumerators(),
              "kConversions has one row a type, in the order of dtype.def");
static_assert(std::endian::native == std::endian::little,
              "storage is little endian, as on the device");

// The lowest bit of element `index` of a packed type within its byte.
int ShiftOf(DType type, int64_t index) {
  return static_cast<int>(index % PerByte(type)) * Info(type).bits;
}

}  // namespace

const DTypeInfo& Info(DType type) { return kInfos[static_cast<size_t>(type)]; }

std::optional<DType> DTypeFromText(std::string_view text) {
  for (size_t i = 0; i < std::size(kInfos); ++i) {
    if (kInfos[i].text == text) return static_cast<DType>(i);
  }
  return std::nullopt;
}

double RoundTo(DType type, double value) {
  unsigned char bytes[sizeof(double)] = {};
  StoreValue(type, value, bytes);
  return LoadValue(type, bytes);
}

double LoadValue(DType type, const void* bytes) {
  return kConversions[static_cast<size_t>(type)].load(bytes);
}

void StoreValue(DType type, double value, void* bytes) {
  kConversions[static_cast<size_t>(type)].store(value, bytes);
}

double LoadElement(DType type, const void* memory, int64_t index) {
  const auto* bytes = static_cast<const uint8_t*>(memory);
  if (!IsPacked(type)) return LoadValue(type, bytes + index * SizeOf(type));
  const auto code = static_cast<uint8_t>(bytes[index / PerByte(type)] >> ShiftOf(type, index));
  return LoadValue(type, &code);
}

void StoreElement(DType type, double value, void* memory, int64_t index) {
  auto* bytes = static_cast<uint8_t*>(memory);
  if (!IsPacked(type)) return StoreValue(type, value, bytes + index * SizeOf(type));
  uint8_t code = 0;
  StoreValue(type, value, &code);
  const int shift = ShiftOf(type, index), mask = (1 << Info(type).bits) - 1;
  uint8_t& byte = bytes[index / PerByte(type)];
  byte = static_cast<uint8_t>((byte & ~(mask << shift)) | code << shift);
}

}  // namespace kiln
