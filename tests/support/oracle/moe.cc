// Tokens times the weights of their experts, expert by expert.
#include <algorithm>
#include <cmath>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

int64_t At(const Dense& t, int64_t i) {
  return static_cast<int64_t>(t.values[static_cast<size_t>(i)].v);
}

}  // namespace

Dense GroupedMatmul(const GroupedTokens& g, const Dims& out, Precision p) {
  const int64_t rows = out[1], columns = out[2], depth = g.token->dims[2],
                tokens = g.token->dims[1], experts = g.weight->dims[0];
  Dense y = Dense::Of(out, std::vector<double>(static_cast<size_t>(Count(out))));
  const int64_t groups = g.first->dims[0];  // the experts of each batch
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t e = group % experts;
    const int64_t end = group + 1 < groups ? At(*g.first, group + 1) : rows;
    for (int64_t s = At(*g.first, group); s < std::min(end, rows); ++s) {
      const int64_t from = g.gather ? At(*g.gather, s) : s;
      const int64_t to = g.scatter ? At(*g.scatter, s) * g.top_k + At(*g.scatter_k, s) : s;
      if (s < 0 || from < 0 || from >= tokens || to < 0 || to >= rows) continue;
      for (int64_t n = 0; n < columns; ++n) {
        Accumulator sum;
        for (int64_t k = 0; k < depth; ++k) {
          const Value a = g.token->values[static_cast<size_t>(from * depth + k)];
          const Value b = g.weight->values[static_cast<size_t>((e * depth + k) * columns + n)];
          const double ea = a.e + p.operand_roundoff * std::fabs(a.v),
                       eb = b.e + p.operand_roundoff * std::fabs(b.v);
          sum.Add(a.v * b.v, std::fabs(a.v) * eb + std::fabs(b.v) * ea + ea * eb);
        }
        y.values[static_cast<size_t>(to * columns + n)] = sum.Result(p.compute, p.sum_roundoff);
      }
    }
  }
  return y;
}

Dense GroupedWeightGradient(const Dense& token, const Dense& doutput, const Dense& first,
                            const Dims& dw, Precision p) {
  const int64_t experts = dw[0], depth = dw[1], columns = dw[2], tokens = token.dims[1],
                groups = first.dims[0];
  const auto moved = [&](Value v) { return v.e + p.operand_roundoff * std::fabs(v.v); };
  Dense y{.dims = dw, .values = {}};
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t n = 0; n < columns; ++n) {
        Accumulator sum;
        for (int64_t group = e; group < groups; group += experts) {
          const int64_t end = group + 1 < groups ? At(first, group + 1) : tokens;
          for (int64_t r = std::max<int64_t>(At(first, group), 0); r < std::min(end, tokens); ++r) {
            const Value a = token.values[static_cast<size_t>(r * depth + k)];
            const Value b = doutput.values[static_cast<size_t>(r * columns + n)];
            const double ea = moved(a), eb = moved(b);
            sum.Add(a.v * b.v, std::fabs(a.v) * eb + std::fabs(b.v) * ea + ea * eb);
          }
        }
        y.values.push_back(sum.Result(p.compute, p.sum_roundoff));
      }
  return y;
}

}  // namespace kiln::oracle
