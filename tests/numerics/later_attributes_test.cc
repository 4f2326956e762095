// Attributes that cuDNN 9.24 and 9.28 gave operations, by descriptors, as no frontend sends them
// yet: the gradient of attention with a sub-graph, a sink, a bias, dropout, lengths; reductions of
// groups of rows. Against plain loops in f64.
#include "tests/numerics/later_attributes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

namespace {

using client::Desc;
using kiln::testing::Count;
using kiln::testing::Ints;
using kiln::testing::LaterAttributes;
using kiln::testing::Numbers;
using kiln::testing::Values;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Problem {
  int64_t batches = 2, heads = 4, of_keys = 2, queries = 37, keys = 53, depth = 32, width = 48;
  std::optional<double> cap = {};
  Ints bias = {};
  bool causal = false, sink = false;
  std::vector<int64_t> len_q = {}, len_kv = {};
  bool cumulated = false;
  double drop = 0;
};

enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kDy,
  kStats,
  kScale,
  kLenQ,
  kLenKv,
  kDq,
  kDk,
  kDv,
  kSink,
  kDsink,
  kBias,
  kDbias,
  kSeed,
  kOffset,
  kBits,
  kInverse,
  kCap,
  kScore = 100
};

// Everything that the gradient reads, and what it must give, by loops.
struct Oracle {
  explicit Oracle(const Problem& problem) : p(problem) {}

  void Compute() {
    const size_t rows = static_cast<size_t>(p.batches * p.heads * p.queries);
    o.assign(rows * static_cast<size_t>(p.width), 0);
    stats.assign(rows, 0);
    ForRows([&](int64_t b, int64_t h, int64_t s) {
      const size_t row = Row(b, h, s);
      const Values score = Scores(b, h, s);
      double top = p.sink && SeesQuery(b, s) ? sink[h] : -kInfinity, sum = 0;
      for (const double x : score) top = std::max(top, x);
      if (p.sink && SeesQuery(b, s)) sum += std::exp(sink[h] - top);
      if (top == -kInfinity) {
        stats[row] = -kInfinity;
        return;
      }
      for (const double x : score) sum += std::exp(x - top);
      stats[row] = top + std::log(sum);
      for (int64_t t = 0; t < p.keys; ++t)
        for (int64_t d = 0; d < p.width; ++d)
          o[row * p.width + d] +=
              std::exp(score[t] - stats[row]) * Kept(row, t) * v[KeyAt(b, h, t) * p.width + d];
    });
  }
  // With o and stats as they are stored.
  void Differentiate() {
    for (Values* x : {&dq, &mq}) x->assign(q.size(), 0);
    for (Values* x : {&dk, &mk}) x->assign(k.size(), 0);
    for (Values* x : {&dv, &mv}) x->assign(v.size(), 0);
    for (Values* x : {&dsink, &msink}) x->assign(static_cast<size_t>(p.heads), 0);
    for (Values* x : {&dbias, &mbias}) x->assign(bias.size(), 0);
    ForRows([&](int64_t b, int64_t h, int64_t s) {
      const size_t row = Row(b, h, s);
      if (stats[row] == -kInfinity) return;
      const Values score = Scores(b, h, s);
      double mean = 0, mean_size = 0;
      for (int64_t d = 0; d < p.width; ++d) {
        mean += dy[row * p.width + d] * o[row * p.width + d];
        mean_size += std::abs(dy[row * p.width + d] * o[row * p.width + d]);
      }
      if (p.sink) {
        dsink[h] -= std::exp(sink[h] - stats[row]) * mean;
        msink[h] += std::exp(sink[h] - stats[row]) * mean_size;
      }
      for (int64_t t = 0; t < p.keys; ++t) {
        const double weight = std::exp(score[t] - stats[row]);
        if (weight == 0) continue;
        const size_t key = KeyAt(b, h, t);
        double dp = 0, dp_size = 0;
        for (int64_t d = 0; d < p.width; ++d) {
          const double x = dy[row * p.width + d] * v[key * p.width + d];
          dp += x, dp_size += std::abs(x);
          dv[key * p.width + d] += weight * Kept(row, t) * dy[row * p.width + d];
          mv[key * p.width + d] += std::abs(weight * Kept(row, t) * dy[row * p.width + d]);
        }
        double ds = weight * (dp * Kept(row, t) - mean);
        double size = weight * (dp_size * Kept(row, t) + mean_size);
        if (!p.bias.empty()) {
          dbias[BiasAt(b, h, s, t)] += ds;
          mbias[BiasAt(b, h, s, t)] += size;
        }
        if (p.cap) {
          const double bent = std::tanh(Product(b, h, s, t) / *p.cap);
          ds *= 1 - bent * bent;
        }
        for (int64_t d = 0; d < p.depth; ++d) {
          const double of_q = scale * k[key * p.depth + d], of_k = scale * q[row * p.depth + d];
          dq[row * p.depth + d] += ds * of_q;
          mq[row * p.depth + d] += std::abs(size * of_q);
          dk[key * p.depth + d] += ds * of_k;
          mk[key * p.depth + d] += std::abs(size * of_k);
        }
      }
    });
  }

