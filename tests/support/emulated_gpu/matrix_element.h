// Elements of matrix operands, which have types of their own: tf32 is an f32 whose low bits tensor
// cores cut off, fp8 stands alone and not in pairs.
#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include "tests/support/emulated_gpu/decoder.h"
#include "tests/support/emulated_gpu/numbers.h"

namespace kiln::emulated {

// The types of an mma's opcode, in order; e4m3 and e5m2 as the types of pairs.
inline std::vector<Type> MatrixTypes(const Decoder& d) {
  std::vector<Type> types;
  for (const std::string_view part : d.parts()) {
    const Type type = part == "e4m3"   ? Type::kE4M3x2
                      : part == "e5m2" ? Type::kE5M2x2
                                       : ParseType(part);
    if (type != Type::kNone) types.push_back(type);
  }
  return types;
}

inline int MatrixBits(Type type) {
  return type == Type::kE4M3x2 || type == Type::kE5M2x2 ? 8 : BitsOf(type);
}

inline double Fp8Value(const Format& format, uint32_t code) {
  struct Table {
    double values[256];
    explicit Table(const Format& f) {
      for (uint32_t c = 0; c < 256; ++c) values[c] = Decode(f, c);
    }
  };
  static const Table e4m3(kE4M3), e5m2(kE5M2);
  return (&format == &kE4M3 ? e4m3 : e5m2).values[code];
}

// Element e of a word of 32 bits.
inline double MatrixElement(Type type, uint32_t word, int e) {
  switch (type) {
    case Type::kF16:
      return F16{static_cast<uint16_t>(word >> (16 * e))}.Value();
    case Type::kBF16:
      return BF16{static_cast<uint16_t>(word >> (16 * e))}.Value();
    case Type::kTF32:
      return BitsAs<float>(word & 0xffffe000u);
    case Type::kE4M3x2:
      return Fp8Value(kE4M3, word >> (8 * e) & 0xff);
    case Type::kE5M2x2:
      return Fp8Value(kE5M2, word >> (8 * e) & 0xff);
    case Type::kS8:
      return static_cast<int8_t>(word >> (8 * e));
    default:
      return static_cast<uint8_t>(word >> (8 * e));
  }
}

// All elements of a word, to places `stride` apart.
inline void MatrixElements(Type type, uint32_t word, double* to, int stride) {
  const auto spread = [&](auto tag, int count) {
    for (int e = 0; e < count; ++e) to[e * stride] = MatrixElement(decltype(tag)::value, word, e);
  };
  switch (type) {
    case Type::kF16:
      return spread(std::integral_constant<Type, Type::kF16>{}, 2);
    case Type::kBF16:
      return spread(std::integral_constant<Type, Type::kBF16>{}, 2);
    case Type::kTF32:
      return spread(std::integral_constant<Type, Type::kTF32>{}, 1);
    default:
      for (int e = 0; e < 4; ++e) to[e * stride] = MatrixElement(type, word, e);
  }
}

}  // namespace kiln::emulated
