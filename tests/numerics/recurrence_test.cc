// Loops over time by the persistent engines, whatever the model would take, against the interpreter
// in f64: random cells, widths, numbers of sequences and directions; sequences that end early;
// operands that are there or not; some splits of the work. RECURRENCE_TEST_CASES: how many.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "cli/bindings.h"
#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/recurrence/plan.h"
#include "compiler/engines/registry.h"
#include "ir/graph/ops.h"
#include "ir/graph/rnn.h"
#include "runtime/device_select.h"
#include "runtime/executable.h"

namespace kiln {
namespace {

using compiler::EngineChoice;
using graph::Graph;
using graph::kAbsent;
using graph::RnnCell;
using graph::TensorId;
using graph::TensorValues;

struct LoopCase {
  RnnCell cell = RnnCell::kLstm;
  DType type = DType::kF16;
  int64_t steps = 1, batch = 1, directions = 1, hidden = 1;
  int64_t projected = 0;  // 0: states are not projected
  bool is_grad = false, has_lengths = false, has_states = false, has_bias = false, trains = false,
       clips = false;
  bool exact = false;     // f32 that is not rounded to TF32
  bool on_wgmma = false;  // by recurrence_sm90
  bool by_steps = false;  // by recurrence_steps

  std::string Text() const {
    return fmt::format("{} {} of {}, T {} B {} D {} H {} P {}{}{}{}{}{}{}", graph::Text(cell),
                       is_grad ? "gradient" : "steps", exact ? "exact f32" : Info(type).text, steps,
                       batch, directions, hidden, projected, has_lengths ? ", lengths" : "",
                       has_states ? ", states" : "", has_bias ? ", bias" : "",
                       trains ? ", training" : "", clips ? ", clip" : "",
                       on_wgmma   ? ", on wgmma"
                       : by_steps ? ", by steps"
                                  : "");
  }
};

class LoopGraph {
 public:
  LoopGraph(const LoopCase& c, uint64_t seed) : c_(c), random_(seed) {
    const auto [gates, kept, gradients] = graph::BlocksOf(c.cell);
    const int64_t h = c.hidden, d = c.directions, p = c.projected > 0 ? c.projected : h;
    const Dims cell = {d, c.batch, h}, state = {d, c.batch, p}, y = {c.steps, c.batch, d * p};
    const auto of_steps = [&](int64_t blocks) { return Dims{c.steps, c.batch, d, blocks * h}; };
    const bool lstm = c.cell == RnnCell::kLstm;
    graph::RecurrenceAttrs attrs{.cell = c.cell};
    if (c.clips) attrs.clip = true, attrs.clip_lower = -0.5, attrs.clip_upper = 0.5;
    const TensorId r = Input(c.type, {d, gates * h, p}, 1 / std::sqrt(static_cast<double>(p)));
    const auto maybe = [&](bool there, DType type, const Dims& dims) {
      return there ? Input(type, dims, 1) : kAbsent;
    };
    const TensorId hx = maybe(c.has_states, c.type, state),
                   cx = maybe(c.has_states && lstm, c.type, cell), lengths = Lengths();
    const TensorId projection =
        c.projected > 0 ? Input(c.type, {d, p, h}, 1 / std::sqrt(static_cast<double>(h))) : kAbsent;
    graph::Node node{
        .op = c.is_grad ? graph::GraphOp::kRecurrenceGrad : graph::GraphOp::kRecurrence,
        .compute = DType::kF32,
        .attrs = attrs,
        .name = ""};
    if (!c.is_grad) {
      const TensorId xg = Input(DType::kF32, of_steps(gates), 1),
                     bias = maybe(c.has_bias, c.type, {d, gates * h});
      node.inputs = {xg, r, bias, hx, cx, projection, lengths};
      node.outputs = {Output(c.type, y), Output(c.type, state), kAbsent, kAbsent, kAbsent, kAbsent};
      if (lstm) node.outputs[2] = Output(c.type, cell);
      if (c.trains) node.outputs[3] = Output(c.type, of_steps(kept));
      if (c.trains && lstm) node.outputs[4] = Output(c.type, of_steps(1));
      if (c.trains && c.projected > 0) node.outputs[5] = Output(c.type, of_steps(1));
    } else {
      const TensorId dy = Input(c.type, y, 1), kept_gates = Input(c.type, of_steps(kept), 1),
                     own = Input(c.type, y, 1), cells = maybe(lstm, c.type, of_steps(1)),
                     dhy = maybe(c.has_states, c.type, state),
                     dcy = maybe(c.has_states && lstm, c.type, cell);
      node.inputs = {dy, r, kept_gates, own, cells, hx, cx, dhy, dcy, projection, lengths};
      node.outputs = {Output(c.type, of_steps(gradients)), Output(c.type, state), kAbsent, kAbsent};
      if (lstm) node.outputs[2] = Output(c.type, cell);
      if (c.projected > 0) node.outputs[3] = Output(c.type, {c.steps, c.batch, d, p});
    }
    graph_.AddNode(std::move(node));
  }

