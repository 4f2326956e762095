// Data types as the oracle sees them: storage bytes to f64 and back.
//
// Written from the formats (IEEE 754 binary16/32/64, bfloat16, OCP fp8 E4M3 and E5M2, two's
// complement) by arithmetic on values, not by bit tricks, so that it cannot share a mistake with
// the library that it checks. Used by the oracle, the case evaluator, the fuzzers and the
// benchmarks' correctness checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln::oracle {

enum class DType {
  kF32,
  kF64,
  kF16,
  kBF16,
  kE4M3,
  kE5M2,
  kE8M0,
  kI8,
  kU8,
  kI32,
  kI64,
  kBool,
  kE2M1,
  kI4,
  kU4,
  kU32,
  kC64,
  kC128
};

// Range and precision of a format. Integers and bool have `mantissa` 0.
struct DTypeRow {
  DType type;
  std::string_view name;  // f32, bf16, e4m3, i8 …
  int cudnn;              // cudnnDataType_t
  int bytes;
  int mantissa;            // significant bits with the hidden one
  int min_exponent;        // exponent of the smallest normal number
  double lowest, highest;  // largest finite values
  bool has_inf;
  bool saturates;  // beyond `highest`: fp8 and integers stay there, the rest becomes infinite
  int packed = 0;  // bits of elements that share bytes, the first in the low ones; else 0
};

const DTypeRow& Row(DType type);
std::optional<DType> ParseDType(std::string_view name);
inline bool IsFloating(DType type) { return Row(type).mantissa > 0; }

// The nearest value of `type`, ties to even; see DTypeRow::saturates. NaN becomes 0 in an integer,
// 6 in e2m1, which has none. A bool is one bit, as CUDNN_DATA_BOOLEAN is in memory.
double Round(DType type, double value);

double Decode(DType type, const uint8_t* bytes);
void Encode(DType type, double value, uint8_t* bytes);  // rounds first

// The value of element `index` of an array.
double DecodeAt(DType type, const uint8_t* bytes, int64_t index);
void EncodeAt(DType type, double value, uint8_t* bytes, int64_t index);

// The type of a complex number's parts; other types are their own.
DType PartOf(DType type);
inline bool IsComplex(DType type) { return PartOf(type) != type; }

// Distance from |value| to the next larger number of the type; 1 for integers.
double Ulp(DType type, double value);

// Relative error of one rounding, half an ulp; 0 for types that compute exactly.
double UnitRoundoff(DType type);

}  // namespace kiln::oracle