  template <class F>
  void ForRows(const F& f) const {
    for (int64_t b = 0; b < p.batches; ++b)
      for (int64_t h = 0; h < p.heads; ++h)
        for (int64_t s = 0; s < p.queries; ++s) f(b, h, s);
  }
  size_t Row(int64_t b, int64_t h, int64_t s) const {
    return static_cast<size_t>((b * p.heads + h) * p.queries + s);
  }
  size_t KeyAt(int64_t b, int64_t h, int64_t t) const {
    return static_cast<size_t>((b * p.of_keys + h / (p.heads / p.of_keys)) * p.keys + t);
  }
  size_t BiasAt(int64_t b, int64_t h, int64_t s, int64_t t) const {
    const int64_t place[] = {b, h, s, t};
    int64_t at = 0;
    for (size_t d = 0; d < 4; ++d) at = at * p.bias[d] + (p.bias[d] == 1 ? 0 : place[d]);
    return static_cast<size_t>(at);
  }
  double Kept(size_t row, int64_t t) const {
    return p.drop == 0 ? 1 : bits[row * static_cast<size_t>(p.keys) + t] / (1 - p.drop);
  }
  bool SeesQuery(int64_t b, int64_t s) const { return p.len_q.empty() || s < p.len_q[b]; }
  double Product(int64_t b, int64_t h, int64_t s, int64_t t) const {
    double sum = 0;
    for (int64_t d = 0; d < p.depth; ++d)
      sum += q[Row(b, h, s) * p.depth + d] * k[KeyAt(b, h, t) * p.depth + d];
    return sum * scale;
  }
  Values Scores(int64_t b, int64_t h, int64_t s) const {
    Values all;
    for (int64_t t = 0; t < p.keys; ++t) {
      double x = Product(b, h, s, t);
      if (p.cap) x = *p.cap * std::tanh(x / *p.cap);
      if (!p.bias.empty()) x += bias[BiasAt(b, h, s, t)];
      const bool sees =
          SeesQuery(b, s) && (p.len_kv.empty() || t < p.len_kv[b]) && (!p.causal || t <= s);
      all.push_back(sees ? x : -kInfinity);
    }
    return all;
  }

  const Problem p;
  double scale = 0.25;
  Values q, k, v, o, dy, stats, sink, bias, bits;
  Values dq, dk, dv, dsink, dbias, mq, mk, mv, msink, mbias;
};