  const Graph& graph() const { return graph_; }
  const TensorValues& inputs() const { return inputs_; }

 private:
  TensorId Add(DType type, Dims dims) {
    Dims strides = PackedStrides(dims);
    const int64_t uid = ++uids_;
    return graph_.AddTensor({.name = fmt::format("t{}", uid),
                             .uid = uid,
                             .dtype = type,
                             .dims = std::move(dims),
                             .strides = std::move(strides)});
  }
  TensorId Output(DType type, Dims dims) { return Add(type, std::move(dims)); }
  TensorId Input(DType type, const Dims& dims, double scale) {
    const TensorId id = Add(type, dims);
    std::vector<double>& values = inputs_[id];
    values.resize(static_cast<size_t>(NumElements(dims)));
    for (double& v : values)
      v = RoundTo(type, std::uniform_real_distribution<double>(-scale, scale)(random_));
    return id;
  }
  TensorId Lengths() {
    if (!c_.has_lengths) return kAbsent;
    const TensorId id = Add(DType::kI32, {c_.batch});
    for (int64_t b = 0; b < c_.batch; ++b)
      inputs_[id].push_back(
          static_cast<double>(std::uniform_int_distribution<int64_t>(0, c_.steps)(random_)));
    return id;
  }

  const LoopCase c_;
  std::mt19937_64 random_;
  Graph graph_;
  TensorValues inputs_;
  int64_t uids_ = 0;
};

runtime::Device& TheDevice() {
  Result<runtime::Device*> device = runtime::DefaultDevice();
  if (!device.ok()) {
    ADD_FAILURE() << device.status().message();
    std::abort();
  }
  return **device;
}

const char* EngineOf(const LoopCase& c) {
  if (c.by_steps) return c.type == DType::kF32 ? "recurrence_steps_tf32" : "recurrence_steps";
  if (c.on_wgmma) return c.type == DType::kF32 ? "recurrence_sm90_tf32" : "recurrence_sm90";
  if (c.type != DType::kF32) return "recurrence_sm80";
  return c.exact ? "recurrence_sm80_f32" : "recurrence_sm80_tf32";
}

// Outputs of `times` runs of the plan.
std::vector<TensorValues> Run(const LoopGraph& loop, const EngineChoice& choice, int times) {
  runtime::Device& device = TheDevice();
  std::vector<TensorValues> all;
  Result<compiler::CompiledPlan> plan = compiler::Compile(loop.graph(), device.target(), choice);
  if (!plan.ok()) {
    ADD_FAILURE() << plan.status().message();
    return all;
  }
  EXPECT_EQ(plan->engine, choice.engine);
  const auto executable = runtime::Executable::Create(device, std::move(plan->program));
  if (!executable.ok()) {
    ADD_FAILURE() << executable.status().message();
    return all;
  }
  const auto bindings =
      cli::Bindings::Make(device, loop.graph(), (*executable)->program(), loop.inputs());
  for (int i = 0; bindings.ok() && i < times; ++i) {
    const Status status =
        (*executable)->Execute(bindings->pointers(), bindings->workspace(), nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(device.Synchronize(nullptr).ok());
    TensorValues got;
    for (const TensorId id : graph::Outputs(loop.graph())) {
      const auto values = bindings->Read(device, loop.graph()[id]);
      EXPECT_TRUE(values.ok()) << values.status().message();
      if (values.ok()) got[id] = *values;
    }
    all.push_back(std::move(got));
  }
  return all;
}

// States round to the type at each step, and operands of products to it or to TF32, whose last
// place is that of f16. An error of one rounding grows by little in a few steps of such weights.
double Tolerance(const LoopCase& c) {
  const double place = c.exact ? 0x1p-21 : c.type == DType::kBF16 ? 0x1p-9 : 0x1p-12;
  return place * 6 * (1 + std::sqrt(static_cast<double>(c.steps)));
}

void ExpectRight(const LoopCase& c, uint64_t seed,
                 const std::vector<compiler::KnobSetting>& knobs) {
  SCOPED_TRACE(fmt::format("{}, seed {}", c.Text(), seed));
  const LoopGraph loop(c, seed);
  TensorValues want = loop.inputs();
  ASSERT_TRUE(graph::Evaluate(loop.graph(), want).ok());
  const EngineChoice choice{.engine = compiler::EngineIndex(EngineOf(c)), .knobs = knobs};
  const std::vector<TensorValues> runs = Run(loop, choice, 2);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0], runs[1]) << "two runs differ";
  for (const auto& [id, got] : runs[0]) {
    double most = 0.1, worst = 0;
    for (const double v : want.at(id)) most = std::max(most, std::abs(v));
    size_t at = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(got[i] - want.at(id)[i]);
      if (error <= worst) continue;
      worst = std::isnan(error) ? HUGE_VAL : error;
      at = i;
    }
    EXPECT_LE(worst, Tolerance(c) * most) << loop.graph()[id].name << " at " << at << ": "
                                          << got[at] << ", by the interpreter " << want.at(id)[at];
  }
}

