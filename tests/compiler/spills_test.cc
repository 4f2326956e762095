// Kernels of tensor-core engines keep everything in registers: for no candidate does ptxas report a
// spill, a stack frame, or that it serialises wgmma (C75xx). Skipped where there is no NVRTC; all
// candidates with KILN_TEST_ALL=1, else some of each graph.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "ir/graph/builder.h"
#include "ir/graph/ops.h"
#include "tests/compiler/conv_problem.h"
#include "tests/support/case_graph.h"
#include "tests/support/cases.h"
#include "tests/support/compile_check.h"
#include "tests/support/ptxas_check.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::TensorId;

struct MatmulForm {
  const char* name;
  DType type = DType::kF16, out = DType::kF16;
  bool a_columns = false, b_columns = false, y_columns = false;
  bool epilogue = false;
  int64_t batches = 1, m = 1024, n = 1024, k = 1024;
};

Graph Matmul(const MatmulForm& f) {
  const auto strides = [](int64_t rows, int64_t columns, bool by_columns) {
    return by_columns ? Dims{rows * columns, 1, rows} : Dims{rows * columns, columns, 1};
  };
  const DType compute = f.type == DType::kI8 ? DType::kI32 : DType::kF32;
  graph::GraphBuilder builder(f.name);
  const TensorId a = builder.Input("a", f.type, {f.batches, f.m, f.k},
                                   strides(f.m, f.k, f.a_columns)),
                 b = builder.Input("b", f.type, {f.batches, f.k, f.n},
                                   strides(f.k, f.n, f.b_columns));
  TensorId y = builder.Apply(GraphOp::kMatmul, {a, b}, graph::MatmulAttrs{},
                             {.dtype = compute, .compute = compute, .dims = {}});
  if (f.epilogue) {
    const TensorId bias = builder.Input("bias", f.out, {1, 1, f.n}, {});
    y = builder.Pointwise(graph::PointwiseMode::kAdd, {y, bias},
                          {.dtype = compute, .compute = compute, .dims = {}});
    y = builder.Pointwise(graph::PointwiseMode::kGeluFwd, {y},
                          {.dtype = compute, .compute = compute, .dims = {}});
  }
  builder.Output(y, "y", f.out, strides(f.m, f.n, f.y_columns));
  return *builder.Finish();
}

ConvProblem Conv(GraphOp op) {
  return {.name = std::string(graph::Info(op).mnemonic),
          .op = op,
          .groups = 1,
          .channels = 64,
          .filters = 64,
          .images = 32,
          .image = {14, 14}};
}

// A convolution that adds `adds` tensors as large as its result, with sums and sums of squares of
// it or not.
struct ConvForm {
  int64_t channels = 128;
  int adds = 0;
  bool statistics = false;
};

