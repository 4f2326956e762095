// The CUDA spelling of the scalar operations, one row each.
#pragma once

#include <string_view>

#include "ir/scalar.h"

namespace kiln::cuda_codegen {

// The precedence of C++ operators: an operand that binds less tightly than its place demands gets
// parentheses.
enum Precedence : int {
  kAny,
  kTernary,
  kOr,
  kAnd,
  kEquality,
  kOrder,
  kSum,
  kProduct,
  kUnary,
  kPrimary
};

// The spelling of one operation, in which {0}, {1}, {2} stand for the operands. An empty text: the
// operation does not exist on that type.
struct ScalarText {
  ScalarOp op;
  std::string_view f32, f64, integer;
};

const ScalarText& TextOf(ScalarOp op);

// The precedence of a text's outermost operator, as in "{0} + {1}" or "expf({0})".
Precedence PrecedenceOf(std::string_view text);

}  // namespace kiln::cuda_codegen
