// Attention as cudnn-frontend spells it, of f64: the interpreter against plain loops, and gradients
// against differences of those, under every combination of masks that may leave rows without keys.
#include "ir/graph/spelled_attention.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "ir/graph/builder.h"
#include "ir/graph/eval.h"

namespace kiln::graph {
namespace {

using M = PointwiseMode;
using R = ReductionMode;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kBatches = 2, kHeads = 2, kQueries = 5, kKeys = 4, kDepth = 3;
constexpr double kScale = 0.7;

struct Masks {
  bool lengths = false, causal = false, bottom_right = false, window = false;
  bool bias = false, sink = false;
};
Masks MasksOf(int bits) {
  const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
  return {.lengths = bit(0),
          .causal = bit(1),
          .bottom_right = bit(2),
          .window = bit(3),
          .bias = bit(4),
          .sink = bit(5)};
}

using Numbers = std::vector<double>;

// Values by name, row-major.
struct Operands {
  std::map<std::string, Numbers> of;
  Numbers& operator[](const std::string& name) { return of[name]; }
  const Numbers& at(const std::string& name) const { return of.at(name); }
};

Operands RandomOperands(uint64_t seed) {
  const auto draw = [&] {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(seed >> 11) * 0x1p-53 * 2 - 1;
  };
  Operands x;
  const auto fill = [&](const char* name, int64_t count) {
    for (int64_t i = 0; i < count; ++i) x[name].push_back(draw());
  };
  for (const char* name : {"q", "do"}) fill(name, kBatches * kHeads * kQueries * kDepth);
  for (const char* name : {"k", "v"}) fill(name, kBatches * kHeads * kKeys * kDepth);
  fill("bias", kHeads * kQueries * kKeys);
  fill("sink", kHeads);
  // A row of -inf, one with a key left, one with large numbers.
  for (int64_t j = 0; j < kKeys; ++j) {
    x["bias"][static_cast<size_t>(j)] = -kInfinity;
    if (j != 2) x["bias"][static_cast<size_t>(kKeys + j)] = -kInfinity;
    x["bias"][static_cast<size_t>(3 * kKeys + j)] -= 1e4;
  }
  x["seq_q"] = {3, 5};
  x["seq_kv"] = {4, 2};
  return x;
}

size_t At(int64_t b, int64_t h, int64_t i, int64_t d, int64_t rows) {
  return static_cast<size_t>(((b * kHeads + h) * rows + i) * kDepth + d);
}

// The rule in words: a key that is hidden, by whatever it is, weighs nothing; a row from seq_q on
// is no query.
struct Plain {
  Numbers o, stats;
};
Plain Attend(const Operands& x, const Masks& m) {
  Plain y;
  for (int64_t b = 0; b < kBatches; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t i = 0; i < kQueries; ++i) {
        const auto rows = m.lengths ? int64_t(x.at("seq_q")[size_t(b)]) : kQueries;
        const auto keys = m.lengths ? int64_t(x.at("seq_kv")[size_t(b)]) : kKeys;
        const int64_t place = i + (m.bottom_right ? keys - rows : 0);
        std::array<double, kKeys> score;
        double largest = -kInfinity, sum = 0;
        for (int64_t j = 0; j < kKeys; ++j) {
          double s = 0;
          for (int64_t d = 0; d < kDepth; ++d)
            s += x.at("q")[At(b, h, i, d, kQueries)] * x.at("k")[At(b, h, j, d, kKeys)];
          s *= kScale;
          if (m.bias) s += x.at("bias")[size_t((h * kQueries + i) * kKeys + j)];
          const bool hidden =
              i >= rows || j >= keys || (m.causal && j > place) || (m.window && j <= place - 2);
          score[size_t(j)] = hidden ? -kInfinity : s;
          largest = std::max(largest, score[size_t(j)]);
        }
        const bool has_sink = m.sink && i < rows;
        const double sink = x.at("sink")[size_t(h)];
        if (has_sink) largest = std::max(largest, sink);
        const bool is_empty = largest == -kInfinity;
        for (double& s : score) sum += s = is_empty ? 0 : std::exp(s - largest);
        if (has_sink) sum += std::exp(sink - largest);
        y.stats.push_back(is_empty ? -kInfinity : largest + std::log(sum));
        for (int64_t d = 0; d < kDepth; ++d) {
          double o = 0;
          for (int64_t j = 0; j < kKeys && !is_empty; ++j)
            o += score[size_t(j)] / sum * x.at("v")[At(b, h, j, d, kKeys)];
          y.o.push_back(o);
        }
      }
  return y;
}

// Writes the operations in cudnn-frontend's order.
class Writer {
 public:
  explicit Writer(const Masks& m) : m_(m), b_("attention") {}

