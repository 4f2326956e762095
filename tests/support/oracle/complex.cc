// Complex numbers, with std::complex; of contractions and sums the parts go through the real
// oracle.
#include <algorithm>
#include <cmath>
#include <complex>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

using C = std::complex<double>;

struct Number {
  C v;
  double e = 0;  // of either part
};

Number At(const ComplexParts& x, size_t i) {
  const Value re = x.re.values[i], im = x.im.values[i];
  return {.v = {re.v, im.v}, .e = std::max(re.e, im.e)};
}

// The result and what its parts may be off by: errors of operands, and roundings in units of what
// is added up.
Number Apply(std::string_view name, const Number& a, const Number& b, const Number& t, double u) {
  const double size_a = std::abs(a.v), size_b = std::abs(b.v);
  const double product = size_a * b.e + size_b * a.e + a.e * b.e + 4 * u * size_a * size_b;
  if (name == "mul") return {a.v * b.v, product};
  if (name == "add_square")
    return {a.v + b.v * b.v, a.e + 2 * size_b * b.e + 6 * u * (size_a + size_b * size_b)};
  if (name == "div" || name == "reciprocal") {
    const bool inverts = name == "reciprocal";
    const Number x = inverts ? Number{.v = 1} : a, y = inverts ? a : b;
    const C q = x.v / y.v;
    return {q, (x.e + std::abs(q) * y.e) / std::abs(y.v) + 16 * u * std::abs(q)};
  }
  if (name == "abs") return {size_a, 2 * a.e + 8 * u * size_a};
  if (name == "exp") {
    const C y = std::exp(a.v);
    return {y, std::abs(y) * (2 * a.e + 16 * u * (1 + size_a))};
  }
  if (name == "cmp_eq") return {a.v == b.v ? 1.0 : 0.0};
  if (name == "cmp_neq") return {a.v != b.v ? 1.0 : 0.0};
  return t.v != 0.0 ? a : b;  // binary_select
}

}  // namespace

ComplexParts SplitComplex(const Dense& x) {
  ComplexParts parts;
  parts.re.dims.assign(x.dims.begin(), x.dims.end() - 1);
  parts.im.dims = parts.re.dims;
  for (size_t i = 0; i < x.values.size(); i += 2) {
    parts.re.values.push_back(x.values[i]);
    parts.im.values.push_back(x.values[i + 1]);
  }
  return parts;
}

Dense JoinComplex(const ComplexParts& x) {
  Dense joined{.dims = x.re.dims, .values = {}};
  joined.dims.push_back(2);
  for (size_t i = 0; i < x.re.values.size(); ++i) {
    joined.values.push_back(x.re.values[i]);
    joined.values.push_back(x.im.values[i]);
  }
  return joined;
}

ComplexParts ComplexPointwise(std::string_view name, std::span<const ComplexParts> operands,
                              const Dims& out, DType compute) {
  ComplexParts y{.re = {.dims = out, .values = {}}, .im = {.dims = out, .values = {}}};
  if (Count(out) == 0) return y;
  Dims index(out.size(), 0);
  do {
    Number in[3];
    for (size_t i = 0; i < operands.size(); ++i)
      in[i] = At(operands[i], BroadcastIndex(operands[i].re.dims, index));
    const Number result = Apply(name, in[0], in[1], in[2], UnitRoundoff(compute));
    y.re.values.push_back(Finish(result.v.real(), result.e, compute));
    y.im.values.push_back(Finish(result.v.imag(), result.e, compute));
  } while (Next(out, index));
  return y;
}

ComplexParts ComplexProduct(const ComplexParts& x, const Dims& out, bool no_zeros, DType compute) {
  std::vector<Number> products(static_cast<size_t>(Count(out)), {.v = 1});
  if (Count(x.re.dims) > 0) {
    Dims index(x.re.dims.size(), 0);
    size_t at = 0;
    do {
      Number& product = products[BroadcastIndex(out, index)];
      const Number factor = At(x, at++);
      if (!no_zeros || factor.v != 0.0)
        product = Apply("mul", product, factor, {}, UnitRoundoff(compute));
    } while (Next(x.re.dims, index));
  }
  ComplexParts y{.re = {.dims = out, .values = {}}, .im = {.dims = out, .values = {}}};
  for (const Number& product : products) {
    y.re.values.push_back(Finish(product.v.real(), product.e, compute));
    y.im.values.push_back(Finish(product.v.imag(), product.e, compute));
  }
  return y;
}

Dense AddUp(const Dense& a, const Dense& b, double factor, DType compute) {
  Dense y{.dims = a.dims, .values = {}};
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double v = a.values[i].v + factor * b.values[i].v;
    const double size = std::fabs(a.values[i].v) + std::fabs(b.values[i].v);
    y.values.push_back(
        Finish(v, a.values[i].e + b.values[i].e + 2 * UnitRoundoff(compute) * size, compute));
  }
  return y;
}

}  // namespace kiln::oracle
