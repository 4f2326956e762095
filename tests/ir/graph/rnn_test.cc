// Recurrent networks in the interpreter: random descriptors against the oracle, networks whose
// results are known as numbers, derivatives by finite differences, places of weights, refusals.
#include "ir/graph/rnn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ir/graph/ops.h"
#include "tests/support/rnn_case.h"

namespace kiln::graph {
namespace {

using testing::RnnCase;
using testing::RnnGraph;
using Doubles = std::vector<double>;

TensorValues Evaluated(const RnnGraph& g) {
  EXPECT_EQ(Verify(g.graph).message(), "");
  TensorValues values = g.inputs;
  EXPECT_EQ(Evaluate(g.graph, values).message(), "");
  return values;
}

TEST(Rnn, RandomNetworksAreTheOracles) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const RnnCase c = testing::RandomRnnCase(seed);
    SCOPED_TRACE(c.Text());
    const RnnGraph training = TrainingGraph(c);
    ASSERT_EQ(CompareRnn(c, training, Evaluated(training), true, RnnTolerance(c)), "");
    const RnnGraph inference = InferenceGraph(c);
    ASSERT_EQ(CompareRnn(c, inference, Evaluated(inference), false, RnnTolerance(c)), "");
  }
}

// The one-unit networks of the reference page, as their first two states.
struct OneUnit {
  RnnCell cell;
  RnnBias bias;
  Doubles w;
  bool clips;
  Doubles h, c;
};