  Result<Graph> Forward() {
    Operands();
    const TensorId s = Window(Causal(Padded(Score())));
    TensorId max = Rows(R::kMax, s);
    const TensorId sink = m_.sink ? Input("sink", {1, kHeads, 1, 1}) : kAbsent;
    if (m_.sink) max = Two(M::kMax, max, sink);
    const TensorId exp = One(M::kExp, Two(M::kSub, s, max));
    TensorId sum = Rows(R::kAdd, exp);
    if (m_.sink) sum = Two(M::kAdd, sum, One(M::kExp, Two(M::kSub, sink, max)));
    const TensorId stats = Two(M::kAdd, max, One(M::kLog, sum));
    const TensorId o = Product(Two(M::kDiv, exp, sum), v_, {seq_q_, kAbsent, seq_kv_});
    b_.Output(stats, "stats", DType::kF64);
    b_.Output(o, "o", DType::kF64);
    return b_.Finish();
  }

  Result<Graph> Backward() {
    Operands();
    const Dims of_q = {kBatches, kHeads, kQueries, kDepth}, rows = {kBatches, kHeads, kQueries, 1};
    const TensorId o = Input("o", of_q), grad = Input("do", of_q), stats = Input("stats", rows);
    const TensorId inner = Rows(R::kAdd, Two(M::kMul, grad, o));
    if (m_.sink) {
      const TensorId share = One(M::kExp, Two(M::kSub, Input("sink", {1, kHeads, 1, 1}), stats));
      b_.Output(b_.Reduction(R::kAdd, Two(M::kMul, share, inner), {1, kHeads, 1, 1}, kF64), "dsink",
                DType::kF64);
    }
    const TensorId mean = Two(M::kMul, inner, Number(1));
    const TensorId shifted = Two(M::kSub, Padded(Score()), stats);
    const TensorId weight = One(M::kExp, Window(Causal(shifted)));
    const TensorId dv = Product(Swapped(weight), grad, {seq_kv_, kAbsent, seq_q_});
    const TensorId dp = Product(grad, Swapped(v_), {seq_q_, seq_kv_, kAbsent});
    const TensorId slope = Two(M::kMul, Two(M::kSub, dp, mean), weight);
    if (m_.bias)
      b_.Output(b_.Reduction(R::kAdd, slope, {1, kHeads, kQueries, kKeys}, kF64), "dbias",
                DType::kF64);
    const TensorId ds = Two(M::kMul, slope, Number(kScale));
    const TensorId dk = Product(Swapped(ds), q_, {seq_kv_, kAbsent, seq_q_});
    const TensorId dq = Product(ds, k_, {seq_q_, kAbsent, seq_kv_});
    b_.Output(dq, "dq", DType::kF64);
    b_.Output(dk, "dk", DType::kF64);
    b_.Output(dv, "dv", DType::kF64);
    return b_.Finish();
  }

 private:
  static constexpr auto kType = DType::kF64;
  const ResultOptions kF64 = {.dtype = kType, .compute = kType};