Graph ConvWithEpilogue(const ConvForm& f) {
  graph::GraphBuilder builder("conv");
  const int64_t c = f.channels;
  const Dims image = {c * 784, 1, 28 * c, c}, filter = {9 * c, 1, 3 * c, c};
  const TensorId x = builder.Input("x", DType::kF16, {64, c, 28, 28}, image);
  const TensorId w = builder.Input("w", DType::kF16, {c, c, 3, 3}, filter);
  const graph::ConvAttrs attrs{
      .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
  const graph::ResultOptions options{.dtype = DType::kF32, .compute = DType::kF32, .dims = {}};
  TensorId y = builder.Apply(GraphOp::kConvFprop, {x, w}, attrs, options);
  for (int i = 0; i < f.adds; ++i) {
    const TensorId r = builder.Input("r", DType::kF16, {64, c, 28, 28}, image);
    y = builder.Pointwise(graph::PointwiseMode::kAdd, {y, r}, options);
  }
  builder.Output(y, "y", DType::kF16, image);
  if (!f.statistics) return *builder.Finish();
  for (const auto mode : {graph::ReductionMode::kAdd, graph::ReductionMode::kNorm2})
    builder.Output(builder.Reduction(mode, y, {1, c, 1, 1}, options), "s", DType::kF32);
  return *builder.Finish();
}

// A causal one with statistics, and with what else masks, scores and weights may read.
struct AttentionForm {
  int64_t depth = 128, width = 128;
  DType type = DType::kBF16;
  bool reads = false;
};

Graph AttentionWith(const AttentionForm& f) {
  using M = graph::PointwiseMode;
  graph::GraphBuilder b(fmt::format("attention{}x{}{}", f.depth, f.width, f.reads ? "_reads" : ""));
  const auto two = [&](M mode, TensorId x, TensorId y) { return b.Pointwise(mode, {x, y}); };
  const TensorId q = b.Input("q", f.type, {2, 8, 777, f.depth});
  const TensorId k =
      b.Input("k", f.type, {2, 2, f.depth, 999}, {1998 * f.depth, 999 * f.depth, 1, f.depth});
  const TensorId v = b.Input("v", f.type, {2, 2, 999, f.width});
  TensorId s = two(M::kMul, b.Apply(GraphOp::kMatmul, {q, k}, graph::MatmulAttrs{}),
                   b.ByValue("scale", DType::kF32, 4));
  if (f.reads) s = two(M::kAdd, s, b.Input("bias", f.type, {1, 8, 777, 999}));
  const auto places = [&](int64_t axis) {
    return b.Apply(GraphOp::kPointwise, {s},
                   graph::PointwiseAttrs{.mode = M::kGenIndex, .axis = axis},
                   {.dtype = DType::kI32});
  };
  const TensorId fill = b.ByValue("fill", DType::kF32, 4), column = places(3), row = places(2);
  s = b.Pointwise(M::kBinarySelect, {s, fill, two(M::kCmpGe, row, column)});
  if (f.reads)
    s = b.Pointwise(M::kBinarySelect,
                    {s, fill, two(M::kCmpLt, column, b.Input("end", DType::kI32, {2, 1, 1, 1}))});
  const Dims rows = {2, 8, 777, 1};
  const TensorId max = b.Reduction(graph::ReductionMode::kMax, s, rows);
  const TensorId exp = b.Pointwise(M::kExp, {two(M::kSub, s, max)});
  const TensorId sum = b.Reduction(graph::ReductionMode::kAdd, exp, rows);
  b.Output(two(M::kAdd, max, b.Pointwise(M::kLog, {sum})), "stats", DType::kF32);
  TensorId p = two(M::kDiv, exp, sum);
  if (f.reads) p = two(M::kMul, p, b.Input("keep", DType::kF32, {2, 8, 777, 999}));
  p = b.Pointwise(M::kIdentity, {p}, {.dtype = f.type});
  b.Output(b.Apply(GraphOp::kMatmul, {p, v}, graph::MatmulAttrs{}), "o", f.type);
  return *b.Finish();
}

// Candidates that spill as much as this and no more: seen when NVRTC was asked, with its options,
// and no longer nvcc (2026-11-26). Nobody has timed what it costs.
struct Known {
  const char* where;  // its beginning
  const char* spills;
};
constexpr Known kKnown[] = {
    {"gelu sm_90a wgmma_sm90 tile_left=64,tile_right=256,cluster=2,ping_pong=1",
     "16 bytes stack frame, 16 bytes spill stores, 16 bytes spill loads"},
    {"attention256x256_reads sm_90a attention_sm90 groups=0,tile_keys=0,ping_pong=2",
     "8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads"},
};

class SpillsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HasNvrtc()) GTEST_SKIP() << "no NVRTC";
  }

  // `some` candidates, evenly spread over the engine's list and other ones for each graph.
  void Add(const char* engine_name, const Graph& g, const char* arch, size_t some) {
    const Engine& engine = Engines()[EngineIndex(engine_name)];
    const Target target = *TargetFromArch(arch);
    const Result<std::optional<Group>> leading =
        LeadingGroupOf(g, target, Inputs::kExact, EngineIndex(engine_name));
    ASSERT_TRUE(leading.ok() && leading->has_value());
    const Status supports = Supports(engine, **leading, target);
    ASSERT_TRUE(supports.ok()) << g.name << ": " << supports.message();
    const std::vector<std::vector<int>> all = CandidateKnobs(engine, **leading, target);
    const size_t step = TestAll() ? 1 : std::max<size_t>(all.size() / some, 1);
    for (size_t c = TestAll() ? 0 : graphs_++ % step; c < all.size(); c += step)
      AddWith(engine, g, target, all[c]);
  }
  void AddWith(const Engine& engine, const Graph& g, const Target& target,
               const std::vector<int>& knobs) {
    EngineChoice choice{.engine = EngineIndex(engine.name), .knobs = {}};
    for (size_t k = 0; k < knobs.size(); ++k)
      choice.knobs.push_back({engine.knobs[k].name, knobs[k]});
    const Result<CompiledPlan> plan = Compile(g, target, choice);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ptxas_.Add(plan->program, fmt::format("{} {} {} {}", g.name, target.arch, engine.name,
                                          KnobText(engine, knobs)));
  }

  void TearDown() override {
    for (const std::string& complaint : ptxas_.Run()) {
      const auto is_this = [&](const Known& known) {
        return complaint.starts_with(known.where) && complaint.find(known.spills) != complaint.npos;
      };
      if (std::ranges::none_of(kKnown, is_this)) ADD_FAILURE() << complaint;
    }
    fmt::print("{} kernels\n", ptxas_.kernels());
  }

 private:
  testing::PtxasCheck ptxas_;
  size_t graphs_ = 0;
};

