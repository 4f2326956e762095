// Row-wise iteration over broadcast operands, for the Eval functions and for Pack and Unpack: the
// offsets of N operands are advanced together, with no multiplication and no allocation an element.
#pragma once

#include <array>
#include <span>

#include "ir/graph/graph.h"

namespace kiln::graph {

// Steps of a row-major operand of extents `dims` under iteration over `out_dims`, to which `dims`
// is aligned at the right: 0 where the operand has extent 1 or no dim at all.
Dims BroadcastSteps(std::span<const int64_t> dims, std::span<const int64_t> out_dims);

// Calls row(offsets, count, steps) for each row of the last dim: the row's first offset of each
// operand, the number of elements, and the step of each operand along the row. Rank 0 is one row of
// one element.
template <size_t N, class F>
void ForEachRow(std::span<const int64_t> dims, const std::array<Dims, N>& steps, F&& row) {
  for (const int64_t extent : dims) {
    if (extent == 0) return;
  }
  const size_t outer = dims.empty() ? 0 : dims.size() - 1;
  std::array<int64_t, N> offsets{}, inner{};
  const int64_t count = dims.empty() ? 1 : dims[outer];
  for (size_t k = 0; k < N; ++k) inner[k] = dims.empty() ? 0 : steps[k][outer];
  std::vector<int64_t> index(outer, 0);
  for (;;) {
    row(offsets, count, inner);
    size_t d = outer;
    for (; d > 0; --d) {
      const size_t axis = d - 1;
      for (size_t k = 0; k < N; ++k) offsets[k] += steps[k][axis];
      if (++index[axis] < dims[axis]) break;
      for (size_t k = 0; k < N; ++k) offsets[k] -= steps[k][axis] * dims[axis];
      index[axis] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace kiln::graph
