// Rotary embedding and the gradient of experts' weights as they are spelled out: numbers that
// follow by hand, and text that reads back.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "ir/graph/eval.h"
#include "ir/graph/moe_backward.h"
#include "ir/graph/rope.h"

namespace kiln::graph {
namespace {

using Numbers = std::vector<double>;
constexpr double kHalfTurn = std::numbers::pi, kQuarter = kHalfTurn / 2;

TensorId Add(Graph& g, const char* name, DType dtype, const Dims& dims) {
  return g.AddTensor({.name = name,
                      .uid = static_cast<int64_t>(g.tensors.size()) + 1,
                      .dtype = dtype,
                      .dims = dims,
                      .strides = PackedStrides(dims)});
}

// The numbers that the graph's text evaluates to; empty after a failure. The text must read back as
// it is.
Numbers Evaluated(Graph g, const TensorValues& inputs, TensorId result) {
  g.name = "g";
  const Status verified = Verify(g);
  EXPECT_TRUE(verified.ok()) << verified.message();
  const std::string text = Print(g);
  Result<Graph> again = Parse(text);
  EXPECT_TRUE(again.ok()) << again.status().message() << "\n" << text;
  if (!verified.ok() || !again.ok()) return {};
  EXPECT_EQ(Print(*again), text);
  TensorValues values = inputs;
  const Status status = Evaluate(*again, values);
  EXPECT_TRUE(status.ok()) << status.message();
  return status.ok() ? values[result] : Numbers();
}

void ExpectNear(const Numbers& got, const Numbers& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
}

// A row of six: one element that is only scaled, and two pairs, (2, 4) and (3, 5).
Numbers Turned(bool is_backward, double scale, const Numbers& angles) {
  Graph g;
  const TensorId x = Add(g, "x", DType::kF64, {1, 1, 2, 6}),
                 f = Add(g, "f", DType::kF64, {3, 1, 1, 4}),
                 y = Add(g, "y", DType::kF64, {1, 1, 2, 6});
  SpellRope(
      g, {.x = x, .freqs = f, .y = y, .scale = scale, .rope_dim = 4, .is_backward = is_backward});
  const Numbers row = {10, 20, 2, 3, 4, 5};
  Numbers both = row;
  both.insert(both.end(), row.begin(), row.end());
  return Evaluated(std::move(g), {{x, both}, {f, angles}}, y);
}

// The second half of a place's angles, and the third place's, are not read.
const double kNaN = std::numeric_limits<double>::quiet_NaN();
const Numbers kAngles = {0,    kQuarter, kNaN, kNaN, kHalfTurn, -kQuarter,
                         kNaN, kNaN,     kNaN, kNaN, kNaN,      kNaN};

TEST(Rope, TurnsPairsByTheAnglesOfTheirPlace) {
  ExpectNear(Turned(false, 1, kAngles), {10, 20, 2, -5, 4, 3, 10, 20, -2, 5, -4, -3});
}

TEST(Rope, TheGradientTurnsBack) {
  ExpectNear(Turned(true, 1, kAngles), {10, 20, 2, 5, 4, -3, 10, 20, -2, -5, -4, 3});
}

TEST(Rope, AllIsScaled) {
  ExpectNear(Turned(false, -2, kAngles), {-20, -40, -4, 10, -8, -6, -20, -40, 4, -10, 8, 6});
}

// Four tokens of two elements for three experts, of which the second has none; the first token is
// before all of them.
Numbers Gradient(const Numbers& token, const Numbers& doutput, const Numbers& first) {
  Graph g;
  const auto groups = static_cast<int64_t>(first.size());
  const TensorId t = Add(g, "t", DType::kF64, {1, 4, 2}), d = Add(g, "d", DType::kF64, {1, 4, 1}),
                 o = Add(g, "o", DType::kI32, {groups, 1, 1}),
                 w = Add(g, "w", DType::kF64, {3, 2, 1});
  SpellMoeBackward(
      g, {.token = t, .doutput = d, .first_token_offset = o, .dweight = w, .compute = DType::kF64});
  return Evaluated(std::move(g), {{t, token}, {d, doutput}, {o, first}}, w);
}

TEST(MoeBackward, SumsOverTheTokensOfEachExpert) {
  ExpectNear(Gradient({9, 9, 1, 2, 3, 4, 5, 6}, {9, 10, 100, 1000}, {1, 3, 3}),
             {310, 420, 0, 0, 5000, 6000});
}

TEST(MoeBackward, BatchesOfExpertsAddUp) {
  ExpectNear(Gradient({9, 9, 1, 2, 3, 4, 5, 6}, {9, 10, 100, 1000}, {1, 2, 2, 2, 3, 4}),
             {310, 420, 5000, 6000, 0, 0});
}

TEST(MoeBackward, OthersRowsLeaveNoTrace) {
  const double inf = std::numeric_limits<double>::infinity();
  const Numbers got = Gradient({kNaN, inf, 1, 2, 3, 4, 5, 6}, {inf, 10, 100, kNaN}, {1, 3, 3});
  ASSERT_EQ(got.size(), 6U);
  ExpectNear({got.begin(), got.begin() + 4}, {310, 420, 0, 0});
  EXPECT_TRUE(std::isnan(got[4]) && std::isnan(got[5]));
}

}  // namespace
}  // namespace kiln::graph
