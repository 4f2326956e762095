// The checker of `kiln run` is checked: it accepts what rounding may do, and finds one wrong
// element.
#include "cli/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "ir/graph/builder.h"

namespace kiln::cli {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::PointwiseMode;
using graph::TensorId;
using graph::TensorValues;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Graph SumOf(DType dtype, int64_t length) {
  GraphBuilder b("sum");
  const TensorId x = b.Input("x", dtype, {4, length});
  b.Output(b.Reduction(graph::ReductionMode::kAdd, x, {4, 1}), "y", dtype);
  return *b.Finish();
}

Graph ExpOf(DType dtype) {
  GraphBuilder b("exp");
  b.Output(b.Pointwise(PointwiseMode::kExp, {b.Input("x", dtype, {64})}), "y", dtype);
  return *b.Finish();
}

struct Case {
  Graph graph;
  TensorId output;
  Reference reference;
  std::vector<double> want;
  Comparison With(const std::vector<double>& got) const {
    return Compare(graph, output, reference, got);
  }
};

Case MakeCase(Graph graph, RandomOptions options = {}) {
  const TensorId output = graph::Outputs(graph).front();
  Reference reference = *Interpret(graph, RandomInputs(graph, options), options.seed);
  std::vector<double> want = reference.values.at(output);
  return {std::move(graph), output, std::move(reference), std::move(want)};
}

Graph MatmulOf(DType dtype, int64_t length) {
  GraphBuilder b("matmul");
  const TensorId x = b.Input("x", dtype, {1, 8, length}), y = b.Input("y", dtype, {1, length, 8});
  b.Output(b.Apply(graph::GraphOp::kMatmul, {x, y}, graph::MatmulAttrs{},
                   {.dtype = DType::kF32, .compute = DType::kF32, .dims = {}}),
           "z", DType::kF32);
  return *b.Finish();
}

TEST(RandomInputs, DependOnSeedAndUidAlone) {
  const Graph a = SumOf(DType::kF32, 8), b = SumOf(DType::kF32, 16);
  const auto values = [](const Graph& g, uint64_t seed) {
    return RandomInputs(g, {.seed = seed}).begin()->second;
  };
  EXPECT_EQ(values(a, 1), values(a, 1));
  EXPECT_NE(values(a, 1), values(a, 2));
  EXPECT_EQ(values(a, 1)[31], values(b, 1)[31]);
}

TEST(RandomInputs, StayInRangeAndType) {
  const auto values = RandomInputs(SumOf(DType::kF16, 256), {.seed = 1, .low = 2, .high = 3});
  for (const double v : values.begin()->second) {
    EXPECT_GE(v, 2);
    EXPECT_LE(v, 3);
    EXPECT_EQ(v, RoundTo(DType::kF16, v));
  }
}

// Stride 0, windows that overlap, and dims that meet: an element has what stands at its place.
TEST(RandomInputs, ElementsThatShareAPlaceAreEqual) {
  for (const Dims& strides : {Dims{0, 1}, Dims{8, 0}, Dims{0, 0}, Dims{3, 1}, Dims{1, 1}}) {
    GraphBuilder b("overlap");
    const TensorId x = b.Input("x", DType::kF32, {4, 8}, strides);
    b.Output(b.Pointwise(PointwiseMode::kExp, {x}), "y", DType::kF32);
    const std::vector<double> values = RandomInputs(*b.Finish(), {}).begin()->second;
    std::map<int64_t, double> at_place;
    for (int64_t i = 0; i < 32; ++i) {
      const int64_t place = i / 8 * strides[0] + i % 8 * strides[1];
      const auto [entry, is_new] = at_place.try_emplace(place, values[static_cast<size_t>(i)]);
      EXPECT_EQ(entry->second, values[static_cast<size_t>(i)]) << place;
    }
    std::set<double> distinct;
    for (const auto& [place, value] : at_place) distinct.insert(value);
    EXPECT_EQ(distinct.size(), at_place.size());
  }
}

TEST(Compare, ExactResultsAreRight) {
  const Case c = MakeCase(SumOf(DType::kF32, 100));
  const Comparison comparison = c.With(c.want);
  EXPECT_TRUE(comparison.ok());
  EXPECT_EQ(comparison.error, 0);
}

// A sum in f32 in any order is right; what a wrong kernel gives is not, even in one element of
// many.
TEST(Compare, AllowsRoundingOfSumsAndNoMore) {
  for (const int64_t length : {16, 1024, 65536}) {
    const Case c = MakeCase(SumOf(DType::kF32, length));
    const std::vector<double>& x = c.reference.values.at(graph::Inputs(c.graph).front());
    std::vector<double> forward = c.want, missing = c.want;
    for (size_t row = 0; row < 4; ++row) {
      float sum = 0;
      for (int64_t i = 0; i < length; ++i) sum += static_cast<float>(x[row * length + i]);
      forward[row] = sum;
    }
    EXPECT_TRUE(c.With(forward).ok()) << length;
    missing[2] -= x[2 * length + 5];
    const Comparison comparison = c.With(missing);
    EXPECT_EQ(comparison.wrong, 1) << length;
    EXPECT_EQ(comparison.element, 2);
    EXPECT_EQ(ElementText(c.graph[c.output], comparison.element), "[2,0]");
  }
}

TEST(Compare, AllowsOneStepOfTheType) {
  for (const DType type : {DType::kF16, DType::kBF16, DType::kE4M3}) {
    const Case c = MakeCase(ExpOf(type));
    const double step = type == DType::kF16 ? 0x1p-10 : type == DType::kBF16 ? 0x1p-7 : 0x1p-3;
    std::vector<double> got = c.want;
    const double below = std::exp2(std::floor(std::log2(got[3])));
    got[3] += step * below;
    EXPECT_TRUE(c.With(got).ok()) << Info(type).text;
    got[3] = c.want[3] + 3 * step * below;
    EXPECT_EQ(c.With(got).wrong, 1) << Info(type).text;
  }
}

// exp(30 x) multiplies relative errors of its operand: a condition that no fixed tolerance knows.
TEST(Compare, AllowsWhatLaterOperationsMakeOfAnError) {
  GraphBuilder b("steep");
  const TensorId x = b.Input("x", DType::kF32, {64}), k = b.Constant("k", DType::kF32, 30);
  const TensorId product = b.Pointwise(PointwiseMode::kMul, {x, k});
  b.Output(b.Pointwise(PointwiseMode::kExp, {product}), "y", DType::kF32);
  const Case c = MakeCase(*b.Finish());
  const std::vector<double>& in = c.reference.values.at(x);
  std::vector<double> got = c.want;
  for (size_t i = 0; i < got.size(); ++i)
    got[i] = std::exp(static_cast<float>(in[i] * 30) * (1 + 0x1p-24));
  EXPECT_TRUE(c.With(got).ok());
  for (size_t i = 0; i < got.size(); ++i) got[i] = c.want[i] * 1.001;
  EXPECT_FALSE(c.With(got).ok());
}

TEST(Compare, NanAndInfinity) {
  Case c = MakeCase(ExpOf(DType::kF32));
  std::vector<double> got = c.want;
  got[1] = kNan;
  got[2] = kInfinity;
  EXPECT_EQ(c.With(got).wrong, 2);
  for (graph::TensorValues* run : {&c.reference.values, &c.reference.disturbed[0]}) {
    (*run)[c.output][1] = kNan;
    (*run)[c.output][2] = kInfinity;
  }
  EXPECT_TRUE(c.With(got).ok());
  got[1] = 0;
  got[2] = 1;
  EXPECT_EQ(c.With(got).wrong, 2);
  got[2] = -kInfinity;
  EXPECT_EQ(c.With(got).wrong, 2);
}

// 65504 is the largest f16: beside it, infinity may be the other rounding of one sum.
TEST(Compare, LargestNumberAndInfinityAreNeighbours) {
  Case c = MakeCase(ExpOf(DType::kF16));
  std::vector<double> got = c.want;
  const auto set_want = [&](double value) {
    c.reference.values[c.output][0] = c.reference.disturbed[0][c.output][0] = value;
  };
  set_want(65504);
  got[0] = kInfinity;
  EXPECT_TRUE(c.With(got).ok());
  set_want(30000);
  EXPECT_FALSE(c.With(got).ok());
}

TEST(Compare, IntegersAreExactButForARoundingOfFloats) {
  GraphBuilder b("int");
  const TensorId x = b.Input("x", DType::kI32, {64});
  b.Output(b.Pointwise(PointwiseMode::kAdd, {x, x}, {.dtype = DType::kI32, .compute = DType::kI32}),
           "y", DType::kI32);
  const Case c = MakeCase(*b.Finish());
  std::vector<double> got = c.want;
  got[5] += 1;
  EXPECT_EQ(c.With(got).wrong, 1);
}

// 2.5 rounds to 2 or to 3, and what is compared with 2 falls on either side.
TEST(Compare, MoreRunsShowWhatStandsOnAStep) {
  GraphBuilder b("step");
  const TensorId x = b.Input("x", DType::kF32, {64}), two = b.Constant("two", DType::kF32, 0);
  const TensorId sum = b.Pointwise(PointwiseMode::kAdd, {x, two});
  b.Output(b.Pointwise(PointwiseMode::kFloor, {sum}), "y", DType::kF32);
  Case c = MakeCase(*b.Finish());
  TensorValues inputs = {{x, std::vector<double>(64, 3)}};
  c.reference = *Interpret(c.graph, inputs, 1);
  for (uint64_t seed = 2; seed < 20; ++seed)
    ASSERT_TRUE(DisturbAgain(c.graph, seed, c.reference).ok());
  std::vector<double> got(64, 3);
  got[7] = 2;
  EXPECT_TRUE(c.With(got).ok());
  got[7] = -40;
  EXPECT_EQ(c.With(got).wrong, 1);
}

// Terms of f64 are rounded to f32 as they are read for a sum in f32, and leave that of themselves
// where they cancel.
TEST(Compare, OperandsWiderThanTheComputeTypeAreRounded) {
  constexpr int64_t kLength = 64;
  for (const auto& [dtype, right] : {std::pair(DType::kF64, true), {DType::kF32, false}}) {
    const Graph graph = SumOf(dtype, kLength);
    const TensorId x = graph::Inputs(graph).front(), y = graph::Outputs(graph).front();
    TensorValues inputs = {{x, std::vector<double>(4 * kLength)}};
    for (size_t i = 0; i < inputs[x].size(); ++i) inputs[x][i] = i % 2 == 0 ? 0.75 : -0.75;
    Reference reference = *Interpret(graph, inputs, 1);
    std::vector<double> got = reference.values.at(y);
    ASSERT_EQ(got[2], 0);
    got[2] = 3e-8;
    EXPECT_EQ(CompareClosely(graph, y, 1, got, reference)->ok(), right);
    got[2] = 1e-5;
    EXPECT_EQ(CompareClosely(graph, y, 1, got, reference)->wrong, 1);
  }
}

// t rounds to a narrow type and y = t - x is in f32: the other neighbour of x is as right for t,
// and moves y by a whole step of t. Whether t is an output too makes no difference.
TEST(Compare, CarriesAFlipOfAnIntermediate) {
  for (const bool is_output : {false, true}) {
    for (const auto& [dtype, step] : {std::pair(DType::kF16, 0x1p-10), {DType::kBF16, 0x1p-7}}) {
      GraphBuilder b("flip");
      const TensorId x = b.Input("x", DType::kF32, {64});
      const TensorId t = b.Pointwise(PointwiseMode::kIdentity, {x}, {.dtype = dtype});
      if (is_output) b.Output(t, "t", dtype);
      const TensorId y = b.Pointwise(PointwiseMode::kSub, {t, x});
      b.Output(y, "y", DType::kF32);
      const Graph graph = *b.Finish();
      const TensorValues inputs = {{x, std::vector<double>(64, 1 + step / 2)}};
      Reference reference = *Interpret(graph, inputs, 1);
      std::vector<double> got = reference.values.at(y);
      ASSERT_EQ(got[7], -step / 2);  // to even
      got[7] = step / 2;
      EXPECT_TRUE(CompareClosely(graph, y, 1, got, reference)->ok()) << is_output;
      got[7] = 20 * step;
      EXPECT_EQ(CompareClosely(graph, y, 1, got, reference)->wrong, 1) << is_output;
      // The intermediate's own element is held to one step, not to what its readers may see.
      if (!is_output) continue;
      got = reference.values.at(t);
      got[7] = 1 + step;
      EXPECT_TRUE(CompareClosely(graph, t, 1, got, reference)->ok());
      got[7] = 1 + 3 * step;
      EXPECT_EQ(CompareClosely(graph, t, 1, got, reference)->wrong, 1);
    }
  }
}

// A tenth of 5 lies beside the border between 0 and 1: in f32 it is the border, and rounds to 0.
TEST(Compare, CarriesAFlipOfAnIntegerBesideABorder) {
  GraphBuilder b("quantize");
  const TensorId x = b.Input("x", DType::kF32, {64});
  const TensorId tenth = b.Constant("tenth", DType::kF32, static_cast<double>(0.1f));
  const TensorId q = b.Pointwise(PointwiseMode::kMul, {x, tenth}, {.dtype = DType::kI8});
  const TensorId y = b.Pointwise(PointwiseMode::kAdd, {q, x});
  b.Output(y, "y", DType::kF32);
  const Graph graph = *b.Finish();
  std::vector<double> values(64, 3);
  values[7] = 5;
  Reference reference = *Interpret(graph, {{x, values}}, 1);
  std::vector<double> got = reference.values.at(y);
  ASSERT_EQ(got[7], 6);
  got[7] = 5;
  EXPECT_TRUE(CompareClosely(graph, y, 1, got, reference)->ok());
  got[9] = 4;  // 0.3 is beside no border
  EXPECT_EQ(CompareClosely(graph, y, 1, got, reference)->wrong, 1);
}

// Tiny halves have steps that are large beside them.
TEST(Compare, CarriesAFlipOfASubnormal) {
  GraphBuilder b("subnormal");
  const TensorId x = b.Input("x", DType::kF32, {64});
  const TensorId large = b.Constant("large", DType::kF32, 0x1p24);
  const TensorId t = b.Pointwise(PointwiseMode::kIdentity, {x}, {.dtype = DType::kF16});
  const TensorId y = b.Pointwise(PointwiseMode::kMul, {t, large});
  b.Output(y, "y", DType::kF32);
  const Graph graph = *b.Finish();
  Reference reference = *Interpret(graph, {{x, std::vector<double>(64, 2.5 * 0x1p-24)}}, 1);
  std::vector<double> got = reference.values.at(y);
  ASSERT_EQ(got[7], 2);
  got[7] = 3;
  EXPECT_TRUE(CompareClosely(graph, y, 1, got, reference)->ok());
  got[7] = 40;
  EXPECT_EQ(CompareClosely(graph, y, 1, got, reference)->wrong, 1);
}

TEST(Interpret, CallsTheObserverBeforeEachNodeOfEachRun) {
  const Graph graph = SumOf(DType::kF32, 8);
  size_t calls = 0;
  const auto count = [&calls](const graph::Node&) { ++calls; };
  ASSERT_TRUE(Interpret(graph, RandomInputs(graph, {}), 1, count).ok());
  EXPECT_EQ(calls, 2 * graph.nodes.size());
}

TEST(Compare, EmptyTensor) {
  GraphBuilder b("empty");
  b.Output(b.Pointwise(PointwiseMode::kExp, {b.Input("x", DType::kF32, {0, 4})}), "y", DType::kF32);
  Result<Graph> graph = b.Finish();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const Case c = MakeCase(*std::move(graph));
  EXPECT_EQ(c.With({}).element, -1);
  EXPECT_TRUE(c.With({}).ok());
}

// 160 products of numbers up to 1 have magnitudes of about 40 in all; 2^-13 of that is 0.005.
// Variances of 0.3 or so, of which an epsilon of -0.3 leaves next to nothing in some rows.
TEST(Compare, VariancesThatEpsilonCancels) {
  constexpr int64_t kRows = 2000, kLength = 64;
  GraphBuilder b("norm");
  const TensorId x = b.Input("x", DType::kF32, {kRows, kLength});
  const TensorId scale = b.Input("scale", DType::kF32, {1, kLength}),
                 bias = b.Input("bias", DType::kF32, {1, kLength}),
                 epsilon = b.Input("epsilon", DType::kF32, {1, 1});
  b.Output(b.Apply(graph::GraphOp::kNormForward,
                   {x, graph::kAbsent, graph::kAbsent, scale, bias, epsilon},
                   graph::NormForwardAttrs{.mode = graph::NormMode::kLayer},
                   {.dtype = DType::kF32, .compute = DType::kF32, .dims = {}}),
           "y", DType::kF32);
  const Graph g = *b.Finish();
  const TensorId y = graph::Outputs(g).front();
  TensorValues inputs = RandomInputs(g, {});
  inputs[epsilon] = {-0.3F};
  const std::vector<double> data = inputs[x], s = inputs[scale], shift = inputs[bias];
  const Reference reference = *Interpret(g, std::move(inputs), 1);
  std::vector<double> got(data.size());
  double largest = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    const double* row = data.data() + r * kLength;
    float sum = 0, squares = 0;
    for (int64_t i = 0; i < kLength; ++i) sum += static_cast<float>(row[i]);
    const float mean = sum / kLength;
    for (int64_t i = 0; i < kLength; ++i)
      squares += (static_cast<float>(row[i]) - mean) * (static_cast<float>(row[i]) - mean);
    const float inverse = 1 / std::sqrt(squares / kLength - 0.3F);
    if (!std::isnan(inverse)) largest = std::max(largest, static_cast<double>(inverse));
    for (int64_t i = 0; i < kLength; ++i)
      got[r * kLength + i] =
          (static_cast<float>(row[i]) - mean) * inverse * static_cast<float>(s[i]) +
          static_cast<float>(shift[i]);
  }
  ASSERT_GT(largest, 40) << "no row cancels";
  const Comparison right = Compare(g, y, reference, got);
  EXPECT_TRUE(right.ok()) << right.wrong << " wrong, element " << right.element << ": " << right.got
                          << ", want " << right.want << " to " << right.allowed;
  for (int64_t i = 0; i < kLength; ++i) got[i] *= 1.01;
  EXPECT_FALSE(Compare(g, y, reference, got).ok());
}

