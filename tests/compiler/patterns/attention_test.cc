// Attention is recognised by what it computes: every spelling of it that clients send, with
// operands in any order, and nothing that only looks like it.
#include "compiler/patterns/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>

#include "compiler/compile.h"
#include "compiler/patterns/attention_grad.h"
#include "ir/graph/builder.h"
#include "ir/graph/import_recorded.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::GraphOp;
using graph::TensorId;
using M = graph::PointwiseMode;
using R = graph::ReductionMode;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Graph Primitive(const Graph& g) {
  Graph primitive;
  const Result<CompiledPlan> plan =
      Compile(g, *TargetFromArch("sm_90a"), {}, [&](std::string_view pass, const Module& module) {
        if (pass == "simplify") primitive = module.graph;
      });
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return primitive;
}

enum class Normalise : uint8_t { kDivide, kMultiply, kLogSumExp };

// One spelling of attention.
struct Spelling {
  int64_t heads = 4, key_heads = 2, s_q = 5, s_kv = 7, depth = 8;
  bool scale_first = false, descales = false, causal = false, window = false, bias = false,
       padding = false;
  bool stats = false, cast = false, gate = false, dropout = false, sink = false;
  Normalise normalise = Normalise::kDivide;
  // Forms that must not be taken:
  bool reads_weights = false, other_max = false, axis_of_queries = false;
  bool reads_largest = false, sink_in_max_alone = false;
};

class Writer {
 public:
  explicit Writer(const Spelling& s) : s_(s), b_("attention") {}

  Graph Write() {
    const TensorId q = b_.Input("q", DType::kBF16, {2, s_.heads, s_.s_q, s_.depth});
    const TensorId k =
        b_.Input("k", DType::kBF16, {2, s_.key_heads, s_.depth, s_.s_kv},
                 {s_.key_heads * s_.depth * s_.s_kv, s_.depth * s_.s_kv, 1, s_.depth});
    const TensorId v = b_.Input("v", DType::kBF16, {2, s_.key_heads, s_.s_kv, s_.depth});
    TensorId weights = Softmax(Masked(Biased(Product(q, k))));
    if (s_.dropout) {
      const TensorId keep = b_.Input("keep", DType::kF32, {2, s_.heads, s_.s_q, s_.s_kv});
      weights = Two(M::kMul, Number(1.25), Two(M::kMul, keep, weights));
    }
    weights = b_.Pointwise(M::kIdentity, {weights}, {.dtype = DType::kBF16});
    TensorId o = b_.Apply(GraphOp::kMatmul, {weights, v}, graph::MatmulAttrs{});
    if (s_.gate) o = Two(M::kMul, b_.Input("gate", DType::kBF16, b_.graph()[o].dims), o);
    b_.Output(o, "o", DType::kBF16);
    if (s_.reads_weights) b_.Output(One(M::kNeg, weights), "p", DType::kF32);
    const Result<Graph> g = b_.Finish();
    EXPECT_TRUE(g.ok()) << g.status().message();
    return *g;
  }

 private:
  TensorId One(M mode, TensorId x) { return b_.Pointwise(mode, {x}); }
  TensorId Two(M mode, TensorId x, TensorId y) { return b_.Pointwise(mode, {x, y}); }
  TensorId Number(double value) { return b_.Constant("number", DType::kF32, value, 4); }
  TensorId Cast(TensorId x) { return s_.cast ? One(M::kIdentity, x) : x; }

