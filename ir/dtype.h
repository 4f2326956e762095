// Data types of tensors and of scalar expressions, and their exact conversions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln {

// DTYPE(Enumerator, "text", bits, CUDA storage type, kind)
//   kind: kFloat, kInt, kUint, kBool
enum class DType : uint8_t {
#define DTYPE(Name, ...) k##Name,
#include "ir/dtype.def"
#undef DTYPE
};

enum class DTypeKind : uint8_t { kFloat, kInt, kUint, kBool };

struct DTypeInfo {
  const char* text;  // as the IR spells it: f32, bf16, e4m3, i8 …
  int bits;          // storage
  const char* cuda;  // storage type in generated CUDA, from our prelude
  DTypeKind kind;
};

const DTypeInfo& Info(DType type);
std::optional<DType> DTypeFromText(std::string_view text);

inline int SizeOf(DType t) { return Info(t).bits / 8; }
inline bool IsFloat(DType t) { return Info(t).kind == DTypeKind::kFloat; }
inline bool IsInteger(DType t) {
  return Info(t).kind == DTypeKind::kInt || Info(t).kind == DTypeKind::kUint;
}

// What arithmetic on values of `type` happens in: f32 for narrower floats, i32 for 8-bit integers,
// else the type itself.
inline DType ArithmeticType(DType type) {
  const int bits = Info(type).bits;
  if (IsFloat(type) && bits < 32) return DType::kF32;
  return IsInteger(type) && bits < 32 ? DType::kI32 : type;
}
// What values of `type` are moved in, unchanged: those that no computation has have a wider one.
inline DType MovingType(DType type) { return SizeOf(type) == 1 ? ArithmeticType(type) : type; }

// `value` as the nearest value of `type`: round to nearest even; integers round to nearest even and
// saturate (NaN becomes 0); fp8 saturates to the largest finite value (e4m3 448, e5m2 57344), NaN
// stays NaN; half, bf16 and float overflow to infinity; bool is value != 0. e8m0 holds the powers
// of two from 2^-127 to 2^127 and NaN: the magnitude is rounded up to the next of them, since its
// numbers are scales, whose quotients must fit.
double RoundTo(DType type, double value);

// Storage bytes <-> value. `bytes` need not be aligned. StoreValue rounds as RoundTo does.
double LoadValue(DType type, const void* bytes);
void StoreValue(DType type, double value, void* bytes);

}  // namespace kiln
