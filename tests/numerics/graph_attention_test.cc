// cudnnGnnMhaGat{,V2}{Forward,Backward} on either device, against plain loops over edges
// (graph_attention_oracle.h), whose gradient is held against differences of its own forward.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/numerics/graph_attention_oracle.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

using oracle::Dims;
using oracle::Value;
using Problem = AttentionProblem;

std::vector<Bounded> Exact(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}
std::vector<Value> Expected(const std::vector<Bounded>& values) {
  std::vector<Value> out;
  for (const Bounded& x : values) out.push_back({x.v, 2 * x.e});
  return out;
}

// Operands of a problem on the device.
struct Operands {
  Operands(Device& device, const Problem& p)
      : graph(device, p.graph, p.is_reversed),
        src(Make(device, p.type, p.graph.sources * p.node(), 1)),
        dst(Make(device, p.type, p.graph.destinations * p.node(), 2)),
        edge(Make(device, p.type, p.graph.edges() * p.edge(), 3)),
        weights(Make(device, p.type, p.weights(), 4)),
        mask(MakeMask(device, p.graph.edges() * p.heads)) {}

  AttentionData<Bounded> Data() const {
    return {Exact(src.values()), Exact(dst.values()), Exact(edge.values()), Exact(weights.values()),
            Exact(mask.values())};
  }
  std::string CheckUnchanged() const {
    return graph.CheckUnchanged() + src.CheckUnchanged() + dst.CheckUnchanged() +
           edge.CheckUnchanged() + weights.CheckUnchanged() + mask.CheckUnchanged();
  }
  static Tensor Make(Device& device, cudnnDataType_t type, int64_t count, uint64_t seed) {
    const std::vector<double> values = Numbers(seed, count);
    return {device, type, {count}, &values};
  }
  // A quarter is dropped, the rest scaled.
  static Tensor MakeMask(Device& device, int64_t count) {
    std::vector<double> values = Numbers(9, count, 1);
    for (double& v : values) v = v == 2 ? 0 : 1.25;
    return {device, CUDNN_DATA_FLOAT, {count}, &values};
  }

  DeviceCsc graph;
  Tensor src, dst, edge, weights, mask;
};

class GraphAttentionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_NE(device_, nullptr) << error;
    library_ = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  static void TearDownTestSuite() { device_.reset(); }
  static cudaStream_t stream() { return static_cast<cudaStream_t>(device_->stream()); }

  static cudnnGnnMhaParams_t Params(const Problem& p) {
    return {p.activation, p.alpha, p.heads, p.concatenates};
  }

  static cudnnStatus_t Forward(const Problem& p, const Operands& o, void* y, void* scores,
                               void* activated) {
    LegacyClient client(library_);
    const cudnnGnnMhaParams_t params = Params(p);
    const void* const edge = p.edge_head > 0 ? o.edge.data() : nullptr;
    const auto* const mask = static_cast<const float*>(p.has_mask ? o.mask.data() : nullptr);
    if (p.is_v2)
      return KILN_CALL(client, cudnnGnnMhaGatV2Forward, stream(), o.graph.get(), o.src.data(),
                       o.dst.data(), edge, o.weights.data(), mask, y, scores, activated, p.node(),
                       &params, p.type);
    return KILN_CALL(client, cudnnGnnMhaGatForward, stream(), o.graph.get(), o.src.data(),
                     o.dst.data(), edge, o.weights.data(), mask, y, scores, p.node(), p.edge(),
                     &params, p.type);
  }

  struct Saved {
    const void *dy, *scores, *activated, *attention;
  };
  struct Results {
    void *src, *dst, *edge, *weights, *scores, *space, *weight_space;
  };
  static cudnnStatus_t Backward(const Problem& p, const Operands& o, const Saved& saved,
                                const Results& r) {
    LegacyClient client(library_);
    const cudnnGnnMhaParams_t params = Params(p);
    const void* const edge = p.edge_head > 0 ? o.edge.data() : nullptr;
    const auto* const mask = static_cast<const float*>(p.has_mask ? o.mask.data() : nullptr);
    const auto* const attention = static_cast<const float*>(saved.attention);
    if (p.is_v2)
      return KILN_CALL(client, cudnnGnnMhaGatV2Backward, stream(), o.graph.get(), saved.dy,
                       o.src.data(), o.dst.data(), edge, o.weights.data(), saved.scores,
                       saved.activated, mask, attention, r.src, r.dst, r.edge, r.weights, r.scores,
                       r.space, r.weight_space, p.node(), &params, p.type, p.rows_gradient);
    return KILN_CALL(client, cudnnGnnMhaGatBackward, stream(), o.graph.get(), saved.dy,
                     o.src.data(), o.dst.data(), edge, o.weights.data(), saved.scores, mask,
                     attention, r.src, r.dst, r.edge, r.weights, r.scores, r.space, r.weight_space,
                     p.node(), p.edge(), &params, p.type, p.rows_gradient, p.weights_gradient);
  }

  static Tensor Poison(cudnnDataType_t type, int64_t count) { return {*device_, type, {count}}; }

  static std::vector<Value> Both(const std::vector<Bounded>& first,
                                 const std::vector<Bounded>& second) {
    std::vector<Value> both = Expected(first);
    const std::vector<Value> more = Expected(second);
    both.insert(both.end(), more.begin(), more.end());
    return both;
  }

  static void TestForward(const Problem& p) {
    const Operands o(*device_, p);
    const int64_t edges = p.graph.edges();
    const Tensor y = Poison(p.type, p.graph.destinations * p.result()),
                 scores = Poison(CUDNN_DATA_FLOAT, 2 * edges * p.heads),
                 activated = Poison(p.type, edges * p.node());
    ASSERT_EQ(Forward(p, o, y.data(), scores.data(), activated.data()), CUDNN_STATUS_SUCCESS)
        << p.Text() << ": " << WordsOf(library_);
    EXPECT_EQ(device_->Synchronize(), "");
    const AttentionData<Bounded> data = o.Data();
    AttentionScores<Bounded> s;
    const double roundoff = oracle::UnitRoundoff(ElementOf(p.type));
    const std::vector<Bounded> expected = AttentionOracle<Bounded>(p, data, roundoff).Forward(s);
    EXPECT_EQ(y.Check(Expected(expected)), "") << "y of " << p.Text();
    EXPECT_EQ(scores.Check(Both(s.logits, s.shares)), "") << "scores of " << p.Text();
    EXPECT_EQ(p.is_v2 ? activated.Check(Expected(s.activated)) : activated.CheckUnchanged(), "")
        << "actScores of " << p.Text();
    EXPECT_EQ(o.CheckUnchanged(), "") << p.Text();
  }

  // Tensors that forward saves are the oracle's, rounded to memory.
  static void TestBackward(const Problem& p) {
    const Operands o(*device_, p);
    const Csc& g = p.graph;
    const int64_t edges = g.edges();
    const AttentionData<double> exact = {o.src.values(), o.dst.values(), o.edge.values(),
                                         o.weights.values(), o.mask.values()};
    AttentionScores<double> s;
    AttentionOracle<double>(p, exact).Forward(s);
    std::vector<double> both = s.logits;
    both.insert(both.end(), s.shares.begin(), s.shares.end());
    const Tensor scores(*device_, CUDNN_DATA_FLOAT, {2 * edges * p.heads}, &both),
        activated(*device_, p.type, {std::ssize(s.activated)}, &s.activated),
        dy = Operands::Make(*device_, p.type, g.destinations * p.result(), 21),
        attention = Operands::Make(*device_, CUDNN_DATA_FLOAT, edges * p.heads, 22);
    const int64_t rows = p.shares_gradient ? std::max(g.sources, g.destinations) : g.sources;
    const Tensor dsrc = Poison(p.rows_gradient, rows * p.node()),
                 ddst = Poison(p.rows_gradient, g.destinations * p.node()),
                 dedge = Poison(p.rows_gradient, edges * p.edge()),
                 dweights = Poison(p.weights_gradient, p.weights()),
                 dscores = Poison(CUDNN_DATA_FLOAT, 2 * edges * p.heads),
                 space = Poison(p.rows_gradient, edges * p.node()),
                 weight_space = Poison(p.weights_gradient, g.destinations * p.weights());
    ASSERT_EQ(Backward(p, o,
                       {dy.data(), scores.data(), activated.data(),
                        p.has_attention ? attention.data() : nullptr},
                       {dsrc.data(), p.shares_gradient ? dsrc.data() : ddst.data(),
                        p.edge_head > 0 ? dedge.data() : nullptr, dweights.data(), dscores.data(),
                        p.is_reversed ? space.data() : nullptr,
                        p.is_reversed ? weight_space.data() : nullptr}),
              CUDNN_STATUS_SUCCESS)
        << p.Text() << ": " << WordsOf(library_);
    EXPECT_EQ(device_->Synchronize(), "");
    const std::vector<double> stored = scores.values();
    const auto middle = stored.begin() + edges * p.heads;
    const AttentionScores<Bounded> saved = {
        Exact({stored.begin(), middle}), Exact({middle, stored.end()}), Exact(activated.values())};
    const AttentionData<Bounded> data = o.Data();
    AttentionGradient<Bounded> d = AttentionOracle<Bounded>(p, data).Backward(
        saved, Exact(dy.values()), Exact(attention.values()));
    if (p.shares_gradient) {
      d.src.resize(static_cast<size_t>(rows * p.node()));
      for (size_t i = 0; i < d.dst.size(); ++i) d.src[i] = d.src[i] + d.dst[i];
    }
    EXPECT_EQ(dsrc.Check(Expected(d.src)), "") << "gradSrc of " << p.Text();
    EXPECT_EQ(p.shares_gradient ? ddst.CheckUnchanged() : ddst.Check(Expected(d.dst)), "")
        << "gradDst of " << p.Text();
    EXPECT_EQ(dedge.Check(Expected(d.edge)), "") << "gradEdge of " << p.Text();
    EXPECT_EQ(dweights.Check(Expected(d.weights)), "") << "gradWeights of " << p.Text();
    EXPECT_EQ(dscores.Check(Both(d.logits, d.shares)), "") << "gradSmScores of " << p.Text();
    EXPECT_EQ(o.CheckUnchanged() + dy.CheckUnchanged() + scores.CheckUnchanged(), "") << p.Text();
  }

  inline static std::unique_ptr<Device> device_;
  inline static void* library_ = nullptr;
};

