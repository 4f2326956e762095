// Recurrent networks through the compiler: passes and the generic engine's kernels for GPUs and the
// CPU, in the tile interpreter, against the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string_view>
#include <tuple>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/recurrence/plan.h"
#include "compiler/engines/registry.h"
#include "compiler/machine/machine.h"
#include "tests/support/rnn_case.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::RnnCell;
using testing::RnnCase;
using testing::RnnGraph;

void ExpectRight(const RnnCase& c, bool training, const char* arch,
                 const EngineChoice& choice = {}) {
  SCOPED_TRACE(c.Text() + " " + arch);
  const RnnGraph g = training ? TrainingGraph(c) : InferenceGraph(c);
  const Result<TileRun> run =
      CheckTiles(g.graph, *TargetFromArch(arch), g.inputs, choice, RnnTolerance(c));
  ASSERT_TRUE(run.ok()) << run.status().message();
  graph::TensorValues got = run->outputs;
  ASSERT_EQ(CompareRnn(c, g, got, training, RnnTolerance(c)), "");
}

TEST(Rnn, RandomNetworksRunRight) {
  const char* archs[] = {"sm_90a", "cpu"};
  for (uint64_t seed = 1; seed <= 200 && !HasFatalFailure(); ++seed) {
    const RnnCase c = testing::RandomRnnCase(seed);
    ExpectRight(c, seed % 4 != 0, archs[seed % 2]);
  }
}

// A loop and its gradient by themselves, as the engine runs them with every value of its knobs.
graph::Graph Loop(bool gradient) {
  const auto g = graph::Parse(gradient ? R"(graph g {
  tensor %dy uid=1 f32 [3,5,8]
  tensor %r uid=2 f32 [2,20,4]
  tensor %gates uid=3 f32 [3,5,2,20]
  tensor %y uid=4 f32 [3,5,8]
  tensor %cells uid=5 f32 [3,5,2,5]
  tensor %projection uid=6 f32 [2,4,5]
  tensor %lengths uid=7 i32 [5]
  tensor %dgates uid=8 f32 [3,5,2,20]
  tensor %dhx uid=9 f32 [2,5,4]
  tensor %dcx uid=10 f32 [2,5,5]
  tensor %dp uid=11 f32 [3,5,2,4]
  %dgates, %dhx, %dcx, %dp = recurrence_grad(%dy, %r, %gates, %y, %cells, _, _, _, _, %projection, %lengths) compute=f32 cell=lstm
})"
                                       : R"(graph g {
  tensor %xg uid=1 f32 [3,5,2,20]
  tensor %r uid=2 f32 [2,20,4]
  tensor %projection uid=3 f32 [2,4,5]
  tensor %lengths uid=4 i32 [5]
  tensor %y uid=5 f32 [3,5,8]
  tensor %hy uid=6 f32 [2,5,4]
  tensor %cy uid=7 f32 [2,5,5]
  %y, %hy, %cy = recurrence(%xg, %r, _, _, _, %projection, %lengths) compute=f32 cell=lstm
})");
  EXPECT_TRUE(g.ok()) << g.status().message();
  return *g;
}

TEST(Recurrence, EveryKnobRunsRight) {
  const int engine = EngineIndex("recurrence");
  for (const bool gradient : {false, true}) {
    const graph::Graph g = Loop(gradient);
    graph::TensorValues inputs;
    for (const graph::TensorId id : graph::Inputs(g)) {
      std::vector<double>& values = inputs[id];
      values.resize(static_cast<size_t>(NumElements(g[id].dims)));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = g[id].dtype == DType::kI32 ? static_cast<double>(i * 2 % 5) - 1
                                               : static_cast<double>(i * 7 % 11) / 16 - 0.25;
    }
    for (const KnobRow& row : Engines()[static_cast<size_t>(engine)].knobs) {
      for (const int value : row.domain) {
        for (const char* arch : {"sm_90a", "cpu"}) {
          SCOPED_TRACE(fmt::format("{} {}={}", arch, row.name, value));
          const Result<TileRun> run = CheckTiles(g, *TargetFromArch(arch), inputs,
                                                 {.engine = engine, .knobs = {{row.name, value}}});
          ASSERT_TRUE(run.ok()) << run.status().message();
          EXPECT_EQ(run->plan.engine, engine);
        }
      }
    }
  }
}

