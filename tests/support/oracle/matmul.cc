// Batched matrix products with broadcast batches and per-batch limits on M, N and K.
#include <algorithm>
#include <cmath>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

// The batch entry of `dims` that batch `index` of the result reads: broadcast, or repeated for
// grouped heads.
Dims BatchOf(const Dims& dims, const Dims& index, const Dims& out) {
  Dims at(dims.size(), 0);
  for (size_t i = 0; i + 2 < dims.size(); ++i) at[i] = index[i] / (out[i] / dims[i]);
  return at;
}

int64_t Flat(const Dims& dims, const Dims& index) {
  int64_t at = 0;
  for (size_t i = 0; i < dims.size(); ++i) at = at * dims[i] + index[i];
  return at;
}

int64_t Limit(const Dense* override_tensor, const Dims& batch, int64_t extent) {
  if (override_tensor == nullptr) return extent;
  const auto limit =
      static_cast<int64_t>(override_tensor->values[BroadcastIndex(override_tensor->dims, batch)].v);
  return std::clamp<int64_t>(limit, 0, extent);
}

}  // namespace

Dims MatmulOutputDims(const Dims& a, const Dims& b) {
  Dims c = a;
  for (size_t i = 0; i + 2 < a.size(); ++i) c[i] = std::max(a[i], b[i]);
  c.back() = b.back();
  return c;
}

Dense Matmul(const Dense& a, const Dense& b, const MatmulOverrides& overrides, Precision p) {
  const Dims out = MatmulOutputDims(a.dims, b.dims);
  const size_t row = out.size() - 2, column = out.size() - 1;
  const int64_t depth = a.dims.back();
  Dense c{.dims = out, .values = {}};
  if (Count(out) == 0) return c;
  Dims index(out.size(), 0);
  do {
    Dims batch = index;
    batch[row] = batch[column] = 0;
    if (index[row] >= Limit(overrides.m, batch, out[row]) ||
        index[column] >= Limit(overrides.n, batch, out[column])) {
      c.values.push_back({.v = overrides.padding_value, .e = 0});
      continue;
    }
    Dims at_a = BatchOf(a.dims, index, out), at_b = BatchOf(b.dims, index, out);
    at_a[row] = index[row];
    at_b[column] = index[column];
    const int64_t first_a = Flat(a.dims, at_a), first_b = Flat(b.dims, at_b);
    const int64_t steps = Limit(overrides.k, batch, depth);
    Accumulator sum;
    for (int64_t k = 0; k < steps; ++k) {
      const Value x = a.values[static_cast<size_t>(first_a + k)];
      const Value y = b.values[static_cast<size_t>(first_b + k * out[column])];
      const double ex = x.e + p.operand_roundoff * std::fabs(x.v),
                   ey = y.e + p.operand_roundoff * std::fabs(y.v);
      sum.Add(x.v * y.v, std::fabs(x.v) * ey + std::fabs(y.v) * ex + ex * ey);
    }
    c.values.push_back(sum.Result(p.compute, p.sum_roundoff));
  } while (Next(out, index));
  return c;
}

}  // namespace kiln::oracle