constexpr cudnnDataType_t kTypes[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};

// Both kinds with every activation; shapes, types and what is optional take turns.
std::vector<Problem> Problems() {
  struct Shape {
    int heads, head, edge_head;
  };
  constexpr Shape kShapes[] = {{1, 8, 0}, {2, 4, 3}, {3, 5, 5}, {4, 8, 8}, {2, 1, 1}, {1, 33, 2}};
  std::vector<Problem> problems;
  for (int i = 0; i < 42; ++i) {
    const Shape& s = kShapes[static_cast<size_t>(i + i / 6) % std::size(kShapes)];
    Problem p = {.graph = RandomCsc(static_cast<uint64_t>(i), i % 3 == 0 ? 13 : 9, 9,
                                    i % 5 == 0 ? 30 : 5, i / 2 % 2 == 1, i / 4 % 2 == 1),
                 .is_v2 = i % 2 == 1,
                 .heads = s.heads,
                 .head = s.head,
                 .edge_head = i % 2 == 1 && s.edge_head > 0 ? s.head : s.edge_head,
                 .activation = static_cast<cudnnGnnActivationOp_t>(i / 2 % 7),
                 .concatenates = i % 3 != 1,
                 .has_mask = i % 4 >= 2,
                 .has_attention = i % 5 >= 3,
                 .is_reversed = i / 3 % 2 == 1,
                 .shares_gradient = i % 6 == 2};
    p.type = kTypes[(i + i / 14) % 3];
    p.rows_gradient = i / 2 % 2 == 0 ? p.type : CUDNN_DATA_FLOAT;
    p.weights_gradient = p.is_v2 || i / 4 % 2 == 0 ? p.rows_gradient : CUDNN_DATA_FLOAT;
    problems.push_back(std::move(p));
  }
  return problems;
}

