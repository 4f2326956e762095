// The CTC loss: the interpreter of the graph against the definition, and the engine's kernels, as
// they are for a GPU and for the CPU, by interpretation.
#include "tests/support/oracle/ctc.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "compiler/engines/ctc/engine.h"
#include "compiler/engines/registry.h"
#include "ir/graph/builder.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::TensorId;
using graph::TensorValues;
using oracle::CtcBatch;
using oracle::CtcLoss;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Form {
  DType type = DType::kF32;
  bool gradients = true;
  bool innermost_batch = false;  // probs as [A][T][N] in memory
};

enum Uid : int64_t {
  kProbs = 1,
  kLabels,
  kLabelLengths,
  kInputLengths,
  kBefore,
  kCosts,
  kGradients
};

// The graph of the loss of such a batch.
Graph GraphOf(const CtcBatch& batch, const Form& form = {}) {
  Graph g;
  g.name = "ctc";
  const Dims dims = {batch.frames, batch.samples, batch.symbols};
  const auto tensor = [&](const char* name, Uid uid, DType type, Dims extents) {
    graph::Tensor t = {.name = name, .dtype = type, .dims = std::move(extents)};
    t.uid = uid;
    t.strides = PackedStrides(t.dims);
    if (form.innermost_batch && t.rank() == 3)
      t.strides = {batch.samples, 1, batch.frames * batch.samples};
    return g.AddTensor(std::move(t));
  };
  const auto count = static_cast<int64_t>(batch.labels.size());
  const bool keeps = form.gradients && batch.skip_infeasible;
  std::vector<TensorId> inputs = {tensor("p", kProbs, form.type, dims),
                                  tensor("l", kLabels, DType::kI32, {count}),
                                  tensor("n", kLabelLengths, DType::kI32, {batch.samples}),
                                  tensor("t", kInputLengths, DType::kI32, {batch.samples})};
  if (keeps) inputs.push_back(tensor("b", kBefore, form.type, dims));
  std::vector<TensorId> outputs = {tensor("c", kCosts, form.type, {batch.samples})};
  if (form.gradients) outputs.push_back(tensor("d", kGradients, form.type, dims));
  g.AddNode({.op = graph::GraphOp::kCtcLoss,
             .inputs = std::move(inputs),
             .outputs = std::move(outputs),
             .compute = form.type,
             .attrs = graph::CtcLossAttrs{.softmax = batch.softmax,
                                          .skip_infeasible = batch.skip_infeasible,
                                          .max_label = batch.max_label},
             .name = ""});
  return g;
}

std::vector<double> Before(const CtcBatch& batch) {
  std::vector<double> before(batch.probs.size());
  for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<double>(i % 7) + 100;
  return before;
}

TensorId Find(const Graph& g, int64_t uid) {
  for (size_t t = 0; t < g.tensors.size(); ++t)
    if (g.tensors[t].uid == uid) return static_cast<TensorId>(t);
  return graph::kAbsent;
}

TensorValues ValuesOf(const Graph& g, const CtcBatch& batch) {
  const auto numbers = [](const std::vector<int>& from) {
    return std::vector<double>(from.begin(), from.end());
  };
  TensorValues values;
  values[Find(g, kProbs)] = batch.probs;
  values[Find(g, kLabels)] = numbers(batch.labels);
  values[Find(g, kLabelLengths)] = numbers(batch.label_lengths);
  values[Find(g, kInputLengths)] = numbers(batch.input_lengths);
  if (const TensorId before = Find(g, kBefore); before != graph::kAbsent)
    values[before] = Before(batch);
  return values;
}

std::string Differs(const char* what, const std::vector<double>& got,
                    const std::vector<double>& want, double tolerance) {
  if (got.size() != want.size()) return fmt::format("{} {}, not {}", got.size(), what, want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = std::isnan(want[i])
                          ? std::isnan(got[i])
                          : got[i] == want[i] || std::abs(got[i] - want[i]) <=
                                                     tolerance * std::max(1.0, std::abs(want[i]));
    if (!same) return fmt::format("{} {} is {}, not {}", what, i, got[i], want[i]);
  }
  return "";
}

std::string Compare(const Graph& g, const TensorValues& values, const CtcLoss& want,
                    double tolerance) {
  std::string error = Differs("cost", values.at(Find(g, kCosts)), want.costs, tolerance);
  const TensorId gradients = Find(g, kGradients);
  if (error.empty() && gradients != graph::kAbsent)
    error = Differs("gradient", values.at(gradients), want.gradients, tolerance);
  return error;
}

// The graph's meaning.
CtcLoss Evaluated(const CtcBatch& batch, DType type = DType::kF64) {
  const Graph g = GraphOf(batch, {.type = type});
  TensorValues values = ValuesOf(g, batch);
  const Status status = graph::Evaluate(g, values);
  EXPECT_TRUE(status.ok()) << status.message();
  return {values.at(Find(g, kCosts)), values.at(Find(g, kGradients))};
}

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  double Number() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 random_;
};