class SdpaGradient : public LaterAttributes {
 protected:
  // The sub-graph of the problem: cap, bias, causal mask; empty where there is none.
  struct SubGraph {
    std::unique_ptr<Desc> graph;
    int64_t output = kScore;
  };
  SubGraph Between(const Problem& p, Oracle& oracle) {
    const Ints dims = {p.batches, p.heads, p.queries, p.keys};
    std::vector<std::unique_ptr<Desc>> tensors, operations;
    SubGraph sub;
    const auto temporary = [&](int64_t uid) -> const Desc& {
      return *tensors.emplace_back(
          std::make_unique<Desc>(client::Tensor(uid, dims, {.is_virtual = true})));
    };
    const Desc* last = &temporary(kScore);
    const auto next = [&](cudnnPointwiseMode_t mode, const Desc* b) {
      const Desc& y = temporary(++sub.output);
      operations.push_back(std::make_unique<Desc>(client::Pointwise(mode, *last, b, y)));
      last = &y;
    };
    if (p.cap) {
      const Desc inverse = Scalar(kInverse, 1 / *p.cap), cap = Scalar(kCap, *p.cap);
      next(CUDNN_POINTWISE_MUL, &inverse);
      next(CUDNN_POINTWISE_TANH_FWD, nullptr);
      next(CUDNN_POINTWISE_MUL, &cap);
    }
    if (!p.bias.empty()) {
      oracle.bias = Numbers(p.bias, 9);
      const Desc bias = Put(kBias, p.bias, CUDNN_DATA_HALF, &oracle.bias);
      next(CUDNN_POINTWISE_ADD, &bias);
    }
    if (p.causal) {
      const Desc& y = temporary(++sub.output);
      auto mask = std::make_unique<Desc>(CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR);
      const auto comparison = CUDNN_POINTWISE_CMP_GE;
      mask->Set(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC, *last)
          .Set(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, y)
          .Set(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE, comparison);
      const Desc fill = Scalar(99, -kInfinity);
      mask->Set(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC, fill).Finalize();
      operations.push_back(std::move(mask));
    }
    if (operations.empty()) return sub;
    std::vector<cudnnBackendDescriptor_t> raws;
    for (const auto& operation : operations) {
      EXPECT_EQ(operation->status(), CUDNN_STATUS_SUCCESS) << operation->error();
      raws.push_back(operation->raw());
    }
    sub.graph = std::make_unique<Desc>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    EXPECT_EQ(cudnnBackendSetAttribute(sub.graph->raw(), CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       static_cast<int64_t>(raws.size()), raws.data()),
              CUDNN_STATUS_SUCCESS);
    sub.graph->Finalize();
    EXPECT_EQ(sub.graph->status(), CUDNN_STATUS_SUCCESS) << sub.graph->error();
    return sub;
  }

