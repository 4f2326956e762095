// The table of libm functions behind scalar ops.
#include "codegen/llvm/math.h"

#include <algorithm>
#include <iterator>

namespace kiln::llvm_codegen {
namespace {

constexpr MathFunction kMathFunctions[] = {
    {ScalarOp::kMod, "fmodf", "fmod", 2},     {ScalarOp::kPow, "powf", "pow", 2},
    {ScalarOp::kAtan2, "atan2f", "atan2", 2}, {ScalarOp::kExp, "expf", "exp", 1},
    {ScalarOp::kLog, "logf", "log", 1},       {ScalarOp::kLog1p, "log1pf", "log1p", 1},
    {ScalarOp::kExpm1, "expm1f", "expm1", 1}, {ScalarOp::kSin, "sinf", "sin", 1},
    {ScalarOp::kCos, "cosf", "cos", 1},       {ScalarOp::kTan, "tanf", "tan", 1},
    {ScalarOp::kTanh, "tanhf", "tanh", 1},    {ScalarOp::kErf, "erff", "erf", 1},
};

}  // namespace

std::span<const MathFunction> MathFunctions() { return kMathFunctions; }

const MathFunction* FindMathFunction(ScalarOp op) {
  const auto* row = std::ranges::find(kMathFunctions, op, &MathFunction::op);
  return row == std::end(kMathFunctions) ? nullptr : row;
}

}  // namespace kiln::llvm_codegen