TEST_F(GraphAttentionTest, ForwardIsWhatTheLoopsSay) {
  for (const Problem& p : Problems()) TestForward(p);
}

TEST_F(GraphAttentionTest, BackwardIsWhatTheLoopsSay) {
  for (const Problem& p : Problems()) TestBackward(p);
}

TEST_F(GraphAttentionTest, FewProblemsOfEachType) {
  for (const bool is_v2 : {false, true}) {
    for (const cudnnDataType_t type : kTypes) {
      const bool is_reversed = type != CUDNN_DATA_HALF;
      const Problem p = {.graph = RandomCsc(4, 7, 5, 6, is_reversed, is_reversed),
                         .is_v2 = is_v2,
                         .heads = 2,
                         .head = 8,
                         .edge_head = 8,
                         .has_mask = is_reversed,
                         .is_reversed = is_reversed,
                         .type = type,
                         .rows_gradient = type,
                         .weights_gradient = type};
      TestForward(p);
      TestBackward(p);
    }
  }
}

TEST_F(GraphAttentionTest, WithoutEdgesThereAreZeroes) {
  for (const bool is_v2 : {false, true}) {
    const Problem p = {.graph = RandomCsc(1, 4, 3, 0, false, false),
                       .is_v2 = is_v2,
                       .heads = 2,
                       .head = 3,
                       .edge_head = 3};
    TestForward(p);
    TestBackward(p);
    Problem nobody = p;
    nobody.graph = {.sources = 4, .destinations = 0, .offsets = {0}};
    TestForward(nobody);
    TestBackward(nobody);
  }
}

// Logits far from 0, which a softmax without a maximum would lose.
TEST_F(GraphAttentionTest, LargeLogitsKeepTheirShares) {
  Problem p = {.graph = RandomCsc(7, 8, 5, 6, false, false),
               .heads = 1,
               .head = 4,
               .activation = CUDNN_GNN_ACT_SCALAR,
               .alpha = 100};
  TestForward(p);
  p.is_v2 = true;
  TestForward(p);
}

// A loss of random factors of all results, differentiated by stepping each operand.
TEST(GraphAttentionOracle, GradientIsTheDerivative) {
  constexpr double kStep = 1e-6;
  for (int i = 0; i < 28; ++i) {
    const Problem p = {.graph = RandomCsc(static_cast<uint64_t>(i), 5, 4, 4, i % 3 == 0, false),
                       .is_v2 = i % 2 == 1,
                       .heads = 2,
                       .head = 3,
                       .edge_head = i % 2 == 1 ? 3 : 2,
                       .activation = static_cast<cudnnGnnActivationOp_t>(i / 2 % 7),
                       .concatenates = i % 4 < 2,
                       .has_mask = i % 3 == 1,
                       .has_attention = true};
    const Csc& g = p.graph;
    std::mt19937_64 random(static_cast<uint64_t>(i));
    std::uniform_real_distribution<double> uniform(-1, 1);
    const auto numbers = [&](int64_t count) {
      std::vector<double> values(static_cast<size_t>(count));
      for (double& v : values) v = uniform(random);
      return values;
    };
    AttentionData<double> x = {numbers(g.sources * p.node()), numbers(g.destinations * p.node()),
                               numbers(g.edges() * p.edge()), numbers(p.weights()),
                               numbers(g.edges() * p.heads)};
    const std::vector<double> dy = numbers(g.destinations * p.result()),
                              attention = numbers(g.edges() * p.heads);
    AttentionScores<double> s;
    const auto loss = [&] {
      const std::vector<double> y = AttentionOracle<double>(p, x).Forward(s);
      double sum = 0;
      for (size_t k = 0; k < y.size(); ++k) sum += dy[k] * y[k];
      for (size_t k = 0; k < attention.size(); ++k)
        sum += attention[k] * s.shares[k] * (p.has_mask ? x.mask[k] : 1);
      return sum;
    };
    loss();
    const AttentionGradient<double> d = AttentionOracle<double>(p, x).Backward(s, dy, attention);
    const auto check = [&](std::vector<double>& operand, const std::vector<double>& gradient,
                           const char* name) {
      ASSERT_EQ(operand.size(), gradient.size()) << name;
      for (size_t k = 0; k < operand.size(); ++k) {
        const double at = operand[k];
        operand[k] = at + kStep;
        const double above = loss();
        operand[k] = at - kStep;
        const double below = loss();
        operand[k] = at;
        EXPECT_NEAR(gradient[k], (above - below) / (2 * kStep), 1e-6)
            << name << " " << k << " of " << p.Text();
      }
    };
    check(x.src, d.src, "src");
    check(x.dst, d.dst, "dst");
    check(x.edge, d.edge, "edge");
    check(x.weights, d.weights, "weights");
  }
}

