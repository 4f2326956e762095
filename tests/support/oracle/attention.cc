// Attention and loads through page tables: plain loops over batches, heads, queries and keys.
//
// Bounds: a score errs by its dot product and by one rounding an addend, or not at all where an
// addend is so large that rounding leaves nothing else of it; an exponential of it by
// that error and the maximum's; weights may be rounded to the type of q before they are summed with
// v, and are divided by a sum that errs as every sum does.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Value At(const Dense& t, const Dims& index) { return t.values[BroadcastIndex(t.dims, index)]; }

int64_t Length(const Dense* lengths, int64_t b, int64_t extent) {
  return lengths == nullptr ? extent : static_cast<int64_t>(At(*lengths, {b, 0, 0, 0}).v);
}

// One element of k or v of query head h.
Value KeyAt(const SdpaInputs& in, const Dense& t, const Dense* table, int64_t b, int64_t h,
            int64_t j, int64_t d) {
  const int64_t head = h / (in.q->dims[1] / t.dims[1]);
  if (table == nullptr) return At(t, {b, head, j, d});
  const int64_t block = t.dims[2];
  const auto page = static_cast<int64_t>(At(*table, {b, 0, j / block, 0}).v);
  const bool is_there = page >= 0 && page < t.dims[0] && j < Length(in.seq_kv, b, j + 1);
  return is_there ? At(t, {page, head, j % block, d}) : Value{};
}

int64_t KeysOf(const SdpaInputs& in) {
  return in.page_table_k == nullptr ? in.k->dims[2] : in.page_table_k->dims[2] * in.k->dims[2];
}

bool BlockIsHidden(const Dense& mask, int64_t b, int64_t h, int64_t i, int64_t j) {
  const auto byte = static_cast<int>(At(mask, {b, h, i / 128, j / 1024}).v);
  return (byte & 1 << j / 128 % 8) == 0;
}

// Lengths end before some rows: these are no queries, and have no sink.
bool IsQuery(const SdpaInputs& in, int64_t b, int64_t i) {
  return in.seq_q == nullptr || i < Length(in.seq_q, b, in.q->dims[2]);
}

bool Sees(const SdpaInputs& in, const SdpaParams& p, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (in.block_mask != nullptr && BlockIsHidden(*in.block_mask, b, h, i, j)) return false;
  const int64_t rows = Length(in.seq_q, b, in.q->dims[2]),
                columns = Length(in.seq_kv, b, KeysOf(in));
  if (!IsQuery(in, b, i) || (in.seq_kv != nullptr && j >= columns)) return false;
  const int64_t last = i + (p.bottom_right ? columns - rows : 0);
  return (p.right < 0 || j - last <= p.right) && (p.left < 0 || last - j < p.left);
}

Value Score(const SdpaInputs& in, const SdpaParams& p, DType compute, int64_t b, int64_t h,
            int64_t i, int64_t j) {
  const double u = UnitRoundoff(compute);
  Accumulator dot;
  for (int64_t d = 0; d < in.q->dims[3]; ++d) {
    const double a = At(*in.q, {b, h, i, d}).v, k = KeyAt(in, *in.k, in.page_table_k, b, h, j, d).v;
    dot.Add(a * k, 2.1 * p.operand_roundoff * std::fabs(a * k));
  }
  const Value product = dot.Result(compute);
  double factor = p.scale;
  if (in.scale != nullptr) factor *= in.scale->values[0].v;
  double v = product.v * factor;
  double e = product.e * std::fabs(factor) + 2 * u * std::fabs(v), largest = std::fabs(v);
  const auto add = [&](double term) {
    const double small = std::min(std::fabs(v) + e, std::fabs(term));
    if (small < u / 2 * std::max(std::fabs(v), std::fabs(term)) - e) {
      if (std::fabs(term) > std::fabs(v)) v = term, e = 0;
      return;
    }
    v += term;
    largest = std::max({largest, std::fabs(v), std::fabs(term)});
    e += 2 * u * largest;
  };
  if (in.bias != nullptr) add(At(*in.bias, {b, h, i, j}).v);
  if (in.alibi != nullptr) add(At(*in.alibi, {b, h, 0, 0}).v * static_cast<double>(j - i));
  return {.v = v, .e = e};
}

// exp(score - shift), where the difference errs by `e` beside its own rounding.
Value Exponential(double difference, double e, double u) {
  const double v = std::exp(difference);
  if (v == 0) return {};
  return {.v = v, .e = v * std::expm1(e + u * (2 * std::fabs(difference) + 8))};
}

