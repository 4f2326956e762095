// Numbers of the interpreter: conversions between types, and one operation on cells.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/tile/interpret_values.h"

namespace kiln::tile {
namespace {

int64_t Saturate(DType type, int64_t v) {
  const int bits = Info(type).bits;
  if (type == DType::kBool) return v != 0;
  if (bits == 64) return v;
  if (Info(type).kind == DTypeKind::kUint)
    return std::clamp<int64_t>(v, 0, (int64_t{1} << bits) - 1);
  return std::clamp<int64_t>(v, -(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1);
}

int64_t RoundToInt(DType type, double v) {
  if (std::isnan(v)) return type == DType::kBool;
  if (v >= 0x1p63) return Saturate(type, std::numeric_limits<int64_t>::max());
  if (v < -0x1p63) return Saturate(type, std::numeric_limits<int64_t>::min());
  return type == DType::kBool ? v != 0 : Saturate(type, static_cast<int64_t>(std::nearbyint(v)));
}

}  // namespace

Cell Convert(DType from, DType to, Cell v) {
  if (!IsFloat(to)) return {.i = IsFloat(from) ? RoundToInt(to, v.f) : Saturate(to, v.i)};
  if (!IsFloat(from) && to == DType::kF32) return {.f = static_cast<float>(v.i)};
  return {.f = RoundTo(to, IsFloat(from) ? v.f : static_cast<double>(v.i))};
}

Cell Apply(ScalarOp op, DType operand, DType result, Cell a, Cell b, Cell c) {
  if (!IsFloat(operand)) {
    const int64_t v = EvalScalarInt(op, a.i, b.i, c.i);
    return {.i = result == DType::kI32 ? static_cast<int32_t>(v) : v};
  }
  if (result == DType::kBool) return {.i = EvalScalar(op, a.f, b.f, c.f) != 0};
  if (result == DType::kF64) return {.f = EvalScalar(op, a.f, b.f, c.f)};
  // fma is the one operation that rounding twice would get wrong.
  if (op == ScalarOp::kFma)
    return {
        .f = std::fmaf(static_cast<float>(a.f), static_cast<float>(b.f), static_cast<float>(c.f))};
  return {.f = static_cast<float>(EvalScalar(op, a.f, b.f, c.f))};
}

}  // namespace kiln::tile
