// materialise and the division of groups that it chooses from: every division of small groups with
// odd sizes computes what the group did; what is chosen for which target; that choices of an engine
// still speak of the contraction; and interpreted plans on a device so small that storing pays.
#include "compiler/passes/materialise.h"

#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/engines/candidates.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/registry.h"
#include "compiler/passes/divide_group.h"
#include "compiler/passes/print_module.h"
#include "ir/graph/builder.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::GraphOp;
using graph::TensorId;
using M = graph::PointwiseMode;

Dims Nhwc(const Dims& d) { return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; }
Dims Nchw(const Dims& d) { return PackedStrides(d); }

// The extras that a convolution gets.
struct Extras {
  bool prologue = false, bias = false, residual = false, keeps_sum = false;
};

struct Conv {
  GraphOp op = GraphOp::kConvFprop;
  int64_t n = 2, c = 5, h = 7, k = 6, r = 3, stride = 1;
  Dims (*layout)(const Dims&) = Nchw;
  Dims (*result_layout)(const Dims&) = Nchw;
  DType type = DType::kF16;
};

Graph Build(const Conv& p, const Extras& extras = {}) {
  const int64_t pad = p.r / 2, out = (p.h + 2 * pad - p.r) / p.stride + 1;
  const Dims xd = {p.n, p.c, p.h, p.h}, wd = {p.k, p.c, p.r, p.r}, yd = {p.n, p.k, out, out};
  const graph::ConvAttrs attrs{.pre_padding = {pad, pad},
                               .post_padding = {pad, pad},
                               .stride = {p.stride, p.stride},
                               .dilation = {1, 1}};
  const bool dgrad = p.op == GraphOp::kConvDgrad, wgrad = p.op == GraphOp::kConvWgrad;
  const Dims &ad = dgrad ? yd : xd, &bd = wgrad ? yd : wd, &rd = dgrad ? xd : wgrad ? wd : yd;
  GraphBuilder b("conv");
  TensorId a = b.Input("a", p.type, ad, p.layout(ad));
  const TensorId w = b.Input("b", p.type, bd, p.layout(bd));
  if (extras.prologue) {
    const TensorId s = b.Input("s", p.type, {1, ad[1], 1, 1});
    // 1 where x is 0: a padded place that went through the prologue would show.
    a = b.Pointwise(M::kAdd, {a, b.Constant("one", DType::kF32, 1.0, 4)}, {.dtype = p.type});
    a = b.Pointwise(M::kReluFwd, {b.Pointwise(M::kMul, {a, s}, {.dtype = p.type})},
                    {.dtype = p.type});
  }
  TensorId y = b.Apply(p.op, {a, w}, attrs, {.dims = rd});
  if (extras.bias) y = b.Pointwise(M::kAdd, {y, b.Input("bias", p.type, {1, rd[1], 1, 1})});
  if (extras.keeps_sum) b.Output(y, "sum", DType::kF32, p.result_layout(rd));
  if (extras.residual) {
    const TensorId z = b.Input("z", p.type, rd, p.result_layout(rd));
    y = b.Pointwise(M::kReluFwd, {b.Pointwise(M::kAdd, {y, z})});
  }
  if (extras.keeps_sum && !extras.residual) y = b.Pointwise(M::kTanhFwd, {y});
  b.Output(y, "y", p.type, p.result_layout(rd));
  Result<Graph> g = b.Finish();
  EXPECT_TRUE(g.ok()) << g.status().message();
  return *g;
}

Graph Matmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool prologue = false) {
  GraphBuilder b("matmul");
  TensorId a = b.Input("a", DType::kF16, {batch, m, k});
  if (prologue) a = b.Pointwise(M::kReluFwd, {a}, {.dtype = DType::kF16});
  const TensorId z = b.Input("b", DType::kF16, {batch, k, n});
  b.Output(b.Apply(GraphOp::kMatmul, {a, z}, graph::MatmulAttrs{}), "y", DType::kF16);
  return *b.Finish();
}

// The module as partition leaves it.
Module Partitioned(const Graph& g, const Target& target) {
  Module module{.graph = g};
  for (const Pass& pass : Pipeline()) {
    if (pass.name == "materialise") break;
    EXPECT_TRUE(pass.run(module, {.target = target}).ok()) << pass.name;
  }
  return module;
}