TEST_F(SpillsTest, CandidatesOfContractMmaHaveNone) {
  for (const Graph& g : {Matmul({.name = "matmul"}), Matmul({.name = "columns", .b_columns = true}),
                         Build(Conv(GraphOp::kConvFprop)), Build(Conv(GraphOp::kConvDgrad)),
                         Build(Conv(GraphOp::kConvWgrad))})
    for (const char* arch : {"sm_80", "sm_90a"}) Add("contract_mma", g, arch, 3);
}

// Every kind of operand: matrices of both majors, pixels in two and three dims, phases, panels of
// wgrad, groups; every type; results by tensor map and not; epilogues.
TEST_F(SpillsTest, CandidatesOfWgmmaHaveNone) {
  const MatmulForm forms[] = {
      {.name = "matmul"},
      {.name = "columns",
       .type = DType::kBF16,
       .out = DType::kBF16,
       .a_columns = true,
       .b_columns = true},
      {.name = "y_columns", .out = DType::kF32, .b_columns = true, .y_columns = true},
      {.name = "gelu", .epilogue = true},
      {.name = "gelu_f32", .out = DType::kF32, .epilogue = true},
      {.name = "batches", .batches = 8, .m = 200, .n = 264},
      {.name = "skinny", .b_columns = true, .m = 16, .n = 8192, .k = 8192},
      {.name = "e4m3", .type = DType::kE4M3, .b_columns = true},
      {.name = "i8", .type = DType::kI8, .out = DType::kI8, .b_columns = true},
      {.name = "f32", .out = DType::kF32},
  };
  for (const MatmulForm& form : forms) Add("wgmma_sm90", Matmul(form), "sm_90a", 2);
  std::vector<ConvProblem> convs;
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad}) {
    convs.push_back(Conv(op));
    convs.push_back(Conv(op));
    convs.back().stride = {2, 2};
    convs.push_back(Conv(op));
    convs.back().groups = 4;
  }
  convs.push_back(Conv(GraphOp::kConvFprop));
  convs.back().image = {4, 14, 14};
  convs.back().taps = {3, 3, 3};
  convs.back().pad = convs.back().stride = convs.back().dilation = {1, 1, 1};
  convs.push_back(Conv(GraphOp::kConvFprop));
  convs.back().taps = {1, 1};
  convs.back().pad = {0, 0};
  for (const ConvProblem& conv : convs) Add("wgmma_sm90", Build(conv), "sm_90a", 2);
}

// Phases without taps: half of the candidates are filled, by warps with few registers.
TEST_F(SpillsTest, CandidatesOfWgmmaThatFillHaveNone) {
  ConvProblem conv = Conv(GraphOp::kConvDgrad);
  conv.taps = {1, 1};
  conv.pad = {0, 0};
  conv.stride = {2, 2};
  for (const bool fused : {false, true}) {
    conv.followed = fused;
    Add("wgmma_sm90", Build(conv), "sm_90a", 5);
  }
  conv.followed = false;
  conv.type = DType::kF32;
  Add("wgmma_sm90_tf32", Build(conv), "sm_90a", 3);
}

TEST_F(SpillsTest, CandidatesOfWgmmaForF32HaveNone) {
  for (const char* engine : {"wgmma_sm90_tf32", "wgmma_sm90_3xtf32"}) {
    for (const bool columns : {false, true})
      for (const bool y_columns : {false, true})
        Add(engine,
            Matmul({.name = "tf32",
                    .type = DType::kF32,
                    .out = DType::kF32,
                    .a_columns = columns,
                    .b_columns = columns,
                    .y_columns = y_columns}),
            "sm_90a", 3);
    for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad}) {
      ConvProblem conv = Conv(op);
      conv.type = DType::kF32;
      Add(engine, Build(conv), "sm_90a", 4);
    }
  }
}