  TensorId Product(TensorId q, TensorId k) {
    const TensorId product = b_.Apply(GraphOp::kMatmul, {q, k}, graph::MatmulAttrs{});
    const TensorId scale = b_.ByValue("scale", DType::kF32, 4);
    const TensorId scaled =
        s_.scale_first ? Two(M::kMul, scale, product) : Two(M::kMul, product, scale);
    if (!s_.descales) return scaled;
    return Two(M::kMul, b_.Input("descale", DType::kF32, {1, 1, 1, 1}), scaled);
  }
  TensorId Biased(TensorId x) {
    if (!s_.bias) return x;
    return Two(M::kAdd, b_.Input("bias", DType::kBF16, {1, s_.heads, s_.s_q, s_.s_kv}), x);
  }
  TensorId Places(TensorId x, int64_t axis) {
    return b_.Apply(GraphOp::kPointwise, {x},
                    graph::PointwiseAttrs{.mode = M::kGenIndex, .axis = axis},
                    {.dtype = DType::kI32});
  }
  TensorId Select(TensorId condition, TensorId x) {
    return b_.Pointwise(M::kBinarySelect, {x, Number(-kInfinity), condition});
  }
  TensorId Masked(TensorId x) {
    const TensorId row = Places(x, 2), column = Places(x, 3);
    if (s_.padding) {
      const TensorId q_end = b_.Input("seq_q", DType::kI32, {2, 1, 1, 1});
      const TensorId kv_end = b_.Input("seq_kv", DType::kI32, {2, 1, 1, 1});
      x = Select(Two(M::kLogicalAnd, Two(M::kCmpLt, row, q_end), Two(M::kCmpLt, column, kv_end)),
                 x);
    }
    if (s_.causal) x = Select(Two(M::kCmpGe, row, column), x);
    if (s_.window) x = Select(Two(M::kCmpGt, Two(M::kAdd, column, Number(3)), row), x);
    return x;
  }

  TensorId Softmax(TensorId x) {
    Dims rows = b_.graph()[x].dims;
    rows[s_.axis_of_queries ? 2 : 3] = 1;
    TensorId max = b_.Reduction(R::kMax, s_.other_max ? One(M::kAbs, x) : x, rows);
    if (s_.reads_largest) b_.Output(One(M::kNeg, max), "largest", DType::kF32);
    const TensorId sink =
        s_.sink ? b_.Input("sink", DType::kF32, {1, s_.heads, 1, 1}) : TensorId{-1};
    if (s_.sink) max = Two(M::kMax, max, sink);
    const TensorId exp = One(M::kExp, Cast(Two(M::kSub, x, max)));
    TensorId sum = b_.Reduction(R::kAdd, exp, rows);
    if (s_.sink && !s_.sink_in_max_alone)
      sum = Two(M::kAdd, sum, One(M::kExp, Two(M::kSub, sink, max)));
    const bool by_log = s_.normalise == Normalise::kLogSumExp;
    TensorId stats = -1;
    if (s_.stats || by_log) stats = Two(M::kAdd, One(M::kLog, sum), max);
    if (s_.stats) b_.Output(stats, "stats", DType::kF32);
    if (by_log) return One(M::kExp, Two(M::kSub, x, stats));
    if (s_.normalise == Normalise::kDivide) return Two(M::kDiv, exp, sum);
    return Two(M::kMul, One(M::kReciprocal, sum), exp);
  }

  const Spelling s_;
  GraphBuilder b_;
};

std::vector<Attention> Found(const Spelling& s, Graph* primitive = nullptr) {
  Graph g = Primitive(Writer(s).Write());
  std::vector<Attention> found = FindAttention(g);
  if (primitive != nullptr) *primitive = std::move(g);
  return found;
}

TEST(AttentionTest, EverySpellingIsFoundWhole) {
  for (int bits = 0; bits < 512; ++bits) {
    const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
    for (const Normalise normalise :
         {Normalise::kDivide, Normalise::kMultiply, Normalise::kLogSumExp}) {
      if (bits % 7 != static_cast<int>(normalise)) continue;  // a sample of all combinations
      const Spelling s{.scale_first = bit(0),
                       .causal = bit(1),
                       .window = bit(2),
                       .bias = bit(3),
                       .padding = bit(4),
                       .stats = bit(5),
                       .cast = bit(6),
                       .gate = bit(7),
                       .dropout = bit(8),
                       .normalise = normalise};
      Graph g;
      const std::vector<Attention> found = Found(s, &g);
      ASSERT_EQ(found.size(), 1u) << bits << "\n" << graph::Print(g);
      const Attention& a = found[0];
      EXPECT_EQ(g[a.q].name, "q");
      EXPECT_EQ(g[a.k].name, "k");
      EXPECT_EQ(g[a.v].name, "v");
      EXPECT_EQ(g[a.result].name, "o") << bits;
      ASSERT_EQ(a.rows.size(), s.stats ? 1u : 0u) << bits;
      for (const TensorId row : a.rows) EXPECT_EQ(g[row].name, "stats");
      const size_t masks = MasksOf(g, a).size();
      EXPECT_EQ(masks, static_cast<size_t>(s.padding) + s.causal + s.window) << bits;
      // A node left outside floats: it follows from no product.
      for (size_t n = 0; n < g.nodes.size(); ++n) {
        const bool floats = Has(g.nodes[n], graph::kElementwise);
        EXPECT_TRUE(a.Contains(static_cast<graph::NodeId>(n)) || floats);
      }
    }
  }
}