// All products are 1 + 2^-17: an f32 chain adds 128 of them exactly, and loses the fraction of each
// that it goes on with.
TEST(Recurrence, LongSumsHaveShortChains) {
  constexpr int64_t kUnits = 512;
  const auto g = graph::Parse(R"(graph g {
  tensor %xg uid=1 f32 [1,1,1,512]
  tensor %r uid=2 f32 [1,512,512]
  tensor %hx uid=3 f32 [1,1,512]
  tensor %y uid=4 f32 [1,1,512]
  %y = recurrence(%xg, %r, _, %hx) compute=f32 cell=relu
})");
  ASSERT_TRUE(g.ok()) << g.status().message();
  const double value = 1 + 0x1p-17, want = value * kUnits;
  graph::TensorValues inputs;
  for (const graph::TensorId id : graph::Inputs(*g))
    inputs[id].assign(static_cast<size_t>(NumElements((*g)[id].dims)), (*g)[id].uid == 1   ? 0
                                                                       : (*g)[id].uid == 2 ? value
                                                                                           : 1);
  for (const char* arch : {"sm_90a", "cpu"}) {
    SCOPED_TRACE(arch);
    const Result<TileRun> run =
        RunTiles(*g, *TargetFromArch(arch), inputs, {.engine = EngineIndex("recurrence")});
    ASSERT_TRUE(run.ok()) << run.status().message();
    for (const double got : run->outputs.at(graph::Outputs(*g)[0]))
      ASSERT_NEAR(got / want, 1, 0x1p-23 * std::sqrt(static_cast<double>(kUnits)));
  }
}

// A loop of `hidden` units that the persistent engines take for its types.
graph::Graph HalfLoop(int64_t hidden, bool is_projected) {
  const auto g = graph::Parse(fmt::format(R"(graph g {{
  tensor %xg uid=1 f16 [3,5,1,{0}]
  tensor %r uid=2 f16 [1,{0},{1}]
  tensor %p uid=3 f16 [1,{1},{1}]
  tensor %y uid=4 f16 [3,5,{1}]
  %y = recurrence(%xg, %r, _, _, _, {2}) compute=f32 cell=lstm
}})",
                                          4 * hidden, hidden, is_projected ? "%p" : "_"));
  EXPECT_TRUE(g.ok()) << g.status().message();
  return *g;
}

std::string WhyDeclined(const graph::Graph& g, const Target& target, const char* engine) {
  const auto plan = Compile(g, target, {.engine = EngineIndex(engine)});
  EXPECT_FALSE(plan.ok());
  return plan.ok() ? "" : plan.status().message();
}

// Blocks that wait for one another are launched together, or not at all: where they do not fit,
// the generic engine takes the loop.
TEST(Recurrence, GridsThatDoNotFitAreDeclined) {
  Target target = *TargetFromArch("sm_90a");
  const graph::Graph g = HalfLoop(512, false);
  const auto by = [&](int exchange) {
    return Compile(g, target,
                   {.engine = EngineIndex("recurrence_sm80"), .knobs = {{"exchange", exchange}}});
  };
  const auto all = by(kCounted), clusters = by(kClustered);
  ASSERT_TRUE(all.ok()) << all.status().message();
  const Launch& loop = all->program.launches.back();
  EXPECT_TRUE(loop.cooperative);
  EXPECT_FALSE(loop.may_overlap);
  EXPECT_LE(loop.grid[0], 132u);
  // Clusters wait for nobody else, and nothing has to be 0 before them.
  ASSERT_TRUE(clusters.ok()) << clusters.status().message();
  EXPECT_FALSE(clusters->program.launches.back().cooperative);
  EXPECT_TRUE(clusters->program.launches.back().may_overlap);
  EXPECT_EQ(clusters->program.launches.size() + 1, all->program.launches.size());
  const auto projected =
      Compile(HalfLoop(512, true), target, {.engine = EngineIndex("recurrence_sm80")});
  ASSERT_TRUE(projected.ok()) << projected.status().message();
  EXPECT_TRUE(projected->program.launches.back().cooperative);
  target.multiprocessors = 7;
  EXPECT_NE(WhyDeclined(g, target, "recurrence_sm80").find("8 blocks that wait for one another"),
            std::string::npos)
      << WhyDeclined(g, target, "recurrence_sm80");
  const auto steps = Compile(g, target);
  ASSERT_TRUE(steps.ok()) << steps.status().message();
  EXPECT_EQ(steps->engine, EngineIndex("recurrence_steps"));
  Target older = *TargetFromArch("sm_80");
  older.multiprocessors = 7;
  const auto generic = Compile(g, older);
  ASSERT_TRUE(generic.ok()) << generic.status().message();
  EXPECT_EQ(generic->engine, EngineIndex("recurrence"));
}