// Sums too long for one chain have two sets of accumulators.
TEST_F(SpillsTest, CandidatesOfLongSumsHaveNone) {
  for (const bool columns : {false, true}) {
    const MatmulForm form{.name = "long",
                          .a_columns = columns,
                          .b_columns = !columns,
                          .epilogue = columns,
                          .k = 65536};
    for (const char* arch : {"sm_80", "sm_90a"}) Add("contract_mma", Matmul(form), arch, 3);
    Add("wgmma_sm90", Matmul(form), "sm_90a", 6);
    MatmulForm single = form;
    single.type = single.out = DType::kF32;
    single.b_columns = columns;
    Add("wgmma_sm90_tf32", Matmul(single), "sm_90a", 4);
    Add("contract_mma_tf32", Matmul(single), "sm_80", 2);
    for (const char* arch : {"sm_80", "sm_90a"}) Add("contract_simt", Matmul(single), arch, 3);
  }
  ConvProblem conv = Conv(GraphOp::kConvWgrad);
  conv.images = 256;
  conv.image = {56, 56};
  for (const char* engine : {"contract_mma", "wgmma_sm90", "conv_halo_sm90"})
    Add(engine, Build(conv), "sm_90a", 4);
  for (const char* engine : {"contract_mma", "contract_simt"}) Add(engine, Build(conv), "sm_80", 2);
}

// With the kernels around the product.
TEST_F(SpillsTest, CandidatesOfWinogradHaveNone) {
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad})
    for (const bool last : {false, true}) {
      ConvProblem conv = Conv(op);
      conv.type = DType::kF32;
      conv.last = last;
      Add("winograd_sm90", Build(conv), "sm_90a", 2);
    }
}

TEST_F(SpillsTest, CandidatesOfWgmmaWithReductionsHaveNone) {
  for (const int adds : {0, 1})
    Add("wgmma_sm90", ConvWithEpilogue({.adds = adds, .statistics = true}), "sm_90a", 4);
}

TEST_F(SpillsTest, CandidatesWithFullOperandsHaveNone) {
  for (const int adds : {1, 2}) {
    Add("wgmma_sm90", ConvWithEpilogue({.adds = adds}), "sm_90a", 4);
    Add("conv_halo_sm90", ConvWithEpilogue({.channels = 64, .adds = adds}), "sm_90a", 3);
  }
}

TEST_F(SpillsTest, CandidatesOfConvHaloHaveNone) {
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad})
    Add("conv_halo_sm90", Build(Conv(op)), "sm_90a", 3);
}

TEST_F(SpillsTest, CandidatesOfAttentionHaveNone) {
  for (const AttentionForm& form : {AttentionForm{},
                                    {.type = DType::kF16, .reads = true},
                                    {.depth = 64, .width = 64},
                                    {.depth = 64, .width = 64, .reads = true},
                                    {.depth = 192},
                                    {.depth = 256, .width = 256},
                                    {.depth = 256, .width = 256, .reads = true}})
    Add("attention_sm90", AttentionWith(form), "sm_90a", 2);
}

// Only tiles of 16 rows a warp of attention_sm80: those of 32 fill all registers, and keep some
// numbers of rows, which a block needs once, in memory (docs/log).
TEST_F(SpillsTest, SmallTilesOfAttentionOnMmaHaveNone) {
  struct Form {
    const char* arch;
    std::vector<int> knobs;
    AttentionForm form;
  };
  const Form forms[] = {{"sm_80", {64, 64, 2, 4}, {}},
                        {"sm_90a", {128, 64, 2, 8}, {}},
                        {"sm_90a", {0, 0, 0, 0}, {.type = DType::kF16, .reads = true}},
                        {"sm_86", {0, 0, 0, 0}, {.depth = 256, .width = 256}},
                        {"sm_80", {0, 0, 0, 0}, {.depth = 64, .width = 64, .reads = true}},
                        {"sm_90a", {0, 0, 0, 0}, {.depth = 192}},
                        {"sm_90a", {0, 0, 0, 0}, {.depth = 36, .width = 20}}};
  for (const Form& f : forms)
    AddWith(Engines()[static_cast<size_t>(EngineIndex("attention_sm80"))], AttentionWith(f.form),
            *TargetFromArch(f.arch), f.knobs);
}

TEST_F(SpillsTest, CandidatesOfGradientsOfAttentionHaveNone) {
  const auto cases = testing::LoadCases("tests/cases/attention.txt").List("gradients");
  EXPECT_GE(cases.size(), 8u);
  for (const testing::Case& c : cases) {
    const Result<Graph> g = testing::ToGraph(c);
    ASSERT_TRUE(g.ok()) << g.status().message();
    for (const char* engine : {"attention_grad_sm90", "attention_grad_sm90_atomic"})
      Add(engine, *g, "sm_90a", 2);
    // On mma.sync rows of 128 fill all registers, as tiles of 32 rows a warp do.
    if (g->tensors[0].dims.back() <= 64)
      AddWith(Engines()[static_cast<size_t>(EngineIndex("attention_grad_sm80"))], *g,
              *TargetFromArch("sm_80"), {0, 0});
  }
}

}  // namespace
}  // namespace kiln::compiler