struct QueryRow {
  std::vector<Value> scores, exps;
  std::vector<bool> seen;
  double max = -kInfinity, max_error = 0;
  Value sum;
};

QueryRow RowOf(const SdpaInputs& in, const SdpaParams& p, DType compute, int64_t b, int64_t h,
               int64_t i) {
  const double u = UnitRoundoff(compute);
  QueryRow row;
  for (int64_t j = 0; j < KeysOf(in); ++j) {
    row.scores.push_back(Sees(in, p, b, h, i, j) ? Score(in, p, compute, b, h, i, j)
                                                 : Value{.v = -kInfinity, .e = 0});
    row.seen.push_back(row.scores.back().v != -kInfinity);
    row.max = std::fmax(row.max, row.scores.back().v);
    if (row.seen.back()) row.max_error = std::max(row.max_error, row.scores.back().e);
  }
  const bool has_sink = in.sink != nullptr && IsQuery(in, b, i);
  const double sink = has_sink ? At(*in.sink, {b, h, 0, 0}).v : -kInfinity;
  row.max = std::fmax(row.max, sink);
  Accumulator sum;
  for (size_t j = 0; j < row.scores.size(); ++j) {
    row.exps.push_back(
        row.seen[j] ? Exponential(row.scores[j].v - row.max, row.scores[j].e + row.max_error, u)
                    : Value{});
    sum.Add(row.exps.back().v, row.exps.back().e);
  }
  if (has_sink) {
    const Value e = Exponential(sink - row.max, row.max_error, u);
    sum.Add(e.v, e.e);
  }
  row.sum = sum.Result(compute);
  return row;
}

// max + log(sum), of which a large maximum leaves nothing but itself.
Value StatisticsOf(const QueryRow& row, double u) {
  if (row.max == -kInfinity) return {.v = -kInfinity, .e = 0};
  const double log = std::log(row.sum.v), log_error = row.sum.e / row.sum.v;
  if (std::fabs(log) + log_error < u / 2 * std::fabs(row.max))
    return {.v = row.max, .e = row.max_error};
  return {.v = row.max + log,
          .e = row.max_error + log_error + 8 * u * (std::fabs(row.max) + std::fabs(log) + 1)};
}

Value Product(Value a, Value b) {
  return {.v = a.v * b.v, .e = std::fabs(a.v) * b.e + std::fabs(b.v) * a.e + a.e * b.e};
}

}  // namespace

SdpaForwardResult SdpaForward(const SdpaInputs& in, const SdpaParams& p, DType compute,
                              DType type) {
  const Dims &q = in.q->dims, out = {q[0], q[1], q[2], in.v->dims[3]};
  const double u = UnitRoundoff(compute);
  SdpaForwardResult result{.o = {.dims = out, .values = {}},
                           .stats = {.dims = {q[0], q[1], q[2], 1}, .values = {}}};
  for (int64_t b = 0; b < q[0]; ++b) {
    for (int64_t h = 0; h < q[1]; ++h) {
      for (int64_t i = 0; i < q[2]; ++i) {
        const QueryRow row = RowOf(in, p, compute, b, h, i);
        std::vector<Value> weights;
        for (size_t j = 0; j < row.exps.size(); ++j) {
          const double w = row.exps[j].v / row.sum.v;
          const double e = w * ((row.exps[j].v > 0 ? row.exps[j].e / row.exps[j].v : 0) +
                                row.sum.e / row.sum.v + 4 * u);
          weights.push_back(row.seen[j] ? MayRound(type, {.v = w, .e = e}) : Value{});
        }
        for (int64_t d = 0; d < out[3]; ++d) {
          Accumulator sum;
          for (size_t j = 0; j < weights.size(); ++j) {
            if (!row.seen[j]) continue;
            const Value v = KeyAt(in, *in.v, in.page_table_v, b, h, static_cast<int64_t>(j), d);
            const Value t = Product(weights[j], v);
            sum.Add(t.v, t.e + 2.1 * p.operand_roundoff * std::fabs(t.v));
          }
          result.o.values.push_back(sum.Result(compute));
        }
        result.stats.values.push_back(StatisticsOf(row, u));
      }
    }
  }
  return result;
}