  // The bits that dropout keeps, by the operation that makes them.
  void Draw(const Problem& p, Oracle& oracle) {
    Values seed = {1234}, offset = {7};
    const Desc t_seed = Put(kSeed, {1, 1, 1, 1}, CUDNN_DATA_INT64, &seed);
    const Desc t_offset = Put(kOffset, {1, 1, 1, 1}, CUDNN_DATA_INT64, &offset);
    const Desc bits =
        Put(kBits, {p.batches, p.heads, p.queries, p.keys}, CUDNN_DATA_FLOAT, nullptr);
    Desc rng(CUDNN_BACKEND_RNG_DESCRIPTOR);
    const cudnnRngDistribution_t bernoulli = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
    cudnnBackendSetAttribute(rng.raw(), CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, 1,
                             &bernoulli);
    rng.Set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, 1 - p.drop).Finalize();
    Desc op(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR);
    op.Set(CUDNN_ATTR_OPERATION_RNG_DESC, rng)
        .Set(CUDNN_ATTR_OPERATION_RNG_SEED, t_seed)
        .Set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, t_offset)
        .Set(CUDNN_ATTR_OPERATION_RNG_YDESC, bits)
        .Finalize();
    Run(op);
    oracle.bits = Read(kBits);
  }

  void Lengths(Desc& op, const std::vector<int64_t>& lengths, int64_t uid, bool cumulated,
               cudnnBackendAttributeName_t plain, cudnnBackendAttributeName_t sums) {
    if (lengths.empty()) return;
    Values values = {};
    if (cumulated) values.push_back(0);
    for (const int64_t n : lengths)
      values.push_back(static_cast<double>(n) + (cumulated ? values.back() : 0));
    op.Set(cumulated ? sums : plain,
           Put(uid, {static_cast<int64_t>(values.size()), 1, 1, 1}, CUDNN_DATA_INT32, &values));
  }

  void Check(const Problem& p) {
    Oracle oracle(p);
    if (p.drop != 0) Draw(p, oracle);
    const Ints of_q = {p.batches, p.heads, p.queries, p.depth},
               of_k = {p.batches, p.of_keys, p.keys, p.depth},
               of_v = {p.batches, p.of_keys, p.keys, p.width},
               of_o = {p.batches, p.heads, p.queries, p.width};
    const auto half = CUDNN_DATA_HALF;
    oracle.q = Numbers(of_q, 1), oracle.k = Numbers(of_k, 2);
    oracle.v = Numbers(of_v, 3), oracle.dy = Numbers(of_o, 4);
    oracle.sink = Numbers({p.heads}, 5);
    const SubGraph sub = Between(p, oracle);
    Desc op(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR);
    op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, Put(kQ, of_q, half, &oracle.q))
        .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, Put(kK, of_k, half, &oracle.k))
        .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, Put(kV, of_v, half, &oracle.v))
        .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, Put(kDy, of_o, half, &oracle.dy))
        .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, Scalar(kScale, oracle.scale))
        .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, Put(kDq, of_q, half, nullptr))
        .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, Put(kDk, of_k, half, nullptr))
        .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, Put(kDv, of_v, half, nullptr));
    if (p.sink) {
      const Ints of_heads = {1, p.heads, 1, 1};
      op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SINK_DESC,
             Put(kSink, of_heads, CUDNN_DATA_FLOAT, &oracle.sink))
          .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DSINK_DESC,
               Put(kDsink, of_heads, CUDNN_DATA_FLOAT, nullptr));
    }
    oracle.Compute();
    op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, Put(kO, of_o, half, &oracle.o))
        .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC,
             Put(kStats, {p.batches, p.heads, p.queries, 1}, CUDNN_DATA_FLOAT, &oracle.stats));
    Lengths(op, p.len_q, kLenQ, p.cumulated, CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_QDESC,
            CUDNN_ATTR_OPERATION_SDPA_BWD_CU_SEQ_LEN_QDESC);
    Lengths(op, p.len_kv, kLenKv, p.cumulated, CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_KVDESC,
            CUDNN_ATTR_OPERATION_SDPA_BWD_CU_SEQ_LEN_KVDESC);
    if (sub.graph != nullptr)
      op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH, *sub.graph)
          .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID, static_cast<int64_t>(kScore))
          .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID, sub.output);
    if (!p.bias.empty())
      op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DBIAS_DESC,
             Put(kDbias, p.bias, CUDNN_DATA_FLOAT, nullptr));
    if (p.drop != 0)
      op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DROPOUT_PROBABILITY, p.drop)
          .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DROPOUT_SEED_DESC,
               client::Tensor(kSeed, {1, 1, 1, 1}, {.type = CUDNN_DATA_INT64}))
          .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DROPOUT_OFFSET_DESC,
               client::Tensor(kOffset, {1, 1, 1, 1}, {.type = CUDNN_DATA_INT64}));
    op.Finalize();
    Run(op);
    if (HasFatalFailure()) return;
    oracle.Differentiate();
    Expect(kDq, "dq", oracle.dq, oracle.mq);
    Expect(kDk, "dk", oracle.dk, oracle.mk);
    Expect(kDv, "dv", oracle.dv, oracle.mv);
    if (p.sink) Expect(kDsink, "dsink", oracle.dsink, oracle.msink);
    if (!p.bias.empty()) Expect(kDbias, "dbias", oracle.dbias, oracle.mbias);
  }

  // o and its statistics of the forward operation, of a problem without sink and dropout.
  void CheckForward(const Problem& p) {
    Oracle oracle(p);
    const Ints of_q = {p.batches, p.heads, p.queries, p.depth},
               of_k = {p.batches, p.of_keys, p.keys, p.depth},
               of_v = {p.batches, p.of_keys, p.keys, p.width},
               of_o = {p.batches, p.heads, p.queries, p.width};
    const auto half = CUDNN_DATA_HALF;
    oracle.q = Numbers(of_q, 1), oracle.k = Numbers(of_k, 2), oracle.v = Numbers(of_v, 3);
    const SubGraph sub = Between(p, oracle);
    Desc op(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    op.Set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, Put(kQ, of_q, half, &oracle.q))
        .Set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, Put(kK, of_k, half, &oracle.k))
        .Set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, Put(kV, of_v, half, &oracle.v))
        .Set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, Scalar(kScale, oracle.scale))
        .Set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, Put(kO, of_o, half, nullptr))
        .Set(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC,
             Put(kStats, {p.batches, p.heads, p.queries, 1}, CUDNN_DATA_FLOAT, nullptr));
    Lengths(op, p.len_q, kLenQ, p.cumulated, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC,
            CUDNN_ATTR_OPERATION_SDPA_FWD_CU_SEQ_LEN_QDESC);
    Lengths(op, p.len_kv, kLenKv, p.cumulated, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC,
            CUDNN_ATTR_OPERATION_SDPA_FWD_CU_SEQ_LEN_KVDESC);
    if (sub.graph != nullptr)
      op.Set(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, *sub.graph)
          .Set(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID, static_cast<int64_t>(kScore))
          .Set(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID, sub.output);
    op.Finalize();
    Run(op);
    if (HasFatalFailure()) return;
    oracle.Compute();
    Expect(kO, "o", oracle.o, Values(oracle.o.size(), 2));
    Expect(kStats, "stats", oracle.stats, Values(oracle.stats.size(), 2));
  }
};

