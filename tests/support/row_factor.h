// Where an implementation may take a factor of a whole row out of a sum.
#pragma once

#include "tests/support/cases.h"

namespace kiln::testing {

// Whether a virtual tensor is made of a value of each row by products, quotients or an exponential,
// and only matmuls read it, as what they sum along rows:
//
//   p = e / l;  y = p v      l[.., 1]     sum_j (e_j / l) v_j = (sum_j e_j v_j) / l
//
// Flash attention divides last, as NVIDIA's library does: p exists only as e, so that the rounding
// to p's type falls on e instead. It is as large in relation to e as the other one to p, but
// another number: a bound must hold one rounding of p beside that of the value that p has by its
// definition.
bool HasRowFactor(const Case& c, int tensor);

}  // namespace kiln::testing
