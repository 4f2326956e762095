// Data types of tensors and of scalar expressions, and their exact conversions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln {

// DTYPE(Enumerator, "text", bits, CUDA storage type, kind)
//   kind: kFloat, kInt, kUint, kBool, kComplex
enum class DType : uint8_t {
#define DTYPE(Name, ...) k##Name,
#include "ir/dtype.def"
#undef DTYPE
};

enum class DTypeKind : uint8_t { kFloat, kInt, kUint, kBool, kComplex };

struct DTypeInfo {
  const char* text;  // as the IR spells it: f32, bf16, e4m3, i8 …
  int bits;          // storage
  const char* cuda;  // storage type in generated CUDA, from our prelude
  DTypeKind kind;
};

const DTypeInfo& Info(DType type);
std::optional<DType> DTypeFromText(std::string_view text);

// The number of bytes of an element that stands alone.
inline int SizeOf(DType t) { return (Info(t).bits + 7) / 8; }
// The number of bytes of elements that follow each other: types of less than 8 bits share bytes,
// the first in the low bits.
inline int64_t BytesOf(DType t, int64_t elements) { return (elements * Info(t).bits + 7) / 8; }
inline bool IsComplex(DType t) { return Info(t).kind == DTypeKind::kComplex; }
// The type of a complex number's parts, of which the real one comes first; other types are their
// own.
inline DType PartOf(DType t) {
  return t == DType::kC64 ? DType::kF32 : t == DType::kC128 ? DType::kF64 : t;
}
inline bool IsPacked(DType t) { return Info(t).bits < 8; }
// The number of elements of a packed type in a byte.
inline int PerByte(DType t) { return 8 / Info(t).bits; }
inline bool IsBool(DType t) { return Info(t).kind == DTypeKind::kBool; }
inline bool IsFloat(DType t) { return Info(t).kind == DTypeKind::kFloat; }
inline bool IsInteger(DType t) {
  return Info(t).kind == DTypeKind::kInt || Info(t).kind == DTypeKind::kUint;
}

// The type in which arithmetic on values of `type` happens: f32 for narrower floats, i32 for
// narrower integers, i64 for u32, bool for b1, else the type itself.
inline DType ArithmeticType(DType type) {
  const int bits = Info(type).bits;
  if (IsFloat(type) && bits < 32) return DType::kF32;
  if (type == DType::kU32) return DType::kI64;
  if (type == DType::kB1) return DType::kBool;
  return IsInteger(type) && bits < 32 ? DType::kI32 : type;
}
// The type in which values of `type` are moved unchanged: a wider one for types that no computation
// has.
inline DType MovingType(DType type) {
  return SizeOf(type) == 1 || type == DType::kU32 ? ArithmeticType(type) : type;
}

// `value` as the nearest value of `type`: round to nearest even; integers round to nearest even and
// saturate (NaN becomes 0); fp8 saturates to the largest finite value (e4m3 448, e5m2 57344), NaN
// stays NaN; half, bf16 and float overflow to infinity; bool is value != 0. e8m0 holds the powers
// of two from 2^-127 to 2^127 and NaN: the magnitude is rounded up to the next of them, since its
// numbers are scales, whose quotients must fit. e2m1 has 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their
// negatives, saturates, and makes 6 of NaN, as cvt.rn.satfinite.e2m1x2 does.
double RoundTo(DType type, double value);

// Convert between storage bytes and a value. `bytes` need not be aligned. StoreValue rounds as
// RoundTo does. An element of less than 8 bits that stands alone is in the low bits of its byte.
// Values are real: a complex number is loaded as its real part, and stored with an imaginary part
// of 0.
double LoadValue(DType type, const void* bytes);
void StoreValue(DType type, double value, void* bytes);

// Convert element `index` of an array, where elements of less than 8 bits share bytes.
double LoadElement(DType type, const void* memory, int64_t index);
void StoreElement(DType type, double value, void* memory, int64_t index);

}  // namespace kiln