Doubles Concat(std::initializer_list<Doubles> parts) {
  Doubles all;
  for (const Doubles& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(Rnn, OneUnitHasTheseStates) {
  const Doubles lstm = {.1, .2, .3, .4, .5, .6, .7, .8, .01, .02, .03, .04, .05, .06, .07, .08},
                gru = {.1, .2, .3, .4, .5, .6}, three = {.01, .02, .03};
  const OneUnit cases[] = {
      {RnnCell::kLstm,
       RnnBias::kDouble,
       lstm,
       false,
       {0.155850664, 0.029067547},
       {0.221513485, 0.063102970}},
      {RnnCell::kLstm,
       RnnBias::kDouble,
       lstm,
       true,
       {0.071266813, -0.011671785},
       {0.317673596, -0.026265264}},
      {RnnCell::kGru,
       RnnBias::kDouble,
       Concat({gru, three, {.04, .05, .06}}),
       false,
       {0.497719048, 0.227328610},
       {}},
      {RnnCell::kGru,
       RnnBias::kSingleInput,
       Concat({gru, three}),
       false,
       {0.486355607, 0.194712874},
       {}},
      {RnnCell::kGru,
       RnnBias::kSingleRecurrent,
       Concat({gru, three}),
       false,
       {0.482504477, 0.185014645},
       {}},
      {RnnCell::kGru, RnnBias::kNone, gru, false, {0.476670363, 0.169637538}, {}}};
  for (const OneUnit& one : cases) {
    RnnCase c{.attrs = {.cell = one.cell,
                        .bias = one.bias,
                        .clip = one.clips,
                        .clip_lower = -.1,
                        .clip_upper = .1},
              .steps = 2,
              .has_hx = true,
              .has_cx = true};
    RnnGraph g = TrainingGraph(c);
    g.inputs[g.w] = one.w;
    g.inputs[g.x] = {1, -1};
    g.inputs[g.hx] = {.5};
    if (g.cx >= 0) g.inputs[g.cx] = {-.25};
    const TensorValues values = Evaluated(g);
    for (int t = 0; t < 2; ++t) {
      EXPECT_NEAR(values.at(g.y)[t], one.h[t], 1e-9) << c.Text();
      // Cells lie behind the gates.
      if (one.c.empty()) continue;
      EXPECT_NEAR(values.at(g.reserve)[8 + t], one.c[t], 1e-9) << c.Text();
    }
    EXPECT_EQ(CompareRnn(c, g, values, true, 1e-12), "");
  }
}

// All weights .02, all biases .1: every unit is the same number.
TEST(Rnn, AConstantNetworkHasTheseStates) {
  const std::pair<RnnCell, Doubles> cases[] = {
      {RnnCell::kRelu, {.2364, .274592, .28065232}},
      {RnnCell::kTanh, {.231336783, .266048655, .271107411}},
      {RnnCell::kLstm, {.063298809, .103509442, .129001073}},
      {RnnCell::kGru, {.074518165, .121320576, .150907761}}};
  for (const auto& [cell, want] : cases) {
    RnnCase c{.attrs = {.cell = cell, .layers = 2, .hidden = 7, .projected = 7},
              .steps = 3,
              .batch = 2,
              .input = 3};
    RnnGraph g = InferenceGraph(c);
    Doubles& w = g.inputs[g.w];
    const int64_t biases = 2 * 2 * 7 * BlocksOf(cell).gates;
    std::fill(w.begin(), w.end() - biases, .02);
    std::fill(w.end() - biases, w.end(), .1);
    std::ranges::fill(g.inputs[g.x], 1);
    const TensorValues values = Evaluated(g);
    for (size_t i = 0; i < 3 * 2 * 7; ++i)
      EXPECT_NEAR(values.at(g.y)[i], want[i / 14], 1e-8) << Text(cell) << " element " << i;
  }
}

// The loss is the sum of all results times fixed numbers; each parameter and operand is moved.
void CheckDerivatives(const RnnCase& c) {
  RnnGraph g = TrainingGraph(c);
  const TensorValues values = Evaluated(g);
  const auto loss = [&](const TensorValues& inputs) {
    TensorValues moved = inputs;
    EXPECT_EQ(Evaluate(g.graph, moved).message(), "");
    double sum = 0;
    for (const auto& [result, slope] :
         {std::pair(g.y, g.dy), std::pair(g.hy, g.dhy), std::pair(g.cy, g.dcy)}) {
      if (result == kAbsent || slope == kAbsent) continue;
      sum += std::inner_product(moved.at(result).begin(), moved.at(result).end(),
                                inputs.at(slope).begin(), 0.0);
    }
    return sum;
  };
  constexpr double kStep = 1e-6;
  for (const auto& [operand, gradient] : {std::pair(g.w, g.dw), std::pair(g.x, g.dx),
                                          std::pair(g.hx, g.dhx), std::pair(g.cx, g.dcx)}) {
    if (operand == kAbsent) continue;
    for (size_t i = 0; i < g.inputs.at(operand).size(); ++i) {
      TensorValues more = g.inputs, less = g.inputs;
      more[operand][i] += kStep;
      less[operand][i] -= kStep;
      const double slope = (loss(more) - loss(less)) / (2 * kStep);
      EXPECT_NEAR(values.at(gradient)[i], slope, 1e-7)
          << g.graph[gradient].name << " " << i << " of " << c.Text();
    }
  }
}

TEST(Rnn, GradientsAreFiniteDifferences) {
  for (const RnnCell cell : {RnnCell::kRelu, RnnCell::kTanh, RnnCell::kLstm, RnnCell::kGru}) {
    RnnCase c{.attrs = {.cell = cell,
                        .layers = 2,
                        .hidden = 3,
                        .projected = cell == RnnCell::kLstm ? 2 : 3,
                        .bidirectional = true},
              .steps = 3,
              .batch = 2,
              .input = 2,
              .has_hx = true,
              .has_cx = true,
              .has_dhy = true,
              .has_dcy = true};
    CheckDerivatives(c);
    c.attrs.bidirectional = false;
    c.attrs.bias = RnnBias::kSingleRecurrent;
    c.attrs.skip_input = true;
    c.input = 3;
    CheckDerivatives(c);
  }
  // Cells lie on either side of the bounds.
  CheckDerivatives({.attrs = {.cell = RnnCell::kLstm,
                              .hidden = 3,
                              .projected = 3,
                              .clip = true,
                              .clip_lower = -.125,
                              .clip_upper = .25},
                    .steps = 4,
                    .input = 2,
                    .has_hx = true,
                    .has_cx = true,
                    .has_dhy = true,
                    .has_dcy = true});
}

// A cell that is NaN is the lower bound where NaN does not propagate.
TEST(Rnn, ClipsDropOrKeepNan) {
  for (const bool keeps : {false, true}) {
    RnnCase c{.attrs = {.cell = RnnCell::kLstm,
                        .clip = true,
                        .clip_propagates_nan = keeps,
                        .clip_lower = -.5,
                        .clip_upper = .5},
              .steps = 1,
              .has_cx = true};
    RnnGraph g = InferenceGraph(c);
    g.inputs[g.cx] = {-.5};
    const double bound = Evaluated(g).at(g.cy)[0];
    g.inputs[g.cx] = {std::nan("")};
    const double got = Evaluated(g).at(g.cy)[0];
    EXPECT_EQ(std::isnan(got), keeps);
    if (!keeps) {
      EXPECT_EQ(got, bound);
    }
  }
}

// Three layers of one relu unit that pass their input on, each with a probability of 3/4.
TEST(Rnn, DropoutScalesWhatItKeeps) {
  RnnCase c{.attrs = {.cell = RnnCell::kRelu, .bias = RnnBias::kNone, .layers = 3, .dropout = .25},
            .steps = 50,
            .batch = 40};
  RnnGraph g = TrainingGraph(c);
  g.inputs[g.w] = {1, 0, 1, 0, 1, 0};
  std::ranges::fill(g.inputs[g.x], 1);
  std::ranges::fill(g.inputs[g.dy], 1);
  const TensorValues values = Evaluated(g);
  int64_t zeros = 0;
  for (const double y : values.at(g.y)) {
    zeros += y == 0;
    if (y == 0) continue;
    EXPECT_NEAR(y, 1 / (.75 * .75), 1e-12);
  }
  EXPECT_NEAR(static_cast<double>(zeros) / 2000, 1 - .75 * .75, 4 * std::sqrt(.25 / 2000));
  EXPECT_EQ(values.at(g.dx), values.at(g.y));
  RnnGraph other = g;
  for (auto& [id, value] : other.inputs)
    if (g.graph[id].name == "offset") value[0] += 1;
  EXPECT_NE(Evaluated(other).at(g.y), values.at(g.y));
  RnnGraph inference = InferenceGraph(c);
  for (const auto& [from, to] : {std::pair(g.w, inference.w), std::pair(g.x, inference.x)})
    inference.inputs[to] = g.inputs[from];
  EXPECT_EQ(Evaluated(inference).at(inference.y), Doubles(2000, 1.0));
}

// The places that cuDNN 9.19 gave, in elements.
TEST(Rnn, WeightsLieWhereClientsLookForThem) {
  const RnnAttrs two{
      .cell = RnnCell::kLstm, .layers = 2, .hidden = 5, .projected = 5, .bidirectional = true};
  EXPECT_EQ(RnnWeightElements(two, 3), 1080);
  const auto matrix = [](const RnnAttrs& a, int64_t input, int64_t pl, int64_t id) {
    return RnnMatrixPlace(a, input, pl, id).offset;
  };
  const auto bias = [](const RnnAttrs& a, int64_t input, int64_t pl, int64_t id) {
    return RnnBiasPlace(a, input, pl, id).offset;
  };
  EXPECT_EQ(matrix(two, 3, 0, 3), 45);
  EXPECT_EQ(matrix(two, 3, 0, 7), 135);
  EXPECT_EQ(matrix(two, 3, 1, 0), 160);
  EXPECT_EQ(matrix(two, 3, 2, 0), 320);
  EXPECT_EQ(RnnMatrixPlace(two, 3, 2, 0).columns, 10);
  EXPECT_EQ(matrix(two, 3, 2, 4), 520);
  EXPECT_EQ(matrix(two, 3, 3, 0), 620);
  EXPECT_EQ(matrix(two, 3, 3, 4), 820);
  EXPECT_EQ(matrix(two, 3, 0, 8), -1);
  EXPECT_EQ(bias(two, 3, 0, 7), 955);
  EXPECT_EQ(bias(two, 3, 3, 0), 1040);
  const RnnAttrs gru{
      .cell = RnnCell::kGru, .bias = RnnBias::kSingleRecurrent, .hidden = 5, .projected = 5};
  EXPECT_EQ(matrix(gru, 3, 0, 3), 45);
  EXPECT_EQ(bias(gru, 3, 0, 0), -1);
  EXPECT_EQ(bias(gru, 3, 0, 4), 125);
  const RnnAttrs projected{
      .cell = RnnCell::kLstm, .layers = 2, .hidden = 6, .projected = 2, .bidirectional = true};
  EXPECT_EQ(RnnWeightElements(projected, 3) * 4, 3072);
  EXPECT_EQ(matrix(projected, 3, 0, 8), 120);
  EXPECT_EQ(matrix(projected, 3, 1, 0), 132);
  EXPECT_EQ(matrix(projected, 3, 2, 0), 264);
  EXPECT_EQ(bias(projected, 3, 0, 0), 576);
  const RnnAttrs skips{
      .cell = RnnCell::kLstm, .layers = 2, .hidden = 5, .projected = 5, .skip_input = true};
  EXPECT_EQ(RnnWeightElements(skips, 5) * 4, 1520);
  EXPECT_EQ(matrix(skips, 5, 0, 0), -1);
  EXPECT_EQ(matrix(skips, 5, 0, 4), 0);
  EXPECT_EQ(matrix(skips, 5, 1, 0), 100);
  EXPECT_EQ(bias(skips, 5, 0, 0), 300);
}

// Changes a training graph, and expects this sentence.
void ExpectRefused(const RnnCase& c, const std::function<void(RnnGraph&)>& change,
                   const char* sentence) {
  RnnGraph g = TrainingGraph(c);
  change(g);
  const Status status = Verify(g.graph);
  EXPECT_NE(status.message().find(sentence), std::string::npos) << status.message();
}

TEST(Rnn, WhatDoesNotFitIsRefused) {
  const RnnCase lstm{.attrs = {.cell = RnnCell::kLstm, .hidden = 4, .projected = 4},
                     .steps = 3,
                     .batch = 2,
                     .input = 3,
                     .lengths = {3, 1}};
  const auto attrs = [](RnnGraph& g) -> RnnAttrs& {
    return std::get<RnnAttrs>(g.graph.nodes[0].attrs);
  };
  ExpectRefused(lstm, [&](RnnGraph& g) { attrs(g).cell = RnnCell::kGru; }, "a gru has no cells");
  ExpectRefused(
      lstm, [&](RnnGraph& g) { attrs(g).skip_input = true; },
      "an input of width 3 is skipped to 4 units");
  ExpectRefused(lstm, [&](RnnGraph& g) { attrs(g).projected = 5; }, "no more are projected");
  ExpectRefused(lstm, [&](RnnGraph& g) { attrs(g).layers = 0; }, "each is at least 1");
  ExpectRefused(lstm, [&](RnnGraph& g) { attrs(g).steps = 4; }, "4 steps for");
  ExpectRefused(lstm, [&](RnnGraph& g) { attrs(g).dropout = 2; }, "is no probability");
  ExpectRefused(
      lstm, [&](RnnGraph& g) { attrs(g).clip = true, attrs(g).clip_lower = 1; },
      "with a clip from 1 to 0");
  ExpectRefused(
      lstm, [&](RnnGraph& g) { attrs(g).layers = 2, attrs(g).dropout = .5; },
      "is no weight space of");
  ExpectRefused(lstm, [](RnnGraph& g) { g.graph[g.w].dims[0] -= 1; }, "is no weight space of");
  ExpectRefused(
      lstm, [](RnnGraph& g) { g.graph[g.reserve].dims[0] -= 1; }, "what a gradient needs makes it");
  ExpectRefused(lstm, [](RnnGraph& g) { g.graph[g.w].dtype = DType::kF32; }, "the data are f64");
  ExpectRefused(
      lstm, [](RnnGraph& g) { g.graph.nodes[0].compute = DType::kF32; },
      "compute type f32 for data of f64");
  ExpectRefused(
      lstm, [](RnnGraph& g) { g.graph[g.graph.nodes[0].inputs[4]].dims[0] = 3; },
      "the number of sequences makes it");
}

}  // namespace
}  // namespace kiln::graph