TEST_F(SdpaGradient, OfACap) { Check({.cap = 1.5}); }
TEST_F(SdpaGradient, OfACapAndABias) { Check({.cap = 1.5, .bias = {1, 4, 37, 53}}); }
TEST_F(SdpaGradient, OfABiasOfAllHeads) {
  Check({.of_keys = 4, .bias = {1, 1, 37, 53}, .causal = true});
}
TEST_F(SdpaGradient, OfASinkBelowADiagonal) { Check({.causal = true, .sink = true}); }
TEST_F(SdpaGradient, OfASinkWithLengths) {
  Check({.sink = true, .len_q = {20, 37}, .len_kv = {53, 9}});
}
TEST_F(SdpaGradient, OfCumulatedLengths) {
  Check({.cap = 2, .len_q = {1, 36}, .len_kv = {53, 17}, .cumulated = true});
}
TEST_F(SdpaGradient, OfLengthsOfKeysAlone) {
  Check({.sink = true, .len_kv = {53, 9}, .cumulated = true});
}
// The forward operation hides what is behind a length, one of them by itself, too; rows that see no
// key get 0 and -inf.
TEST_F(SdpaGradient, ForwardOfLengthsOfKeysAlone) {
  CheckForward({.cap = 2, .len_kv = {53, 9}});
  CheckForward({.bias = {1, 4, 37, 53}, .len_kv = {0, 17}, .cumulated = true});
}
TEST_F(SdpaGradient, ForwardOfLengthsOfQueriesAlone) {
  CheckForward({.len_q = {37, 5}, .cumulated = true});
  CheckForward({.cap = 2, .causal = true, .len_q = {1, 36}});
}
TEST_F(SdpaGradient, ForwardOfBothLengths) {
  CheckForward({.cap = 1.5, .len_q = {20, 37}, .len_kv = {53, 9}});
}
TEST_F(SdpaGradient, OfDropout) { Check({.sink = true, .drop = 0.25}); }
TEST_F(SdpaGradient, OfDropoutCapAndDiagonal) { Check({.cap = 1, .causal = true, .drop = 0.5}); }
TEST_F(SdpaGradient, OfOneQuery) {
  Check({.batches = 1, .heads = 1, .of_keys = 1, .queries = 1, .keys = 8, .cap = 1, .sink = true});
}