  TensorId Input(const char* name, Dims dims, DType type = kType) {
    return b_.Input(name, type, std::move(dims));
  }
  TensorId Number(double value, DType type = kType) {
    return b_.Constant("number", type, value, 4);
  }
  TensorId One(M mode, TensorId x) { return b_.Pointwise(mode, {x}, kF64); }
  TensorId Two(M mode, TensorId x, TensorId y) { return b_.Pointwise(mode, {x, y}, kF64); }
  TensorId Places(M mode, TensorId x, TensorId y) {
    return b_.Pointwise(mode, {x, y}, {.dtype = DType::kI32, .compute = DType::kI32});
  }
  TensorId Compare(M mode, TensorId x, TensorId y) {
    return b_.Pointwise(mode, {x, y}, {.dtype = DType::kBool});
  }
  TensorId Rows(R mode, TensorId x) {
    Dims dims = b_.graph()[x].dims;
    dims.back() = 1;
    return b_.Reduction(mode, x, dims, kF64);
  }
  TensorId Swapped(TensorId x) {
    return b_.Apply(GraphOp::kTranspose, {x}, TransposeAttrs{.permutation = {0, 1, 3, 2}}, kF64);
  }
  TensorId Product(TensorId a, TensorId b, const std::array<TensorId, 3>& limits) {
    std::vector<TensorId> inputs = {a, b};
    if (m_.lengths) inputs.insert(inputs.end(), limits.begin(), limits.end());
    return b_.Apply(GraphOp::kMatmul, inputs, MatmulAttrs{}, kF64);
  }
  TensorId Index(TensorId x, int64_t axis) {
    return b_.Apply(GraphOp::kPointwise, {x}, PointwiseAttrs{.mode = M::kGenIndex, .axis = axis},
                    {.dtype = DType::kI32});
  }

  void Operands() {
    q_ = Input("q", {kBatches, kHeads, kQueries, kDepth});
    k_ = Input("k", {kBatches, kHeads, kKeys, kDepth});
    v_ = Input("v", {kBatches, kHeads, kKeys, kDepth});
    if (!m_.lengths) return;
    seq_q_ = Input("seq_q", {kBatches, 1, 1, 1}, DType::kI32);
    seq_kv_ = Input("seq_kv", {kBatches, 1, 1, 1}, DType::kI32);
  }
  TensorId Score() {
    const TensorId s =
        Two(M::kMul, Product(q_, Swapped(k_), {seq_q_, seq_kv_, kAbsent}), Number(kScale));
    return m_.bias ? Two(M::kAdd, s, Input("bias", {1, kHeads, kQueries, kKeys})) : s;
  }
  TensorId Masked(TensorId s, TensorId visible) {
    return b_.Pointwise(M::kBinarySelect, {s, Number(-kInfinity), visible}, kF64);
  }
  TensorId Padded(TensorId s) {
    if (!m_.lengths) return s;
    return Masked(s, Compare(M::kLogicalAnd, Compare(M::kCmpLt, Index(s, 2), seq_q_),
                             Compare(M::kCmpLt, Index(s, 3), seq_kv_)));
  }
  TensorId Place(TensorId s) {
    if (!m_.bottom_right) return Index(s, 2);
    const TensorId keys = m_.lengths ? seq_kv_ : Number(kKeys, DType::kI32),
                   rows = m_.lengths ? seq_q_ : Number(kQueries, DType::kI32);
    return Places(M::kSub, Places(M::kAdd, Index(s, 2), keys), rows);
  }
  TensorId Causal(TensorId s) {
    return m_.causal ? Masked(s, Compare(M::kCmpGe, Place(s), Index(s, 3))) : s;
  }
  TensorId Window(TensorId s) {
    if (!m_.window) return s;
    return Masked(
        s, Compare(M::kCmpGt, Places(M::kAdd, Index(s, 3), Number(2, DType::kI32)), Place(s)));
  }