// Clusters of four leave multiprocessors of a GPC idle: all of a grid must have room on every
// board.
TEST(Recurrence, ClustersThatMayNotFitAreDeclined) {
  const Target target = *TargetFromArch("sm_90a");
  const auto compile = [&](int64_t hidden, int split) {
    return Compile(HalfLoop(hidden, false), target,
                   {.engine = EngineIndex("recurrence_sm90"),
                    .knobs = {{"units", 32}, {"sequences", 64}, {"split", split}}});
  };
  const auto fits = compile(29 * 32, 4);
  ASSERT_TRUE(fits.ok()) << fits.status().message();
  EXPECT_EQ(fits->program.launches.back().grid[0], 116u);
  EXPECT_TRUE(fits->program.launches.back().cooperative);
  const auto pairs = compile(66 * 32, 2);
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  EXPECT_EQ(pairs->program.launches.back().grid[0], 132u);
  for (const auto& [hidden, split, part] :
       {std::tuple(30 * 32, 4, "120 blocks that wait for one another, and 116 run at a time"),
        std::tuple(67 * 32, 2, "134 blocks that wait for one another, and 132 run at a time")}) {
    const auto declined = compile(hidden, split);
    ASSERT_FALSE(declined.ok()) << hidden;
    EXPECT_NE(declined.status().message().find(part), std::string::npos)
        << declined.status().message();
  }
}

TEST(Recurrence, PersistentEnginesSayWhatTheyDoNotTake) {
  const Target target = *TargetFromArch("sm_90a");
  struct Row {
    graph::Graph graph;
    const char *arch, *engine, *part;
  };
  const Row rows[] = {
      {HalfLoop(16, false), "sm_75", "recurrence_sm80", "needs sm_80"},
      {HalfLoop(16, false), "sm_90a", "recurrence_sm80_tf32", "it multiplies f32 as TF32"},
      {Loop(false), "sm_90a", "recurrence_sm80", "it multiplies f16 and bf16"},
      {HalfLoop(16, false), "sm_80", "recurrence_sm90", "needs sm_90a"},
      {HalfLoop(16, false), "sm_90a", "recurrence_sm90_tf32", "it multiplies f32 as TF32"},
      {HalfLoop(16, true), "sm_90a", "recurrence_sm90", "states are projected"},
      {HalfLoop(16, false), "sm_90a", "recurrence_stack_sm80", "no recurrent layers one above"}};
  for (const Row& row : rows) {
    const auto arch = TargetFromArch(row.arch);
    if (!arch.ok()) continue;  // too old to be known
    const std::string why = WhyDeclined(row.graph, *arch, row.engine);
    EXPECT_NE(why.find(row.part), std::string::npos) << why;
  }
  Target minimal = target;
  minimal.minimal_launch = true;
  const std::string why = WhyDeclined(HalfLoop(16, false), minimal, "recurrence_sm80");
  EXPECT_NE(why.find("KILN_LAUNCH=minimal"), std::string::npos) << why;
}

