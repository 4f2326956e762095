// Scalar primitives: their table, their exact meaning (EvalScalar), and the magic numbers of fast
// division.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/dtype.h"

namespace kiln {

enum class ScalarOp : uint8_t {
#define SCALAR_OP(Name, ...) k##Name,
#include "ir/scalar_ops.def"
#undef SCALAR_OP
};

enum class ScalarResult : uint8_t { kSame, kBool };

struct ScalarOpInfo {
  const char* text;
  int arity;
  ScalarResult result;
};

const ScalarOpInfo& Info(ScalarOp op);
std::optional<ScalarOp> ScalarOpFromText(std::string_view text);

// The value of op(a, b, c) in f64, not rounded to any type. The float and the integer form differ
// only for Div (which truncates on integers); unused operands are ignored. Booleans are 0 and 1.
double EvalScalar(ScalarOp op, double a, double b = 0, double c = 0);
int64_t EvalScalarInt(ScalarOp op, int64_t a, int64_t b = 0, int64_t c = 0);

// Rounds of Philox4x32: the fewest with which it passes BigCrush (Salmon et al., SC11).
inline constexpr int kPhiloxRounds = 7;
// Philox4x32 at a counter: word place % 4 of counter {place / 4 low, place / 4 high, offset low,
// offset high} under key {seed low, seed high}, as 0 .. 2^32-1. Four neighbouring places share a
// counter, so that who makes them together computes it once.
int64_t PhiloxWord(int64_t place, int64_t seed, int64_t offset);

// The multiplier and shift with which FastDiv(n, mul, shift) == n / divisor for all 0 <= n < 2^31.
// `mul` may need all 32 bits: it is carried in an i32 parameter as its bit pattern.
struct Magic {
  uint32_t mul;
  uint32_t shift;
};
Magic MagicFor(int64_t divisor);

}  // namespace kiln