// A sink joins both reductions, and then nobody reads these before it.
TEST(AttentionTest, SinksArePartOfIt) {
  for (const bool padding : {false, true}) {
    Graph g;
    const std::vector<Attention> found =
        Found({.padding = padding, .stats = true, .sink = true}, &g);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_GE(found[0].sink, 0);
    EXPECT_EQ(found[0].rows.size(), 1U);
    EXPECT_NE(g.nodes[graph::Producers(g)[found[0].max]].op, GraphOp::kReduce);
    EXPECT_NE(g.nodes[graph::Producers(g)[found[0].sum]].op, GraphOp::kReduce);
  }
  EXPECT_TRUE(Found({.sink = true, .sink_in_max_alone = true}).empty());
  EXPECT_TRUE(Found({.sink = true, .reads_largest = true}).empty());
  EXPECT_EQ(Found({.reads_largest = true}).size(), 1U);
}

TEST(AttentionTest, OthersAreLeftAlone) {
  EXPECT_TRUE(Found({.reads_weights = true}).empty()) << "the weights are a result";
  EXPECT_TRUE(Found({.other_max = true}).empty()) << "the maximum is that of other values";
  EXPECT_TRUE(Found({.axis_of_queries = true}).empty()) << "sums run along queries";
  EXPECT_TRUE(Found({.s_kv = 1}).empty()) << "there is one key";
  EXPECT_FALSE(Found({.s_q = 1}).empty());
}

TEST(AttentionTest, BoundsOfMasks) {
  Graph g;
  const auto found = Found({.causal = true, .window = true, .padding = true}, &g);
  ASSERT_EQ(found.size(), 1u);
  const std::vector<ScoreMask> masks = MasksOf(g, found[0]);
  ASSERT_EQ(masks.size(), 3u);
  const auto window = BoundsOf(g, masks[0]), causal = BoundsOf(g, masks[1]),
             padding = BoundsOf(g, masks[2]);
  ASSERT_EQ(window.size(), 1u);  // column + 3 - row > 0
  EXPECT_EQ(window[0].compare, ScalarOp::kGt);
  EXPECT_EQ(window[0].column, 1);
  EXPECT_EQ(window[0].row, -1);
  ASSERT_EQ(window[0].offsets.size(), 1u);
  EXPECT_EQ(window[0].offsets[0].sign, 1);
  ASSERT_EQ(causal.size(), 1u);  // row - column >= 0
  EXPECT_EQ(causal[0].compare, ScalarOp::kGe);
  EXPECT_EQ(causal[0].column, -1);
  EXPECT_EQ(causal[0].row, 1);
  EXPECT_TRUE(causal[0].offsets.empty());
  ASSERT_EQ(padding.size(), 2u);  // row - seq_q < 0, column - seq_kv < 0
  EXPECT_EQ(padding[0].row + padding[1].row, 1);
  EXPECT_EQ(padding[0].column + padding[1].column, 1);
  for (const IndexBound& bound : padding) EXPECT_EQ(bound.offsets.at(0).sign, -1);
}

TEST(AttentionTest, RecordedGraphs) {
  std::ifstream file("tests/data/recorded_graphs.jsonl");
  ASSERT_TRUE(file.good());
  // Lines, and how many values of rows each gives out: statistics, or the maximum and the sum.
  const std::map<int, size_t> forward = {{1, 1},   {5, 1},   {14, 2}, {15, 2},
                                         {112, 1}, {113, 1}, {114, 2}};
  std::map<int, size_t> seen;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const Result<Graph> g = graph::ImportRecorded(line);
    if (!g.ok()) continue;
    for (const Attention& a : FindAttention(Primitive(*g))) seen[number] = a.rows.size();
  }
  for (const auto& [line_number, rows] : forward) {
    ASSERT_TRUE(seen.contains(line_number)) << line_number;
    EXPECT_EQ(seen[line_number], rows) << line_number;
  }
}