// ---- groups of rows

struct Groups {
  cudnnReduceTensorOp_t mode;
  int64_t rows, columns;
  std::vector<int64_t> offsets;
  bool has_end = false;
  cudnnDataType_t type = CUDNN_DATA_HALF, offset_type = CUDNN_DATA_INT32;
};

double Reduced(cudnnReduceTensorOp_t mode, const Values& of) {
  const bool is_product =
      mode == CUDNN_REDUCE_TENSOR_MUL || mode == CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS;
  double y = is_product                        ? 1
             : mode == CUDNN_REDUCE_TENSOR_MIN ? kInfinity
             : mode == CUDNN_REDUCE_TENSOR_MAX ? -kInfinity
                                               : 0;
  for (const double x : of) {
    if (mode == CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS && x == 0) continue;
    if (is_product)
      y *= x;
    else if (mode == CUDNN_REDUCE_TENSOR_MIN)
      y = std::min(y, x);
    else if (mode == CUDNN_REDUCE_TENSOR_MAX)
      y = std::max(y, x);
    else if (mode == CUDNN_REDUCE_TENSOR_AMAX)
      y = std::max(y, std::abs(x));
    else if (mode == CUDNN_REDUCE_TENSOR_NORM1)
      y += std::abs(x);
    else if (mode == CUDNN_REDUCE_TENSOR_NORM2)
      y += x * x;
    else
      y += x;
  }
  if (mode == CUDNN_REDUCE_TENSOR_NORM2) y = std::sqrt(y);
  return mode == CUDNN_REDUCE_TENSOR_AVG ? y / static_cast<double>(of.size()) : y;
}

class GroupedReduction : public LaterAttributes {
 protected:
  static Desc Operation(const Desc& x, const Desc& y, const Desc& offsets,
                        cudnnReduceTensorOp_t mode) {
    Desc reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    reduction.Set(CUDNN_ATTR_REDUCTION_OPERATOR, mode)
        .Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .Finalize();
    Desc op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    op.Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction)
        .Set(CUDNN_ATTR_OPERATION_REDUCTION_GROUP_OFFSET_DESC, offsets)
        .Finalize();
    return op;
  }
  void Check(const Groups& g) {
    SCOPED_TRACE(g.mode);
    const int64_t groups = std::ssize(g.offsets) - (g.has_end ? 1 : 0);
    const Ints of_x = {1, g.rows, g.columns}, of_y = {groups, 1, g.columns};
    Values x = Numbers(of_x, 11, 1.5), offsets(g.offsets.begin(), g.offsets.end());
    for (size_t i = 0; i < x.size(); i += 5) x[i] = 0;
    const Desc op = Operation(Put(1, of_x, g.type, &x), Put(2, of_y, CUDNN_DATA_FLOAT, nullptr),
                              Put(3, {std::ssize(offsets), 1, 1}, g.offset_type, &offsets), g.mode);
    Run(op);
    if (HasFatalFailure()) return;
    Values expected, magnitude;
    for (int64_t e = 0; e < groups; ++e) {
      const int64_t end = e + 1 < std::ssize(g.offsets) ? g.offsets[e + 1] : g.rows;
      for (int64_t c = 0; c < g.columns; ++c) {
        Values of, sizes;
        for (int64_t r = g.offsets[e]; r < end; ++r)
          of.push_back(x[static_cast<size_t>(r * g.columns + c)]),
              sizes.push_back(std::abs(of.back()));
        expected.push_back(Reduced(g.mode, of));
        magnitude.push_back(std::ldexp(Reduced(g.mode, sizes), -8));  // sums in f32
      }
    }
    Expect(2, "y", expected, magnitude);
  }
};