struct Sizes {
  int64_t frames = 9, samples = 4, symbols = 6, label = 4;
};

// Labels with repeated symbols, empty ones, and some that no path fits.
CtcBatch RandomBatch(uint64_t seed, const Sizes& most, bool odd_labels) {
  Random random(seed);
  CtcBatch b;
  b.frames = 1 + random.Below(most.frames);
  b.samples = 1 + random.Below(most.samples);
  b.symbols = 2 + random.Below(most.symbols - 1);
  b.softmax = random.Below(3) != 0;
  b.skip_infeasible = random.Below(2) != 0;
  for (int64_t n = 0; n < b.samples; ++n) {
    const int64_t length = random.Below(most.label + 1);
    for (int64_t i = 0; i < length; ++i) {
      const int64_t last = i > 0 ? b.labels.back() : 1;
      const bool repeats = random.Below(4) == 0 || b.symbols < 2;
      int64_t symbol = repeats ? last : 1 + random.Below(b.symbols - 1);
      if (odd_labels && random.Below(12) == 0) symbol = 0;
      if (odd_labels && random.Below(60) == 0) symbol = random.Below(2) == 0 ? -1 : b.symbols;
      b.labels.push_back(static_cast<int>(symbol));
    }
    b.label_lengths.push_back(static_cast<int>(length));
    b.input_lengths.push_back(
        static_cast<int>(random.Below(3) == 0 ? random.Below(b.frames + 1) : b.frames));
  }
  b.max_label = most.label;
  if (odd_labels && random.Below(8) == 0)
    b.input_lengths[0] = static_cast<int>(random.Below(2) == 0 ? -1 : b.frames + 1);
  if (odd_labels && random.Below(8) == 0)
    b.label_lengths[static_cast<size_t>(random.Below(b.samples))] =
        static_cast<int>(random.Below(2) == 0 ? -1 : b.max_label + 1);
  if (b.labels.empty()) b.labels.push_back(1);
  for (int64_t i = 0; i < b.frames * b.samples * b.symbols; ++i)
    b.probs.push_back(b.softmax ? static_cast<double>(static_cast<float>(6 * random.Number() - 3))
                                : static_cast<double>(static_cast<float>(random.Number())));
  return b;
}

// ---- the definition

TEST(CtcTest, SumsOverStatesAreSumsOverPaths) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const CtcBatch batch =
        RandomBatch(seed, {.frames = 6, .samples = 2, .symbols = 3, .label = 3}, false);
    const CtcLoss states = oracle::Ctc(batch, Before(batch)),
                  paths = oracle::CtcByPaths(batch, Before(batch));
    ASSERT_EQ(Differs("cost", states.costs, paths.costs, 1e-12), "") << seed;
    ASSERT_EQ(Differs("gradient", states.gradients, paths.gradients, 1e-12), "") << seed;
  }
}

struct Uniform {
  int64_t frames, symbols;
  std::vector<int> label;
  double cost;
};

// cost = T ln A - ln C(T + L - R, 2L), of L labels with R equal neighbours.
const Uniform kUniform[] = {{5, 4, {1, 2}, 3.376123744},
                            {5, 4, {1, 1}, 4.223421604},
                            {6, 3, {1, 2, 2, 1}, 4.394449155},
                            {3, 5, {1, 2, 3}, 4.828313737},
                            {4, 5, {}, 6.437751650}};

TEST(CtcTest, OfUniformProbabilitiesCountsPaths) {
  for (const Uniform& u : kUniform) {
    for (const bool softmax : {true, false}) {
      CtcBatch b = {.frames = u.frames, .symbols = u.symbols};
      b.softmax = softmax;
      b.probs.assign(static_cast<size_t>(u.frames * u.symbols),
                     softmax ? 0.25 : 1 / static_cast<double>(u.symbols));
      b.labels = u.label;
      b.label_lengths = {static_cast<int>(u.label.size())};
      b.input_lengths = {static_cast<int>(u.frames)};
      b.max_label = 8;
      if (b.labels.empty()) b.labels = {1};
      const CtcLoss loss = Evaluated(b);
      EXPECT_NEAR(loss.costs[0], u.cost, 1e-9);
      EXPECT_NEAR(oracle::Ctc(b, {}).costs[0], u.cost, 1e-9);
      double sum = 0;
      for (const double g : loss.gradients) sum += g;
      if (softmax) {
        EXPECT_NEAR(sum, 0, 1e-12);
      }
    }
  }
}