TEST(AttentionTest, RecordedGradients) {
  std::ifstream file("tests/data/recorded_graphs.jsonl");
  ASSERT_TRUE(file.good());
  // Lines with a gradient that has nothing but masks between its products; 118 shares heads.
  const std::map<int, size_t> masks = {{115, 0}, {116, 1}, {118, 1}, {120, 1}};
  std::map<int, size_t> seen;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const Result<Graph> g = graph::ImportRecorded(line);
    if (!g.ok()) continue;
    const Graph primitive = Primitive(*g);
    for (const AttentionGrad& a : FindAttentionGrad(primitive)) {
      seen[number] = a.masks.size();
      if (!masks.contains(number)) continue;
      EXPECT_TRUE(FactorOf(primitive, a).has_value()) << number;
      EXPECT_EQ(a.scales.size(), 1u) << number;
    }
  }
  // With more between the products: dropout, a bias, a function of scores.
  for (const int line_number : {4, 8, 13, 102, 117}) EXPECT_TRUE(seen.contains(line_number));
  for (const auto& [line_number, count] : masks) {
    ASSERT_TRUE(seen.contains(line_number)) << line_number;
    EXPECT_EQ(seen[line_number], count) << line_number;
  }
}

// The operation's own factor is a number of one dim, a client's a tensor of four.
TEST(AttentionTest, GradientsOfTheUnifiedOperation) {
  for (const char* scale : {"", " scale=0.25", " scale=0.25 right=0"}) {
    const Result<Graph> g = graph::Parse(fmt::format(R"(graph g {{
  tensor %q uid=1 bf16 [2,4,70,64] strides=[17920,4480,64,1]
  tensor %k uid=2 bf16 [2,4,90,64] strides=[23040,5760,64,1]
  tensor %v uid=3 bf16 [2,4,90,64] strides=[23040,5760,64,1]
  tensor %y uid=4 bf16 [2,4,70,64] strides=[17920,4480,64,1]
  tensor %dy uid=5 bf16 [2,4,70,64] strides=[17920,4480,64,1]
  tensor %stats uid=6 f32 [2,4,70,1] strides=[280,70,1,1]
  tensor %dq uid=7 bf16 [2,4,70,64] strides=[17920,4480,64,1]
  tensor %dk uid=8 bf16 [2,4,90,64] strides=[23040,5760,64,1]
  tensor %dv uid=9 bf16 [2,4,90,64] strides=[23040,5760,64,1]
  %dq, %dk, %dv = sdpa_bwd(%q, %k, %v, %y, %dy, %stats) compute=f32{}
}})",
                                                     scale));
    ASSERT_TRUE(g.ok()) << g.status().message();
    const std::vector<AttentionGrad> found = FindAttentionGrad(Primitive(*g));
    ASSERT_EQ(found.size(), 1u) << scale;
    EXPECT_EQ(found[0].scales.size(), *scale == '\0' ? 0u : 1u);
  }
}

TEST(AttentionTest, FactorOfAllScores) {
  const auto factor_of = [](const Spelling& spelling) {
    const Graph g = Primitive(Writer(spelling).Write());
    const std::vector<Attention> found = FindAttention(g);
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? std::nullopt : FactorOf(g, found[0]);
  };
  for (const bool first : {false, true}) {
    const auto factor = factor_of({.scale_first = first, .causal = true, .window = true});
    ASSERT_TRUE(factor.has_value());
    EXPECT_EQ(factor->factors.size(), 1u);
  }
  // Operands of 8 bits have one factor each.
  const auto several = factor_of({.descales = true, .causal = true});
  ASSERT_TRUE(several.has_value());
  EXPECT_EQ(several->factors.size(), 2u);
  EXPECT_FALSE(factor_of({.bias = true}).has_value());  // added after it
}

