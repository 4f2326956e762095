// Attention: an implementation may round what it sums at another place than the graph does.
#pragma once

#include <optional>

#include "tests/support/cases.h"

namespace kiln::testing {

// True if a virtual tensor is made of a value of each row by products, quotients or an exponential,
// and only matmuls read it, as what they sum along rows:
//
//   p = e / l;  y = p v      l[.., 1]     sum_j (e_j / l) v_j = (sum_j e_j v_j) / l
//
// Flash attention divides last, as NVIDIA's library does: p exists only as e, so that the rounding
// to p's type falls on e instead. It is as large in relation to e as the other one to p, but
// another number: a bound must hold one rounding of p beside that of the value that p has by its
// definition.
bool HasRowFactor(const Case& c, int tensor);

// The type of 16 bits that a virtual tensor may be rounded to before matmuls read it, beside what
// its own type does:
//
//   %ds:f32 = mul(%y, c);  %t:bf16 = reshape(%ds);  matmul(%t, q) -> dk;  matmul(%ds, %k) -> dq
//
// Clients of attention's gradients ask for 16 bits only where they transpose; that is rounded once,
// for both products, and before c, which all have in common.
std::optional<oracle::DType> RoundedForMatmuls(const Case& c, int tensor);

}  // namespace kiln::testing