// Layers of one direction are a group where the model likes that, forward and backward, whatever
// lies between them; both directions need the layer below as a whole, and so do other widths.
TEST(RecurrenceStack, IsFoundWhereItPays) {
  struct Row {
    const char* what;
    RnnCase network;
    int64_t stacks;  // of inference and of data gradients
  };
  const auto network = [](graph::RnnAttrs attrs, int64_t projected = 0) {
    attrs.projected = projected == 0 ? attrs.hidden : projected;
    return RnnCase{.attrs = attrs, .type = DType::kF16, .steps = 40, .batch = 16, .input = 24};
  };
  RnnCase packed = network({.cell = RnnCell::kGru, .layers = 3, .hidden = 64});
  packed.layout = testing::RnnLayout::kPacked;
  for (int64_t b = 0; b < packed.batch; ++b) packed.lengths.push_back(packed.steps - b);
  RnnCase exact = network({.cell = RnnCell::kLstm, .layers = 2, .hidden = 64});
  exact.type = DType::kF32;
  RnnCase large = network({.cell = RnnCell::kLstm, .layers = 2, .hidden = 1024});
  large.batch = 64;
  const Row rows[] = {
      {"lstm", network({.cell = RnnCell::kLstm, .layers = 2, .hidden = 64}), 1},
      {"dropout", network({.cell = RnnCell::kTanh, .layers = 4, .hidden = 64, .dropout = 0.5}), 1},
      {"packed", packed, 1},
      {"one layer", network({.cell = RnnCell::kLstm, .layers = 1, .hidden = 64}), 0},
      {"exact", exact, 0},
      {"matrices that a chip does not hold twice", large, 0},
      {"projected", network({.cell = RnnCell::kLstm, .layers = 2, .hidden = 64}, 32), 0},
      {"both directions",
       network({.cell = RnnCell::kLstm, .layers = 2, .hidden = 64, .bidirectional = true}), 0}};
  for (const Row& row : rows) {
    for (const bool trains : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", row.what, trains ? "training" : "inference"));
      const RnnGraph g = trains ? TrainingGraph(row.network) : InferenceGraph(row.network);
      const auto plan = Compile(g.graph, *TargetFromArch("sm_90a"));
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const auto stacks = std::ranges::count_if(plan->groups, [](const GroupReport& group) {
        return group.engine == "recurrence_stack_sm80";
      });
      EXPECT_EQ(stacks, trains ? 2 * row.stacks : row.stacks);
    }
  }
}

// An architecture without a row has that of the one before it.
TEST(Machine, RowsHoldUpToTheNext) {
  const auto version = [](const char* arch) { return MachineOf(*TargetFromArch(arch)).sm_version; };
  EXPECT_EQ(version("sm_80"), 80);
  EXPECT_EQ(version("sm_90a"), 90);
  EXPECT_EQ(version("sm_103a"), 100);
  EXPECT_EQ(version("sm_120a"), 120);
}

TEST(Recurrence, OtherGroupsAreDeclined) {
  const auto g = graph::Parse(R"(graph g {
  tensor %x uid=1 f32 [4]
  tensor %y uid=2 f32 [4]
  %y = pointwise(%x) compute=f32 mode=relu_fwd
})");
  ASSERT_TRUE(g.ok());
  const Target target = *TargetFromArch("sm_90a");
  const auto plan = Compile(*g, target, {.engine = EngineIndex("recurrence")});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("the group has no recurrence"), std::string::npos)
      << plan.status().message();
}

// Gradients of the weights of sequences of one length.
graph::Graph WeightGradients(const char* type, const char* cell, int64_t steps, int64_t batch,
                             int64_t hidden, int64_t layers = 1, int64_t directions = 1) {
  const bool is_gru = std::string_view(cell) == "gru", is_tanh = std::string_view(cell) == "tanh";
  const int64_t gates = is_tanh ? 1 : is_gru ? 3 : 4, kept = is_tanh ? 1 : 4;
  const int64_t of_layer = steps * batch * hidden, cells = is_gru || is_tanh ? 0 : 1;
  int64_t weights = 0;
  for (int64_t layer = 0; layer < layers; ++layer)
    weights += directions * gates * hidden * (hidden * (layer == 0 ? 1 : directions) + hidden + 2);
  const auto g = graph::Parse(fmt::format(
      R"(graph g {{
  tensor %x uid=1 {0} [{1},{2},{3}]
  tensor %y uid=2 {0} [{1},{2},{9}]
  tensor %reserve uid=3 {0} [{4}]
  tensor %gradients uid=4 {0} [{5}]
  tensor %hx uid=5 {0} [{8},{2},{3}]
  tensor %before uid=6 {0} [{6}]
  tensor %dw uid=7 {0} [{6}]
  %dw = rnn_backward_weights(%x, %y, %reserve, %gradients, %hx, _, %before) compute=f32 cell={7} hidden={3} projected={3} layers={10} bias=double{11}
}})",
      type, steps, batch, hidden, of_layer * directions * (layers * (kept + cells) + layers - 1),
      of_layer * directions * layers * kept, weights, cell, layers * directions,
      directions * hidden, layers, directions == 2 ? " bidirectional" : ""));
  EXPECT_TRUE(g.ok()) << g.status().message();
  return *g;
}