// Outputs by uid.
std::map<int64_t, std::vector<double>> Evaluated(const Module& module,
                                                 const graph::TensorValues& inputs) {
  graph::TensorValues known = inputs;
  for (const Group& group : module.groups) {
    graph::TensorValues values;
    for (const TensorId id : graph::Inputs(group.graph)) values[id] = known.at(group.outer[id]);
    const Status status = graph::Evaluate(group.graph, values);
    EXPECT_TRUE(status.ok()) << status.message();
    for (const TensorId id : graph::Outputs(group.graph)) known[group.outer[id]] = values.at(id);
  }
  std::map<int64_t, std::vector<double>> outputs;
  for (const TensorId id : graph::Outputs(module.graph))
    outputs[module.graph[id].uid] = known.at(id);
  return outputs;
}

// Every division of the graph's only group.
void ExpectDivisible(const Graph& g, bool moves_results) {
  const Module before = Partitioned(g, *TargetFromArch("sm_90a"));
  ASSERT_EQ(before.groups.size(), 1u);
  const Group& group = before.groups[0];
  EXPECT_EQ(MovesResults(group), moves_results);
  const graph::TensorValues inputs = graph::RandomInputs(before.graph, 5);
  const auto want = Evaluated(before, inputs);
  const graph::Node& anchor = ContractionOf(group);
  const bool conv = anchor.op != GraphOp::kMatmul;
  for (unsigned subset = 1; subset < (moves_results ? 8u : 4u); ++subset) {
    Division division{.results = (subset & 4) != 0};
    for (size_t position = 0; position < 2; ++position) {
      const Dims& dims = group.graph[anchor.inputs[position]].dims;
      Dims strides = conv ? StridesWithInnermost(1, dims, 8) : PackedStrides(dims);
      if ((subset >> position) & 1) division.operands.push_back({position, std::move(strides)});
    }
    Module after = before;
    DividedGroup divided =
        DivideGroup(group, division, static_cast<TensorId>(after.graph.tensors.size()));
    for (graph::Tensor& t : divided.tensors) after.graph.AddTensor(std::move(t));
    after.groups = std::move(divided.groups);
    const Status status = VerifyForm(after);
    EXPECT_TRUE(status.ok()) << status.message() << "\n" << Print(after);
    int contractions = 0;
    for (const Group& part : after.groups) {
      contractions += part.kind == GroupKind::kContract;
      EXPECT_EQ(part.moves_data, part.kind != GroupKind::kContract);
      EXPECT_FALSE(graph::Outputs(part.graph).empty()) << Print(after);
    }
    EXPECT_EQ(contractions, 1);
    EXPECT_EQ(Evaluated(after, inputs), want) << "subset " << subset << "\n" << Print(after);
  }
}

TEST(DivideGroupTest, EveryDivisionComputesTheSame) {
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad})
    ExpectDivisible(Build({.op = op}), true);
  // Filters of one tap have channels innermost in any layout.
  ExpectDivisible(Build({.op = GraphOp::kConvDgrad, .r = 1}), true);
  ExpectDivisible(Build({.op = GraphOp::kConvWgrad, .r = 1}), false);
  for (const bool prologue : {false, true})
    for (const bool bias : {false, true})
      for (const bool residual : {false, true})
        for (const bool keeps_sum : {false, true})
          ExpectDivisible(Build({}, {prologue, bias, residual, keeps_sum}), true);
  ExpectDivisible(Build({.result_layout = Nhwc}, {.residual = true}), false);
  ExpectDivisible(Build({.layout = Nhwc}, {.prologue = true, .residual = true}), true);
  ExpectDivisible(Build({.type = DType::kE4M3}), true);
  ExpectDivisible(Matmul(3, 5, 7, 9), false);
  ExpectDivisible(Matmul(1, 5, 7, 9, true), false);
}

TEST(DivideGroupTest, APitchIsPaddedToWholeVectors) {
  EXPECT_EQ(StridesWithInnermost(1, {2, 5, 3, 4}, 8), (Dims{96, 1, 32, 8}));
  EXPECT_EQ(StridesWithInnermost(1, {2, 16, 3, 4}, 8), (Dims{192, 1, 64, 16}));
}

// ---- what is chosen

// Kinds of the groups, in launch order: m moves data, C contracts.
std::string Chosen(const Graph& g, const Target& target) {
  const Result<Groups> groups = GroupsOf(g, target);
  EXPECT_TRUE(groups.ok()) << groups.status().message();
  std::string kinds;
  for (const Group& group : groups->all) kinds += group.moves_data ? 'm' : 'C';
  EXPECT_EQ(groups->all[static_cast<size_t>(groups->leading)].kind, GroupKind::kContract);
  return kinds;
}
std::string Chosen(const Graph& g, const char* arch) { return Chosen(g, *TargetFromArch(arch)); }