Graph CausalGraph(int64_t images, int64_t heads, int64_t length, int64_t depth) {
  GraphBuilder b("attention");
  const Dims dims = {images, heads, length, depth};
  const TensorId q = b.Input("q", DType::kBF16, dims), v = b.Input("v", DType::kBF16, dims);
  const TensorId k = b.Input("k", DType::kBF16, {images, heads, depth, length},
                             {heads * length * depth, length * depth, 1, depth});
  const TensorId s = b.Apply(GraphOp::kMatmul, {q, k}, graph::MatmulAttrs{});
  const auto places = [&](int64_t axis) {
    return b.Apply(GraphOp::kPointwise, {s},
                   graph::PointwiseAttrs{.mode = M::kGenIndex, .axis = axis},
                   {.dtype = DType::kI32});
  };
  const TensorId none = b.Constant("none", DType::kF32, -kInfinity, 4);
  const TensorId masked =
      b.Pointwise(M::kBinarySelect, {s, none, b.Pointwise(M::kCmpGe, {places(2), places(3)})});
  const auto reduced = [&](TensorId x, R mode) {
    return b.Reduction(mode, x, {images, heads, length, 1});
  };
  const TensorId exp =
      b.Pointwise(M::kExp, {b.Pointwise(M::kSub, {masked, reduced(masked, R::kMax)})});
  const TensorId weights =
      b.Pointwise(M::kDiv, {exp, reduced(exp, R::kAdd)}, {.dtype = DType::kBF16});
  b.Output(b.Apply(GraphOp::kMatmul, {weights, v}, graph::MatmulAttrs{}), "o", DType::kBF16);
  const Result<Graph> g = b.Finish();
  EXPECT_TRUE(g.ok()) << g.status().message();
  return *g;
}

// The numbers that attention_sm90 gives its only kernel, by name, and "blocks".
std::map<std::string, int64_t> NumbersOf(const Graph& g) {
  std::map<std::string, int64_t> numbers;
  const auto take = [&](std::string_view pass, const Module& module) {
    if (pass != "emit") return;
    ASSERT_EQ(module.groups.size(), 1u);
    const tile::Kernel& kernel = module.groups[0].lowered.kernels[0];
    const Launch& launch = module.program.launches[0];
    numbers["blocks"] = launch.grid[0];
    for (size_t i = 0; i < launch.args.size(); ++i)
      numbers[kernel.params[i].name] = static_cast<int64_t>(launch.args[i].bits);
  };
  const auto plan = Compile(g, *TargetFromArch("sm_90a"), {}, take);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(numbers.contains("section") && numbers.contains("query_tiles"));
  return numbers;
}

// The longest share of a causal attention's tiles by the mean one, as attention_sm90's blocks take
// them: in sections of heads, the last rows first, back and forth.
double LongestShare(int64_t images, int64_t heads, int64_t length, int64_t depth) {
  std::map<std::string, int64_t> shape = NumbersOf(CausalGraph(images, heads, length, depth));
  const auto blocks = static_cast<size_t>(shape["blocks"]);
  std::vector<double> shares(blocks);
  double sum = 0;
  size_t tile = 0;
  for (int64_t head = 0; head < images * heads; head += shape["section"])
    for (int64_t row = shape["query_tiles"]; row > 0; --row)
      for (int64_t i = head; i < std::min(head + shape["section"], images * heads); ++i, ++tile) {
        const bool is_back = tile / blocks % 2 == 1;
        const double work = static_cast<double>(row) + 1;
        shares[is_back ? blocks - 1 - tile % blocks : tile % blocks] += work;
        sum += work;
      }
  return std::ranges::max(shares) / (sum / static_cast<double>(blocks));
}

// Images whose lengths are known to the device alone come in turns, so that no block has those of
// one image.
TEST(AttentionTest, ImagesOfUnequalLengthsComeInTurns) {
  const Spelling plain = {
      .heads = 16, .key_heads = 16, .s_q = 2048, .s_kv = 2048, .depth = 128, .causal = true};
  Spelling padded = plain;
  padded.padding = true;
  EXPECT_FALSE(NumbersOf(Writer(plain).Write()).contains("images"));
  EXPECT_EQ(NumbersOf(Writer(padded).Write())["images"], 2);
}

TEST(AttentionTest, SectionsLeaveSharesAlike) {
  EXPECT_LT(LongestShare(2, 16, 2048, 128), 1.05);  // 1.54 in sections of 24 heads
  EXPECT_LT(LongestShare(4, 8, 4096, 128), 1.05);   // 1.16 of 12
  EXPECT_LT(LongestShare(4, 32, 4096, 128), 1.05);
  EXPECT_LT(LongestShare(5, 8, 2048, 128), 1.10);
  EXPECT_LT(LongestShare(4, 16, 1024, 64), 1.08);  // six tiles of a head
}

}  // namespace
}  // namespace kiln::compiler