  const Masks m_;
  GraphBuilder b_;
  TensorId q_ = kAbsent, k_ = kAbsent, v_ = kAbsent, seq_q_ = kAbsent, seq_kv_ = kAbsent;
};

// Outputs by name.
std::map<std::string, Numbers> Interpret(const Graph& g, const Operands& x) {
  TensorValues values;
  for (const TensorId id : Inputs(g)) values[id] = x.at(g[id].name);
  const Status status = Evaluate(g, values);
  EXPECT_TRUE(status.ok()) << status.message();
  std::map<std::string, Numbers> outputs;
  for (const TensorId id : Outputs(g)) outputs[g[id].name] = values[id];
  return outputs;
}

void ExpectNear(const Numbers& got, const Numbers& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i]))
      EXPECT_EQ(got[i], want[i]) << what << " " << i;
    else
      EXPECT_NEAR(got[i], want[i], tolerance) << what << " " << i;
  }
}

TEST(SpelledAttentionTest, RowsThatSeeNoKey) {
  for (int bits = 0; bits < 64; ++bits) {
    SCOPED_TRACE(bits);
    const Masks masks = MasksOf(bits);
    const Operands x = RandomOperands(static_cast<uint64_t>(bits) + 1);
    const Result<Graph> g = Writer(masks).Forward();
    ASSERT_TRUE(g.ok()) << g.status().message();
    auto got = Interpret(*g, x);
    const Plain want = Attend(x, masks);
    ExpectNear(got["o"], want.o, 1e-12, "o");
    ExpectNear(got["stats"], want.stats, 1e-11, "stats");
  }
}

// The derivative of sum(do * o) by each operand: a central difference.
TEST(SpelledAttentionTest, GradientsAreDerivatives) {
  for (int bits = 0; bits < 64; ++bits) {
    SCOPED_TRACE(bits);
    const Masks masks = MasksOf(bits);
    Operands x = RandomOperands(static_cast<uint64_t>(bits) + 100);
    const Plain forward = Attend(x, masks);
    x["o"] = forward.o;
    x["stats"] = forward.stats;
    const Result<Graph> g = Writer(masks).Backward();
    ASSERT_TRUE(g.ok()) << g.status().message();
    auto got = Interpret(*g, x);
    const auto loss = [&] {
      const Plain y = Attend(x, masks);
      double sum = 0;
      for (size_t i = 0; i < y.o.size(); ++i) sum += y.o[i] * x.at("do")[i];
      return sum;
    };
    EXPECT_EQ(got.contains("dsink"), masks.sink);
    for (const char* name : {"q", "k", "v", "bias", "sink"}) {
      if (!got.contains(std::string("d") + name)) continue;
      Numbers want;
      for (double& number : x[name]) {
        const double before = number, step = 1e-5;
        number = before + step;
        const double up = loss();
        number = before - step;
        const double down = loss();
        number = before;
        want.push_back((up - down) / (2 * step));
      }
      ExpectNear(got[std::string("d") + name], want, 1e-7, name);
    }
  }
}

// Legalize runs more than once on a graph on its way to a kernel.
TEST(SpelledAttentionTest, SettlesOnce) {
  for (int bits = 0; bits < 64; ++bits) {
    for (const bool forward : {true, false}) {
      Writer writer(MasksOf(bits));
      Result<Graph> g = forward ? writer.Forward() : writer.Backward();
      ASSERT_TRUE(g.ok()) << g.status().message();
      const std::string text = Print(*g);
      EXPECT_FALSE(SettleSpelledAttention(*g));
      EXPECT_EQ(Print(*g), text);
    }
  }
}

// A softmax of something else keeps what its formula says.
TEST(SpelledAttentionTest, OtherSoftmaxIsLeftAlone) {
  GraphBuilder b("softmax");
  const TensorId x = b.Input("x", DType::kF32, {3, 4});
  const TensorId max = b.Reduction(R::kMax, x, {3, 1});
  const TensorId exp = b.Pointwise(M::kExp, {b.Pointwise(M::kSub, {x, max})});
  b.Output(b.Pointwise(M::kDiv, {exp, b.Reduction(R::kAdd, exp, {3, 1})}), "y", DType::kF32);
  Result<Graph> g = b.Finish();
  ASSERT_TRUE(g.ok()) << g.status().message();
  EXPECT_EQ(g->nodes.size(), 5u);
}

}  // namespace
}  // namespace kiln::graph