TEST_F(GroupedReduction, OfEveryMode) {
  for (int mode = 0; mode <= CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS; ++mode)
    Check({.mode = static_cast<cudnnReduceTensorOp_t>(mode),
           .rows = 61,
           .columns = 19,
           .offsets = {0, 7, 7, 8, 40}});
}
TEST_F(GroupedReduction, EndsWhereOneOffsetMoreSays) {
  Check({.mode = CUDNN_REDUCE_TENSOR_ADD,
         .rows = 61,
         .columns = 19,
         .offsets = {3, 7, 50},
         .has_end = true,
         .offset_type = CUDNN_DATA_INT64});
}
TEST_F(GroupedReduction, OfOneGroupAndOneRow) {
  Check({.mode = CUDNN_REDUCE_TENSOR_AVG,
         .rows = 1,
         .columns = 3,
         .offsets = {0},
         .type = CUDNN_DATA_FLOAT});
}

TEST_F(GroupedReduction, ExtentsThatDoNotFitAreRefused) {
  const auto status = [&](const Ints& x, const Ints& y, const Ints& offsets,
                          cudnnDataType_t type = CUDNN_DATA_INT32) {
    const Desc op = Operation(client::Tensor(1, x), client::Tensor(2, y),
                              client::Tensor(3, offsets, {.type = type}), CUDNN_REDUCE_TENSOR_ADD);
    return std::pair(op.status(), op.error());
  };
  EXPECT_EQ(status({1, 9, 4}, {3, 1, 4}, {3, 1, 1}).first, CUDNN_STATUS_SUCCESS);
  for (const auto& [result, sentence] :
       {status({2, 9, 4}, {3, 1, 4}, {3, 1, 1}), status({1, 9, 4}, {3, 9, 4}, {3, 1, 1}),
        status({1, 9, 4}, {3, 1, 2}, {3, 1, 1}), status({1, 9, 4}, {3, 1, 4}, {5, 1, 1}),
        status({1, 9, 4}, {3, 1, 4}, {1, 3, 1}), status({9}, {1}, {1}),
        status({1, 9, 4}, {3, 1, 4}, {3, 1, 1}, CUDNN_DATA_FLOAT)}) {
    EXPECT_EQ(result, CUDNN_STATUS_BAD_PARAM) << sentence;
    EXPECT_NE(sentence.find("x"), std::string::npos) << sentence;
  }
}

// ---- the gradient's attributes, set, read and refused

Desc Plain(int64_t heads = 2) {
  const auto half = CUDNN_DATA_HALF;
  const Ints dims = {1, heads, 8, 16};
  Desc op(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR);
  int64_t uid = 0;
  for (const auto name :
       {CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC,
        CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC,
        CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC,
        CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC})
    op.Set(name, client::Tensor(++uid, dims, {.type = half}));
  op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, client::Tensor(++uid, {1, heads, 8, 1}));
  return op;
}
// One node on the score, and the gradient that has it for a sub-graph.
std::pair<cudnnStatus_t, std::string> WithNode(cudnnHandle_t handle, cudnnPointwiseMode_t mode,
                                               int64_t output = 101) {
  const Ints score = {1, 2, 8, 8};
  const Desc x = client::Tensor(100, score, {.is_virtual = true}),
             y = client::Tensor(101, score, {.is_virtual = true}), b = client::Tensor(102, score);
  const Desc node = client::Pointwise(mode, x, &b, y);
  const Desc graph = client::Graph(nullptr, {&node});
  Desc op = Plain();
  op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH, graph)
      .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID, int64_t{100})
      .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID, output)
      .Finalize();
  if (op.status() != CUDNN_STATUS_SUCCESS) return {op.status(), op.error()};
  const Desc whole = client::Graph(handle, {&op});
  return {whole.status(), whole.error()};
}