TEST_F(GraphAttentionTest, MisuseIsRefusedInWords) {
  struct Row {
    void (*spoil)(Problem&);
    const char* words;
  };
  const Row rows[] = {
      {[](Problem& p) { p.heads = 0; }, "numHeads is 0"},
      {[](Problem& p) {
         p.heads = 4;
         p.head = 0;
       },
       "dimNode is 0"},
      {[](Problem& p) { p.type = CUDNN_DATA_DOUBLE; }, "dataType is 1"},
      {[](Problem& p) { p.activation = static_cast<cudnnGnnActivationOp_t>(7); },
       "cudnnGnnActivationOp_t"},
      {[](Problem& p) { p.alpha = -0.5f; }, "activationAlpha is -0.5"},
  };
  for (const bool is_v2 : {false, true}) {
    const Problem good = {.graph = RandomCsc(2, 5, 4, 3, false, false),
                          .is_v2 = is_v2,
                          .heads = 2,
                          .head = 3,
                          .edge_head = 3};
    const Operands o(*device_, good);
    const Tensor out = Poison(CUDNN_DATA_FLOAT, 400);
    const auto backward = [&](const Problem& p, void* space, void* weight_space) {
      return Backward(
          p, o, {out.data(), out.data(), out.data(), nullptr},
          {out.data(), out.data(), out.data(), out.data(), out.data(), space, weight_space});
    };
    for (const Row& row : rows) {
      Problem p = good;
      row.spoil(p);
      EXPECT_EQ(Forward(p, o, out.data(), out.data(), out.data()), CUDNN_STATUS_BAD_PARAM);
      EXPECT_NE(WordsOf(library_).find(row.words), std::string::npos) << row.words;
      EXPECT_EQ(backward(p, nullptr, nullptr), CUDNN_STATUS_BAD_PARAM);
      EXPECT_NE(WordsOf(library_).find(row.words), std::string::npos) << row.words;
    }
    EXPECT_EQ(backward(good, out.data(), nullptr), CUDNN_STATUS_BAD_PARAM);
    EXPECT_NE(WordsOf(library_).find("both there or neither"), std::string::npos);
    EXPECT_EQ(backward(good, out.data(), out.data()), CUDNN_STATUS_BAD_PARAM);
    EXPECT_NE(WordsOf(library_).find("cscRevOffsets"), std::string::npos);
    Problem p = good;
    p.rows_gradient = p.weights_gradient = CUDNN_DATA_HALF;
    EXPECT_EQ(backward(p, nullptr, nullptr), CUDNN_STATUS_BAD_PARAM);
    EXPECT_NE(WordsOf(library_).find("a gradient has type 2"), std::string::npos);
    EXPECT_EQ(Forward(good, o, nullptr, out.data(), out.data()), CUDNN_STATUS_BAD_PARAM);
    EXPECT_NE(WordsOf(library_).find("output is NULL"), std::string::npos);
    EXPECT_EQ(out.CheckUnchanged() + o.CheckUnchanged(), "");
  }
}

}  // namespace
}  // namespace kiln::testing