std::string EngineOf(const Graph& g, const char* arch) {
  const Result<std::optional<Group>> leading = LeadingGroupOf(g, *TargetFromArch(arch));
  return Engines()[(*leading)->engine].name;
}

constexpr Conv kLarge = {.n = 256, .c = 256, .h = 14, .k = 256};

Conv Large(GraphOp op, Dims (*layout)(const Dims&)) {
  Conv conv = kLarge;
  conv.op = op;
  conv.layout = conv.result_layout = layout;
  return conv;
}

// wgmma takes f32, rounded to TF32, along k only; the engine turns the filters of dgrad itself.
TEST(MaterialiseTest, RoundedInputsAreTakenAsTheyLie) {
  Conv conv = Large(GraphOp::kConvDgrad, Nhwc);
  conv.type = DType::kF32;
  const Graph dgrad = Build(conv);
  const Target target = *TargetFromArch("sm_90a");
  EXPECT_EQ(Chosen(dgrad, "sm_90a"), "C");
  const Result<Groups> groups = GroupsOf(dgrad, target, Inputs::kRounded);
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  ASSERT_EQ(groups->all.size(), 1u);
  EXPECT_EQ(RankCandidates(groups->all[0], target, Inputs::kRounded).front().engine,
            EngineIndex("wgmma_sm90_tf32"));
}

TEST(MaterialiseTest, LargeNchwConvolutionsAreStoredChannelsInnermost) {
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad}) {
    const Graph g = Build(Large(op, Nchw));
    // Pixels are stored as they lie, the filters of wgrad are not.
    EXPECT_EQ(Chosen(g, "sm_90a"), op == GraphOp::kConvWgrad ? "mmCm" : "mmC");
    EXPECT_EQ(EngineOf(g, "sm_90a"), "wgmma_sm90");
    // contract_mma writes these results as they lie.
    EXPECT_EQ(Chosen(g, "sm_80"), "mmC");
    EXPECT_EQ(Chosen(g, "cpu"), "C");
  }
}

TEST(MaterialiseTest, ImagesOfOneTapAreMatricesAsTheyLie) {
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad}) {
    const Graph g = Build({.op = op, .n = 256, .c = 64, .h = 56, .k = 256, .r = 1});
    EXPECT_EQ(Chosen(g, "sm_90a"), "C");
    EXPECT_EQ(EngineOf(g, "sm_90a"), "wgmma_sm90");
  }
}

TEST(MaterialiseTest, NothingIsStoredWhereItLiesWell) {
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad})
    for (const char* arch : {"sm_90a", "sm_80", "cpu"})
      EXPECT_EQ(Chosen(Build(Large(op, Nhwc)), arch), "C");
  EXPECT_EQ(Chosen(Matmul(1, 4096, 4096, 4096), "sm_90a"), "C");
}

TEST(MaterialiseTest, APrologueIsStored) {
  const Graph g = Build(Large(GraphOp::kConvFprop, Nhwc), {.prologue = true});
  EXPECT_EQ(Chosen(g, "sm_90a"), "mC");
  EXPECT_EQ(Chosen(g, "sm_80"), "mC");
  EXPECT_EQ(Chosen(g, "cpu"), "C");
}

TEST(MaterialiseTest, SmallGraphsAndEnginesThatKnowTheLayoutAreLeftAlone) {
  EXPECT_EQ(Chosen(Build({}), "sm_90a"), "C");
  const Graph first = Build({.n = 256, .c = 3, .h = 224, .k = 64, .r = 7, .stride = 2});
  EXPECT_EQ(Chosen(first, "sm_90a"), "C");
  EXPECT_EQ(EngineOf(first, "sm_90a"), "conv_first_layer");
}

TEST(MaterialiseTest, OddMatricesGetAPitchThatTensorMapsRead) {
  const Graph g = Matmul(1, 4097, 4099, 4095);
  EXPECT_EQ(Chosen(g, "sm_90a"), "mmC");
  EXPECT_EQ(EngineOf(g, "sm_90a"), "wgmma_sm90");
}

TEST(MaterialiseTest, MinimalLaunchStoresNothing) {
  Target target = *TargetFromArch("sm_90a");
  target.minimal_launch = true;
  EXPECT_EQ(Chosen(Build(Large(GraphOp::kConvFprop, Nchw)), target), "C");
}

