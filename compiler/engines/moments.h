// Sums of squared distances from a mean, which is a sum of the same group. Parts of the elements
// can have both at once, the distances from means of their own, and be joined in any order:
//
//   two parts of n elements each:   m2 = m2_a + m2_b + (mean_a - mean_b)^2 * n / 2
#pragma once

#include <optional>
#include <vector>

#include "compiler/engines/reduce_plan.h"

namespace kiln::compiler {

struct Moment {
  size_t sum;            // of row.reduces
  graph::TensorId mean;  // that the distances are taken from: the sum over the elements' number
};

// One for each of row.reduces.
std::vector<std::optional<Moment>> MomentsOf(const ReducePlan& row);

}  // namespace kiln::compiler