TEST_F(SdpaGradient, SubGraphsWithoutADerivativeAreRefusedByName) {
  EXPECT_EQ(WithNode(handle_, CUDNN_POINTWISE_MUL).first, CUDNN_STATUS_SUCCESS);
  const auto floor = WithNode(handle_, CUDNN_POINTWISE_FLOOR);
  EXPECT_EQ(floor.first / 1000, CUDNN_STATUS_NOT_SUPPORTED / 1000);
  EXPECT_NE(floor.second.find("floor, which has no derivative"), std::string::npos) << floor.second;
  const auto other = WithNode(handle_, CUDNN_POINTWISE_MUL, 102);
  EXPECT_EQ(other.first / 1000, CUDNN_STATUS_BAD_PARAM / 1000);
  EXPECT_NE(other.second.find("does not follow"), std::string::npos) << other.second;
  const auto none = WithNode(handle_, CUDNN_POINTWISE_MUL, 555);
  EXPECT_EQ(none.first / 1000, CUDNN_STATUS_BAD_PARAM / 1000) << none.second;
}

TEST_F(SdpaGradient, MistakesAreSentences) {
  using Change = std::function<void(Desc&)>;
  const auto error = [](const Change& change) {
    Desc op = Plain();
    change(op);
    op.Finalize();
    return op.status() == CUDNN_STATUS_SUCCESS ? std::string("none") : op.error();
  };
  const Ints of_heads = {1, 2, 1, 1};
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error([](Desc&) {}), "none");
  has(error([&](Desc& op) {
        op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DSINK_DESC, client::Tensor(20, of_heads));
      }),
      "there is none");
  has(error([&](Desc& op) {
        op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SINK_DESC, client::Tensor(20, {1, 3, 1, 1}))
            .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DSINK_DESC, client::Tensor(21, of_heads));
      }),
      "must be 1x2x1x1");
  has(error([](Desc& op) {
        op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DBIAS_DESC, client::Tensor(20, {1, 1, 8, 8}));
      }),
      "no sub-graph adds one");
  has(error([](Desc& op) { op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DROPOUT_PROBABILITY, 1.0); }),
      "is no probability");
  has(error([](Desc& op) { op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_DROPOUT_PROBABILITY, 0.5); }),
      "no seed or no offset");
  has(error([](Desc& op) { op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID, int64_t{5}); }),
      "belong together");
  has(error([](Desc& op) {
        op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_CU_SEQ_LEN_QDESC,
               client::Tensor(20, {1, 1, 1, 1}, {.type = CUDNN_DATA_INT32}));
      }),
      "must be integers and 2x1x1x1");
  has(error(
          [](Desc& op) { op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_MAX_TOTAL_SEQ_LEN_Q, int64_t{-4}); }),
      "-4 is no maximum");
}

TEST_F(SdpaGradient, WhatIsSetIsReadBack) {
  Desc op = Plain();
  op.Set(CUDNN_ATTR_OPERATION_SDPA_BWD_MAX_TOTAL_SEQ_LEN_Q, int64_t{77})
      .Set(CUDNN_ATTR_OPERATION_SDPA_BWD_MAX_TOTAL_SEQ_LEN_KV, int64_t{99})
      .Finalize();
  ASSERT_EQ(op.status(), CUDNN_STATUS_SUCCESS) << op.error();
  int64_t q = 0, kv = 0;
  EXPECT_EQ(op.Get(CUDNN_ATTR_OPERATION_SDPA_BWD_MAX_TOTAL_SEQ_LEN_Q, &q), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(op.Get(CUDNN_ATTR_OPERATION_SDPA_BWD_MAX_TOTAL_SEQ_LEN_KV, &kv), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(q, 77);
  EXPECT_EQ(kv, 99);
}

}  // namespace