// An engine's index and knobs speak of the contraction, and neither they nor records change what is
// stored.
TEST(MaterialiseTest, ChoicesSpeakOfTheContraction) {
  const Graph g = Build(Large(GraphOp::kConvFprop, Nchw));
  const Target target = *TargetFromArch("sm_90a");
  const int simt = EngineIndex("contract_simt");
  const EngineChoice choice{.engine = simt, .knobs = {{"tile_m", 32}}};
  const Result<CompiledPlan> plan = Compile(g, target, choice);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->engine, simt);
  ASSERT_EQ(plan->groups.size(), 3u);
  EXPECT_EQ(plan->groups[2].engine, "contract_simt");
  EXPECT_NE(plan->groups[2].knobs.find("tile_m=32"), std::string::npos) << plan->groups[2].knobs;

  std::vector<std::string> asked;
  const Advisor advisor = [&](const Group& group) -> std::optional<Candidate> {
    asked.push_back(graph::CanonicalText(group.graph));
    if (group.kind != GroupKind::kContract) return std::nullopt;
    return Candidate{.engine = simt, .knobs = DefaultKnobs(Engines()[simt]), .seconds = 1e-6};
  };
  const Result<CompiledPlan> advised = Compile(g, target, {}, {}, advisor);
  ASSERT_TRUE(advised.ok()) << advised.status().message();
  EXPECT_EQ(advised->engine, simt);
  const Result<Groups> groups = GroupsOf(g, target);
  ASSERT_EQ(asked.size(), groups->all.size());
  for (size_t i = 0; i < asked.size(); ++i)
    EXPECT_EQ(asked[i], graph::CanonicalText(groups->all[i].graph));
}

// ---- as little workspace as can be

constexpr EngineChoice kLeast = {.least_workspace = true};

CompiledPlan Compiled(const Graph& g, const Target& target, const EngineChoice& choice = {}) {
  Result<CompiledPlan> plan = Compile(g, target, choice);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *std::move(plan) : CompiledPlan{};
}

TEST(LeastWorkspaceTest, NothingIsStoredOnTheWayAndTheGroupsSayWhy) {
  const Target target = *TargetFromArch("sm_90a");
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad}) {
    const Graph g = Build(Large(op, Nchw));
    const CompiledPlan fast = Compiled(g, target), least = Compiled(g, target, kLeast);
    EXPECT_GT(fast.program.workspace_bytes, 0);
    EXPECT_EQ(least.program.workspace_bytes, 0);
    ASSERT_EQ(least.groups.size(), 1u);
    EXPECT_GT(least.groups[0].modelled_seconds, fast.groups.back().modelled_seconds);
    ASSERT_FALSE(fast.groups[0].why.empty());
    EXPECT_NE(fast.groups[0].why.back().find("moves data for a contraction"), std::string::npos);
    EXPECT_NE(least.groups[0].why.back().find("least workspace is asked for"), std::string::npos);
  }
}

TEST(LeastWorkspaceTest, SlicesOfALongSumAreNotStored) {
  const Graph g = Matmul(1, 64, 64, 65536);
  for (const char* arch : {"sm_80", "sm_90a", "cpu"}) {
    const Target target = *TargetFromArch(arch);
    EXPECT_EQ(Compiled(g, target, kLeast).program.workspace_bytes, 0) << arch;
    // The explicit choice of the same engine and knobs is the same plan.
    const CompiledPlan least = Compiled(g, target, kLeast);
    EngineChoice choice{.engine = least.engine, .least_workspace = true};
    const Engine& engine = Engines()[static_cast<size_t>(least.engine)];
    for (size_t i = 0; i < engine.knobs.size(); ++i)
      choice.knobs.push_back({engine.knobs[i].name, least.knobs[i]});
    EXPECT_EQ(Compiled(g, target, choice).program, least.program) << arch;
  }
  EXPECT_GT(Compiled(g, *TargetFromArch("sm_80")).program.workspace_bytes, 0)
      << "the fastest way splits the sum";
}

// ---- a limit of the workspace

double SecondsOf(const CompiledPlan& plan) {
  double seconds = 0;
  for (const GroupReport& group : plan.groups) seconds += group.modelled_seconds;
  return seconds;
}