LoopCase Draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
  };
  const auto chance = [&] { return below(2) == 0; };
  LoopCase c;
  c.cell = static_cast<RnnCell>(below(4));
  c.type = std::array{DType::kF16, DType::kBF16, DType::kF32}[static_cast<size_t>(below(3))];
  c.steps = 1 + below(5);
  c.batch = 1 + below(20);
  c.directions = 1 + below(2);
  c.hidden = std::array<int64_t, 8>{1, 3, 7, 16, 33, 40, 64, 96}[static_cast<size_t>(below(8))];
  c.is_grad = chance();
  c.has_lengths = chance();
  c.has_states = chance();
  c.has_bias = chance();
  c.trains = chance();
  c.clips = c.cell == RnnCell::kLstm && chance();
  c.exact = c.type == DType::kF32 && chance();
  if (c.cell == RnnCell::kLstm && chance()) c.projected = 1 + below(c.hidden);
  return c;
}

TEST(Recurrence, RandomLoopsRunRight) {
  const char* const wish = std::getenv("RECURRENCE_TEST_CASES");
  const uint64_t cases = wish != nullptr ? std::strtoull(wish, nullptr, 10) : 300;
  for (uint64_t seed = 1; seed <= cases && !::testing::Test::HasFailure(); ++seed)
    ExpectRight(Draw(seed), seed, {});
}

// Blocks of few and of many units, groups of sequences one behind the other, and both ways to say
// that states are there.
TEST(Recurrence, SplitsRunRight) {
  for (const bool is_grad : {false, true})
    for (const int units : {2, 10, 32})
      for (const int columns : {8, 32})
        for (const int exchange : {compiler::kCounted, compiler::kNumbered})
          ExpectRight({.steps = 3,
                       .batch = 37,
                       .hidden = 48,
                       .is_grad = is_grad,
                       .has_lengths = true,
                       .has_states = true,
                       .trains = true},
                      7, {{"units", units}, {"sequences", columns}, {"exchange", exchange}});
}