struct Counts {
  int contractions = 0, moves = 0, others = 0;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& c) {
  return out << c.contractions << " contractions, " << c.moves << " moves, " << c.others
             << " others";
}
Counts GroupsOfWeights(const graph::Graph& g, Inputs inputs = Inputs::kExact,
                       const char* arch = "sm_90a") {
  const auto groups = GroupsOf(g, *TargetFromArch(arch), inputs);
  EXPECT_TRUE(groups.ok()) << groups.status().message();
  Counts counts;
  for (const Group& group : groups->all)
    ++(group.moves_data                     ? counts.moves
       : group.kind == GroupKind::kContract ? counts.contractions
                                            : counts.others);
  return counts;
}

// One product is both gradients where two would leave multiprocessors idle; sums of biases and what
// was there before are one group; a GRU's two products of the states read one copy of them.
TEST(Rnn, WeightGradientsTakeFewGroups) {
  const auto on_sm80 = [](const graph::Graph& g) {
    return GroupsOfWeights(g, Inputs::kExact, "sm_80");
  };
  EXPECT_EQ(on_sm80(WeightGradients("f16", "lstm", 25, 64, 512)), (Counts{1, 1, 1}));
  EXPECT_EQ(on_sm80(WeightGradients("f16", "lstm", 100, 64, 1024)), (Counts{2, 1, 1}));
  EXPECT_EQ(on_sm80(WeightGradients("f16", "gru", 100, 64, 1024)), (Counts{3, 1, 1}));
}

// On sm_90 all products are one launch with the sums of biases, as many as its arguments have room
// for; of odd sizes, which tensor maps do not reach, each is a group.
TEST(Rnn, WeightGradientsAreOneLaunchOnSm90) {
  EXPECT_EQ(GroupsOfWeights(WeightGradients("f16", "lstm", 25, 64, 512)), (Counts{0, 0, 1}));
  EXPECT_EQ(GroupsOfWeights(WeightGradients("bf16", "gru", 100, 64, 1024)), (Counts{0, 0, 1}));
  EXPECT_EQ(GroupsOfWeights(WeightGradients("f16", "lstm", 128, 32, 512, 1, 2)), (Counts{0, 0, 1}));
  EXPECT_EQ(GroupsOfWeights(WeightGradients("f16", "lstm", 150, 128, 512, 4)), (Counts{0, 0, 2}));
  EXPECT_EQ(GroupsOfWeights(WeightGradients("f16", "tanh", 25, 64, 509)).contractions, 2);
}

// Both directions are one product, stored where their matrices stand in dw, and one copy.
TEST(Rnn, WeightGradientsOfBothDirectionsAreOneProduct) {
  const auto both = [](const char* type, const char* cell, int64_t layers) {
    return GroupsOfWeights(WeightGradients(type, cell, 128, 32, 512, layers, 2), Inputs::kExact,
                           "sm_80");
  };
  EXPECT_EQ(both("f16", "tanh", 1), (Counts{2, 1, 1}));
  EXPECT_EQ(both("bf16", "lstm", 2), (Counts{4, 2, 1}));
  EXPECT_EQ(both("f16", "gru", 1), (Counts{3, 1, 1}));
}

// Index and knobs of a plan that rounds to TF32 speak of a product, also where the sums of biases
// take longer than each of them: else there is no such plan.
TEST(Rnn, RoundedPlansAreLedByProducts) {
  const graph::Graph g = WeightGradients("f32", "tanh", 150, 128, 512, 8);
  const Target target = *TargetFromArch("sm_90a");
  const auto groups = GroupsOf(g, target, Inputs::kRounded);
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  ASSERT_GE(groups->leading, 0);
  const Group& leading = groups->all[static_cast<size_t>(groups->leading)];
  EXPECT_EQ(leading.kind, GroupKind::kContract);
  double longest = 0;
  for (const Group& group : groups->all)
    if (!group.moves_data) longest = std::max(longest, group.least_cost);
  EXPECT_LT(leading.least_cost, longest) << "the case shows nothing";
  const auto plan = Compile(g, target, {.engine = EngineIndex("wgmma_sm90_tf32")});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->engine, EngineIndex("wgmma_sm90_tf32"));
}

}  // namespace
}  // namespace kiln::compiler