TEST(WorkspaceLimitTest, IsKeptToByTheFastestThatDoes) {
  const Graph graphs[] = {Matmul(1, 64, 64, 65536), Build(Large(GraphOp::kConvFprop, Nchw)),
                          Build(Large(GraphOp::kConvWgrad, Nchw))};
  int between = 0;  // plans that are neither the fastest nor the smallest
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const Target target = *TargetFromArch(arch);
    for (const Graph& g : graphs) {
      const CompiledPlan fast = Compiled(g, target), least = Compiled(g, target, kLeast);
      const int64_t most = fast.program.workspace_bytes;
      ASSERT_GT(most, 0);
      EXPECT_EQ(Compiled(g, target, {.workspace_limit = most}).program, fast.program);
      double last = SecondsOf(fast);
      for (const int64_t limit : {most - 1, most / 2, most / 8, most / 64, int64_t{0}}) {
        const CompiledPlan plan = Compiled(g, target, {.workspace_limit = limit});
        EXPECT_LE(plan.program.workspace_bytes, limit) << arch;
        EXPECT_LE(SecondsOf(plan), SecondsOf(least) * 1.0001) << arch << " " << limit;
        EXPECT_GE(SecondsOf(plan), last * 0.9999) << arch << " " << limit;
        last = SecondsOf(plan);
        between += plan.program.workspace_bytes > least.program.workspace_bytes;
      }
    }
  }
  EXPECT_GT(between, 3);
}

TEST(WorkspaceLimitTest, WhatNeedsMoreIsRefusedWithTheNumbers) {
  GraphBuilder b("chain");
  const TensorId a = b.Input("a", DType::kF16, {1, 128, 64}),
                 w = b.Input("w", DType::kF16, {1, 64, 256}),
                 v = b.Input("v", DType::kF16, {1, 256, 64});
  const TensorId hidden = b.Apply(GraphOp::kMatmul, {a, w}, graph::MatmulAttrs{});
  b.Output(b.Apply(GraphOp::kMatmul, {hidden, v}, graph::MatmulAttrs{}), "y", DType::kF16);
  const Graph g = *b.Finish();
  const Target target = *TargetFromArch("sm_90a");
  const int64_t least = Compiled(g, target, kLeast).program.workspace_bytes;
  ASSERT_GT(least, 0);
  EXPECT_EQ(Compiled(g, target, {.workspace_limit = least}).program.workspace_bytes, least);
  const Result<CompiledPlan> refused = Compile(g, target, {.workspace_limit = least - 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            fmt::format("the plan needs {} bytes of workspace at least, and the limit is {}", least,
                        least - 1));
}

TEST(WorkspaceLimitTest, PlansRunRight) {
  const Target target = *TargetFromArch("sm_80");
  const Graph g = Matmul(1, 8, 16, 2000);
  const int64_t most = Compiled(g, target).program.workspace_bytes;
  ASSERT_GT(most, 0);
  const Result<TileRun> run =
      CheckTiles(g, target, graph::RandomInputs(g, 7), {.workspace_limit = most / 2});
  EXPECT_TRUE(run.ok()) << run.status().message();
}

TEST(LeastWorkspaceTest, PlansRunRight) {
  const Target target = *TargetFromArch("sm_80");
  for (const Graph& g :
       {Build({.n = 3, .c = 32, .h = 9, .k = 64}, {.prologue = true}), Matmul(1, 8, 16, 2000)}) {
    const Result<TileRun> run = CheckTiles(g, target, graph::RandomInputs(g, 7), kLeast);
    EXPECT_TRUE(run.ok()) << run.status().message() << "\n" << graph::Print(g);
  }
}

// ---- whole plans, interpreted

// One multiprocessor: arithmetic is dear, memory and launches cost what they cost elsewhere.
TEST(MaterialiseTest, PlansRunRight) {
  Target target = *TargetFromArch("sm_80");
  target.multiprocessors = 1;
  const std::pair<Graph, const char*> cases[] = {
      {Build({.n = 3, .c = 32, .h = 9, .k = 64}), "mmC"},
      {Build({.op = GraphOp::kConvDgrad, .n = 3, .c = 64, .h = 9, .k = 32}), "mmC"},
      {Build({.op = GraphOp::kConvWgrad, .n = 3, .c = 32, .h = 9, .k = 64}), "mmC"},
      {Build({.n = 3, .c = 32, .h = 9, .k = 64, .layout = Nhwc, .result_layout = Nhwc},
             {.prologue = true, .bias = true}),
       "mC"},
      {Build({.n = 3, .c = 32, .h = 9, .k = 64},
             {.prologue = true, .bias = true, .residual = true}),
       "mmC"},
  };
  for (const auto& [g, kinds] : cases) {
    EXPECT_EQ(Chosen(g, target), kinds) << graph::Print(g);
    const Result<TileRun> run = CheckTiles(g, target, graph::RandomInputs(g, 7));
    EXPECT_TRUE(run.ok()) << run.status().message() << "\n" << graph::Print(g);
  }
}

}  // namespace
}  // namespace kiln::compiler