TEST(Compare, SumsOfFp8MayKeepFourteenBits) {
  for (const auto& [dtype, right] : {std::pair(DType::kE4M3, true), {DType::kF16, false}}) {
    const Case c = MakeCase(MatmulOf(dtype, 160));
    std::vector<double> got = c.want;
    for (double& value : got) value += 2e-4;
    EXPECT_EQ(c.With(got).ok(), right);
    got = c.want;
    got[5] += 0.25;  // a product is missing
    EXPECT_FALSE(c.With(got).ok());
  }
}

// 64^40 is more than an f32 holds: in an order that meets the zero last it is infinity times zero.
TEST(Compare, ProductsThatMayOverflowOnTheWayAreOpen) {
  for (const auto& [length, is_open] : {std::pair<int64_t, bool>(41, true), {11, false}}) {
    GraphBuilder b("product");
    const TensorId x = b.Input("x", DType::kF32, {2, length});
    b.Output(b.Reduction(graph::ReductionMode::kMul, x, {2, 1}), "y", DType::kF32);
    Case c{.graph = *b.Finish(), .output = -1, .reference = {}, .want = {}};
    c.output = graph::Outputs(c.graph).front();
    std::vector<double> factors(static_cast<size_t>(2 * length), 64);
    factors[0] = 0;
    for (int64_t i = length; i < 2 * length; ++i) factors[static_cast<size_t>(i)] = 0.5;
    c.reference = *Interpret(c.graph, {{x, factors}}, 1);
    c.want = c.reference.values.at(c.output);
    EXPECT_EQ(c.want[0], 0);
    EXPECT_EQ(c.With({kNan, c.want[1]}).ok(), is_open) << length;
    EXPECT_TRUE(c.With(c.want).ok());
    EXPECT_FALSE(c.With({0, kNan}).ok()) << "factors below 1 do not overflow";
    EXPECT_FALSE(c.With({0, 2 * c.want[1]}).ok());
  }
}

}  // namespace
}  // namespace kiln::cli