TEST(CtcTest, InterpreterIsTheDefinition) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const CtcBatch batch = RandomBatch(seed, {}, true);
    const CtcLoss want = oracle::Ctc(batch, Before(batch)), got = Evaluated(batch);
    ASSERT_EQ(Differs("cost", got.costs, want.costs, 1e-11), "") << seed;
    ASSERT_EQ(Differs("gradient", got.gradients, want.gradients, 1e-11), "") << seed;
  }
}

// Central differences of the cost; and a frame's logits may all be moved by one number.
TEST(CtcTest, GradientIsThatOfTheCost) {
  for (uint64_t seed = 1000; seed < 1030; ++seed) {
    CtcBatch batch =
        RandomBatch(seed, {.frames = 6, .samples = 3, .symbols = 5, .label = 3}, false);
    batch.softmax = true;
    batch.skip_infeasible = false;
    const CtcLoss loss = Evaluated(batch);
    const auto total = [&](const CtcBatch& b) {
      double sum = 0;
      for (const double cost : Evaluated(b).costs) sum += cost;
      return sum;
    };
    for (size_t i = 0; i < batch.probs.size(); ++i) {
      constexpr double kStep = 1e-5;
      CtcBatch up = batch, down = batch;
      up.probs[i] += kStep;
      down.probs[i] -= kStep;
      ASSERT_NEAR((total(up) - total(down)) / (2 * kStep), loss.gradients[i], 1e-7) << seed;
    }
    CtcBatch moved = batch;
    for (double& p : moved.probs) p += 17;
    EXPECT_EQ(Differs("gradient", Evaluated(moved).gradients, loss.gradients, 1e-11), "");
  }
}

// ---- the kernels

// Sums of logarithms as large as the costs, rounded in each frame.
double ToleranceOf(const CtcBatch& batch, const CtcLoss& loss, DType type) {
  double largest = 1;
  for (const double cost : loss.costs)
    if (std::isfinite(cost)) largest = std::max(largest, std::abs(cost));
  const double unit = type == DType::kF64 ? 0x1p-50 : 0x1p-24;
  return 2 * (4 + 2 * std::sqrt(static_cast<double>(batch.frames))) * unit * largest;
}

// The engine's kernels for both devices, against the interpreter (by CheckTiles) and the oracle.
void CheckKernels(const CtcBatch& batch, const Form& form) {
  const Graph g = GraphOf(batch, form);
  const CtcLoss want = oracle::Ctc(batch, Before(batch));
  const double tolerance = ToleranceOf(batch, want, form.type);
  for (const char* arch : {"sm_90a", "cpu"}) {
    SCOPED_TRACE(arch);
    const auto run = CheckTiles(g, *TargetFromArch(arch), ValuesOf(g, batch), {}, tolerance);
    ASSERT_TRUE(run.ok()) << run.status().message();
    ASSERT_EQ(run->module.groups.size(), 1u);
    EXPECT_EQ(std::string_view(Engines()[static_cast<size_t>(run->module.groups[0].engine)].name),
              "ctc");
    TensorValues outputs = run->outputs;
    ASSERT_EQ(Compare(g, outputs, want, tolerance), "");
  }
}

TEST(CtcTest, KernelsAreRight) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Form form = {.type = seed % 5 == 4 ? DType::kF64 : DType::kF32,
                       .gradients = seed % 3 != 2,
                       .innermost_batch = seed % 4 == 3};
    CheckKernels(RandomBatch(seed, {}, true), form);
    if (HasFatalFailure()) return;
  }
}

// One sample of `label` labels in so many frames.
CtcBatch LongBatch(int64_t label, int64_t frames, uint64_t seed) {
  Random random(seed);
  CtcBatch b = {.frames = frames, .symbols = 5, .max_label = label};
  for (int64_t i = 0; i < label; ++i) b.labels.push_back(static_cast<int>(1 + i % 4));
  b.label_lengths = {static_cast<int>(label)};
  b.input_lengths = {static_cast<int>(frames)};
  for (int64_t i = 0; i < frames * b.symbols; ++i)
    b.probs.push_back(static_cast<double>(static_cast<float>(6 * random.Number() - 3)));
  return b;
}

// One, two and three states a thread; 256 fit exactly.
TEST(CtcTest, LongLabelsAreNoOthers) {
  CheckKernels(LongBatch(40, 50, 1), {});
  CheckKernels(LongBatch(255, 258, 2), {});
  CheckKernels(LongBatch(256, 256, 3), {});
  CheckKernels(LongBatch(600, 602, 4), {.gradients = false});
}

// States that shared memory cannot hold; few of them are there.
TEST(CtcTest, PathsMayStandInMemory) {
  for (const bool gradients : {true, false}) {
    CtcBatch b = LongBatch(9, 20, 5);
    b.max_label = 3000;
    b.labels.resize(3000, 1);
    CheckKernels(b, {.gradients = gradients});
  }
}

