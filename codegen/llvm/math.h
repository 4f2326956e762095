// The scalar ops that are functions of libm, by name. Free of LLVM: the emitter declares these
// symbols, and the runtime resolves them and looks for their vector forms.
#pragma once

#include <span>

#include "ir/scalar.h"

namespace kiln::llvm_codegen {

struct MathFunction {
  ScalarOp op;
  const char* f32;
  const char* f64;
  int arity;
};

std::span<const MathFunction> MathFunctions();

// The function of libm that `op` is; null where it is none.
const MathFunction* FindMathFunction(ScalarOp op);

}  // namespace kiln::llvm_codegen