// Groups that are clusters: units that do not fill the last block, or exactly; sequences that do
// not fill the last group; f32, whose pieces are of four.
TEST(Recurrence, ClustersRunRight) {
  if (TheDevice().target().sm_version < 90) return;
  struct Row {
    RnnCell cell;
    DType type;
    int64_t steps, batch, directions, hidden;
    int units, columns;
  };
  // Clusters of more than 8 blocks run where a GPC has as many multiprocessors.
  const int few = TheDevice().target().multiprocessors >= 128 ? 8 : 16;
  const Row rows[] = {{RnnCell::kLstm, DType::kF16, 5, 11, 1, 64, 16, 8},
                      {RnnCell::kLstm, DType::kBF16, 3, 37, 2, 40, 16, 32},
                      {RnnCell::kGru, DType::kF16, 4, 17, 2, 128, few, 8},
                      {RnnCell::kTanh, DType::kF32, 1, 3, 1, 44, 12, 8},
                      {RnnCell::kLstm, DType::kF32, 6, 20, 2, 64, 8, 16},
                      {RnnCell::kRelu, DType::kF16, 2, 9, 1, 208, 32, 16}};
  for (const Row& row : rows)
    for (const bool is_grad : {false, true})
      ExpectRight(
          {.cell = row.cell,
           .type = row.type,
           .steps = row.steps,
           .batch = row.batch,
           .directions = row.directions,
           .hidden = row.hidden,
           .is_grad = is_grad,
           .has_lengths = row.steps % 2 == 1,
           .has_states = true,
           .has_bias = true,
           .trains = true},
          13,
          {{"units", row.units}, {"sequences", row.columns}, {"exchange", compiler::kClustered}});
}

// A projection beside it, of whole pieces and odd, and of fewer units than there are blocks.
TEST(Recurrence, ProjectionsRunRight) {
  struct Row {
    int64_t hidden, projected, directions;
    int units, exchange;
  };
  const Row rows[] = {{48, 16, 1, 32, compiler::kCounted},
                      {48, 16, 2, 32, compiler::kNumbered},
                      {56, 8, 2, 4, compiler::kCounted},
                      {56, 8, 1, 4, compiler::kNumbered},
                      {33, 7, 1, 8, compiler::kCounted}};
  for (const bool is_grad : {false, true})
    for (const Row& row : rows)
      ExpectRight({.steps = 4,
                   .batch = 19,
                   .directions = row.directions,
                   .hidden = row.hidden,
                   .projected = row.projected,
                   .is_grad = is_grad,
                   .has_lengths = true,
                   .has_states = true,
                   .has_bias = true,
                   .trains = true,
                   .clips = row.hidden == 33},
                  9, {{"units", row.units}, {"sequences", 8}, {"exchange", row.exchange}});
}

// A share of the matrix is in shared memory; what that does not hold, either, is read at each step.
TEST(Recurrence, SharedMemoryHoldsTheRest) {
  for (const bool is_grad : {false, true})
    ExpectRight({.steps = 2,
                 .batch = 11,
                 .hidden = is_grad ? 600 : 500,
                 .is_grad = is_grad,
                 .has_lengths = true,
                 .trains = true},
                5, {{"units", 64}, {"sequences", 16}});
  ExpectRight({.type = DType::kF32, .steps = 2, .batch = 11, .hidden = 600, .exact = true}, 6,
              {{"units", 20}, {"sequences", 8}});
}

// Both matrices of a network with projections are streamed.
TEST(Recurrence, ProjectionsAreStreamed) {
  for (const bool is_grad : {false, true})
    ExpectRight({.type = DType::kF32,
                 .steps = 2,
                 .batch = 11,
                 .hidden = 1000,
                 .projected = 600,
                 .is_grad = is_grad,
                 .has_lengths = true,
                 .trains = true},
                3, {{"units", 64}, {"sequences", 16}});
}

TEST(Recurrence, StreamsRunRight) {
  for (const bool is_grad : {false, true})
    for (const DType type : {DType::kF16, DType::kF32})
      ExpectRight({.type = type,
                   .steps = 2,
                   .batch = 11,
                   .hidden = type == DType::kF32 ? 520 : 1000,
                   .is_grad = is_grad,
                   .has_lengths = true,
                   .trains = true},
                  3, {{"units", 64}, {"sequences", 16}});
}