// Numbers that are not finite stay with their sample, and in their frames.
TEST(CtcTest, ExtremesStayWithTheirSample) {
  for (const double extreme : {-1e30, 1e30, kInf, -kInf, kNan}) {
    for (const int64_t symbol : {0, 2, 4}) {
      CtcBatch b = {.frames = 5, .samples = 3, .symbols = 5, .max_label = 2};
      Random random(7);
      for (int i = 0; i < 75; ++i)
        b.probs.push_back(static_cast<double>(static_cast<float>(random.Number())));
      b.labels = {1, 2, 2, 2, 3};
      b.label_lengths = {2, 2, 1};
      b.input_lengths = {5, 4, 5};
      for (const int64_t t : {1, 4})  // behind the input of sample 1, too
        b.probs[static_cast<size_t>((t * 3 + 1) * 5 + symbol)] = extreme;
      const Graph g = GraphOf(b);
      const CtcLoss want = Evaluated(b, DType::kF32);
      for (const char* arch : {"sm_90a", "cpu"}) {
        SCOPED_TRACE(fmt::format("{} at {}, {}", extreme, symbol, arch));
        const auto run = RunTiles(g, *TargetFromArch(arch), ValuesOf(g, b));
        ASSERT_TRUE(run.ok()) << run.status().message();
        EXPECT_EQ(Compare(g, run->outputs, want, 1e-5), "");
        for (const size_t other : {0u, 2u})
          EXPECT_TRUE(std::isfinite(run->outputs.at(Find(g, kCosts))[other]));
      }
    }
  }
}

TEST(CtcTest, KernelsDependOnNoSizeOfTheBatch) {
  const auto texts = [](int64_t frames, int64_t samples) {
    CtcBatch b = {.frames = frames, .samples = samples, .symbols = 30, .max_label = 20};
    b.labels.assign(static_cast<size_t>(20 * samples), 1);
    const auto plan = Compile(GraphOf(b), *TargetFromArch("sm_90a"));
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    std::string all;
    for (const KernelSource& kernel : plan->program.kernels) all += kernel.text;
    return all;
  };
  EXPECT_EQ(texts(100, 8), texts(150, 16));
}

// ---- the verifier

std::string Sentence(const std::function<void(Graph&)>& change) {
  CtcBatch b = RandomBatch(1, {}, false);
  b.skip_infeasible = true;
  Graph g = GraphOf(b);
  change(g);
  return graph::Verify(g).message();
}

TEST(CtcTest, VerifierSaysWhatIsWrong) {
  const auto attrs = [](Graph& g) -> graph::CtcLossAttrs& {
    return std::get<graph::CtcLossAttrs>(g.nodes[0].attrs);
  };
  EXPECT_EQ(Sentence([](Graph&) {}), "");
  const struct {
    std::function<void(Graph&)> change;
    const char* says;
  } rows[] = {
      {[](Graph& g) { g.nodes[0].compute = DType::kI32; }, "none of f32, f64"},
      {[](Graph& g) { g[Find(g, kProbs)].dtype = DType::kI32; }, "probs %p is i32"},
      {[](Graph& g) { g[Find(g, kLabels)].dtype = DType::kI64; }, "labels %l are i64"},
      {[](Graph& g) { g[Find(g, kInputLengths)].dims[0] += 1; }, "input lengths"},
      {[](Graph& g) { g[Find(g, kCosts)].dims[0] += 1; }, "a cost for each sample"},
      {[](Graph& g) { g[Find(g, kGradients)].dims[2] += 1; }, "the gradient of probs"},
      {[&](Graph& g) { attrs(g).max_label = -1; }, "max_label is -1"},
      {[&](Graph& g) { attrs(g).skip_infeasible = false; }, "`before` is an operand where"},
  };
  for (const auto& row : rows)
    EXPECT_NE(Sentence(row.change).find(row.says), std::string::npos)
        << row.says << ": " << Sentence(row.change);
}

// Costs that neither the caller nor another node wants have a place all the same.
TEST(CtcTest, CostsThatNobodyWants) {
  const auto g = graph::Parse(R"(graph g {
  tensor %p uid=1 f32 [3,2,4]
  tensor %l uid=2 i32 [2]
  tensor %n uid=3 i32 [2]
  tensor %t uid=4 i32 [2]
  tensor %c f32 [2] virtual
  tensor %d uid=5 f32 [3,2,4]
  %c, %d = ctc_loss(%p, %l, %n, %t) compute=f32 softmax max_label=1
})");
  ASSERT_TRUE(g.ok()) << g.status().message();
  EXPECT_EQ(CheckOnBoth(*g, graph::RandomInputs(*g, 3), 2e-5).message(), "");
}

}  // namespace
}  // namespace kiln::compiler