SdpaBackwardResult SdpaBackward(const SdpaInputs& in, const Dense& o, const Dense& grad,
                                const Dense& stats, const SdpaParams& p, DType compute,
                                DType type) {
  const Dims& q = in.q->dims;
  const double u = UnitRoundoff(compute);
  const auto cells = [](const Dims& dims) {
    return std::vector<Accumulator>(static_cast<size_t>(Count(dims)));
  };
  std::vector<Accumulator> dq = cells(q), dk = cells(in.k->dims), dv = cells(in.v->dims),
                           dbias = in.bias ? cells(in.bias->dims) : std::vector<Accumulator>();
  const auto add = [](std::vector<Accumulator>& to, const Dims& dims, const Dims& index, Value t) {
    to[BroadcastIndex(dims, index)].Add(t.v, t.e);
  };
  const auto product = [&](Value a, Value b) {
    Value t = Product(a, b);
    t.e += 2.1 * p.operand_roundoff * std::fabs(t.v);
    return t;
  };
  double factor = p.scale;
  if (in.scale != nullptr) factor *= in.scale->values[0].v;
  const int64_t width = in.v->dims[3];
  for (int64_t b = 0; b < q[0]; ++b) {
    for (int64_t h = 0; h < q[1]; ++h) {
      const int64_t hk = h / (q[1] / in.k->dims[1]), hv = h / (q[1] / in.v->dims[1]);
      for (int64_t i = 0; i < q[2]; ++i) {
        Accumulator inner;
        for (int64_t d = 0; d < width; ++d) {
          const Value t = Product(At(grad, {b, h, i, d}), At(o, {b, h, i, d}));
          inner.Add(t.v, t.e + u * std::fabs(t.v));
        }
        const Value below = inner.Result(compute);
        for (int64_t j = 0; j < in.k->dims[2]; ++j) {
          const Value shift = At(stats, {b, h, i, 0});  // -inf: the row sees no key
          if (!Sees(in, p, b, h, i, j) || shift.v == -kInfinity) continue;
          const Value s = Score(in, p, compute, b, h, i, j);
          if (s.v == -kInfinity) continue;
          const Value weight = Exponential(s.v - shift.v, s.e + shift.e, u);
          Accumulator dp;
          for (int64_t d = 0; d < width; ++d) {
            const Value t = product(At(grad, {b, h, i, d}), At(*in.v, {b, hv, j, d}));
            dp.Add(t.v, t.e);
          }
          const Value over = dp.Result(compute);
          Value difference{.v = over.v - below.v, .e = over.e + below.e};
          difference.e += 2 * u * (std::fabs(over.v) + std::fabs(below.v));
          Value ds = Product(weight, difference);
          ds.e += 2 * u * std::fabs(ds.v);
          if (in.bias != nullptr) add(dbias, in.bias->dims, {b, h, i, j}, ds);
          Value scaled{.v = ds.v * factor, .e = ds.e * std::fabs(factor)};
          scaled = MayRound(type, {.v = scaled.v, .e = scaled.e + 2 * u * std::fabs(scaled.v)});
          const Value rounded = MayRound(type, weight);
          for (int64_t d = 0; d < q[3]; ++d) {
            add(dq, q, {b, h, i, d}, product(scaled, At(*in.k, {b, hk, j, d})));
            add(dk, in.k->dims, {b, hk, j, d}, product(scaled, At(*in.q, {b, h, i, d})));
          }
          for (int64_t d = 0; d < width; ++d)
            add(dv, in.v->dims, {b, hv, j, d}, product(rounded, At(grad, {b, h, i, d})));
        }
      }
    }
  }
  const auto finish = [&](const Dims& dims, const std::vector<Accumulator>& sums) {
    Dense y{.dims = dims, .values = {}};
    for (const Accumulator& sum : sums) y.values.push_back(sum.Result(compute));
    return y;
  };
  return {.dq = finish(q, dq),
          .dk = finish(in.k->dims, dk),
          .dv = finish(in.v->dims, dv),
          .dbias = in.bias ? finish(in.bias->dims, dbias) : Dense{}};
}

Dense PagedCacheLoad(const Dense& container, const Dense& table, const Dense& lengths,
                     const Dims& out, bool along_last) {
  Dense y{.dims = out, .values = {}};
  if (Count(out) == 0) return y;
  const int64_t block = container.dims[2];
  Dims index(4, 0);
  do {
    const int64_t s = index[along_last ? 3 : 2], d = index[along_last ? 2 : 3];
    const auto page = static_cast<int64_t>(At(table, {index[0], 0, s / block, 0}).v);
    const bool is_there = page >= 0 && page < container.dims[0] &&
                          static_cast<double>(s) < At(lengths, {index[0], 0, 0, 0}).v;
    y.values.push_back(is_there ? At(container, {page, index[1], s % block, d}) : Value{});
  } while (Next(out, index));
  return y;
}

}  // namespace kiln::oracle