// ---- the engine on wgmma

bool HasWgmma() { return TheDevice().target().sm_version == 90; }

TEST(RecurrenceOnWgmma, RandomLoopsRunRight) {
  if (!HasWgmma()) return;
  const char* const wish = std::getenv("RECURRENCE_TEST_CASES");
  const uint64_t cases = wish != nullptr ? std::strtoull(wish, nullptr, 10) : 100;
  for (uint64_t seed = 1000; seed < 1000 + cases && !::testing::Test::HasFailure(); ++seed) {
    LoopCase c = Draw(seed);
    c.exact = false;
    c.projected = 0;
    c.batch *= 1 + static_cast<int64_t>(seed % 8);
    c.on_wgmma = true;
    ExpectRight(c, seed, {});
  }
}

// A launch of a product and one of cells a step, of whatever matrices tensor maps reach.
TEST(RecurrenceBySteps, RandomLoopsRunRight) {
  if (!HasWgmma()) return;
  const char* const wish = std::getenv("RECURRENCE_TEST_CASES");
  const uint64_t cases = wish != nullptr ? std::strtoull(wish, nullptr, 10) : 60;
  for (uint64_t seed = 3000; seed < 3000 + cases && !::testing::Test::HasFailure(); ++seed) {
    LoopCase c = Draw(seed);
    c.exact = false;
    c.projected = 0;
    c.hidden = AlignUp(c.hidden, 8);
    c.by_steps = true;
    ExpectRight(c, seed, {});
  }
}

// Units and sequences that do not fill blocks; sequences that end early, in both directions; a
// matrix in shared memory, and one of which a part is streamed for two groups of sequences, whose
// blocks share it; groups one behind the other; depths that clusters share.
TEST(RecurrenceOnWgmma, SplitsRunRight) {
  if (!HasWgmma()) return;
  struct Row {
    RnnCell cell;
    DType type;
    int64_t batch, directions, hidden;
    int units, columns, split;
  };
  const Row rows[] = {{RnnCell::kLstm, DType::kF16, 5, 1, 24, 8, 64, 1},
                      {RnnCell::kLstm, DType::kBF16, 70, 2, 40, 16, 64, 2},
                      {RnnCell::kGru, DType::kF16, 70, 1, 44, 12, 64, 4},
                      {RnnCell::kTanh, DType::kF16, 130, 2, 72, 24, 128, 2},
                      {RnnCell::kRelu, DType::kF32, 9, 1, 33, 16, 64, 1},
                      {RnnCell::kLstm, DType::kF32, 70, 1, 64, 16, 128, 4},
                      {RnnCell::kLstm, DType::kF16, 200, 2, 80, 20, 64, 1}};
  for (const Row& row : rows)
    for (const bool is_grad : {false, true})
      ExpectRight({.cell = row.cell,
                   .type = row.type,
                   .steps = 3,
                   .batch = row.batch,
                   .directions = row.directions,
                   .hidden = row.hidden,
                   .is_grad = is_grad,
                   .has_lengths = true,
                   .has_states = true,
                   .has_bias = true,
                   .trains = true,
                   .clips = row.cell == RnnCell::kLstm && row.directions == 2,
                   .on_wgmma = true},
                  11, {{"units", row.units}, {"sequences", row.columns}, {"split", row.split}});
}

// The part of a matrix that shared memory does not hold is streamed, for all groups of sequences
// and for each block of a cluster its share.
TEST(RecurrenceOnWgmma, StreamsRunRight) {
  if (!HasWgmma()) return;
  for (const int split : {0, 1, 2})
    ExpectRight(
        {.type = split > 0 ? DType::kF32 : DType::kF16,
         .steps = 2,
         .batch = 70,
         .hidden = split > 0 ? 100 : 456,
         .is_grad = split > 0,
         .has_lengths = true,
         .has_states = true,
         .trains = true,
         .on_wgmma = true},
        3, {{"units", split > 0 ? 160 : 40}, {"sequences", 64}, {"split", std::max(split, 1)}});
}

}  // namespace
}  // namespace kiln
