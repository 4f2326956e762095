// Reductions in the groups of contractions: every engine whose kernels are tile IR by
// interpretation, at sizes that fill no tile. Poisoned workspace finds partial results that nobody
// wrote.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "ir/graph/builder.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::GraphOp;
using graph::PointwiseMode;
using graph::ReductionMode;
using graph::TensorId;

constexpr graph::ResultOptions kFloat{.dtype = DType::kF32, .compute = DType::kF32, .dims = {}};

struct Case {
  std::string name;
  Graph graph;
};

struct Stored {
  bool result = true;  // else the contraction's result is virtual
  Dims strides = {};
};

// The reductions of y, or of its magnitude, to each of the dims.
void Reduce(GraphBuilder& b, TensorId y, const std::vector<std::pair<ReductionMode, Dims>>& to) {
  for (const auto& [mode, dims] : to)
    b.Output(b.Reduction(mode, y, dims, kFloat), "r", DType::kF32);
}

Case Matmul(std::string name, DType type, const Dims& ad, const Dims& bd, const Stored& stored,
            const std::vector<std::pair<ReductionMode, Dims>>& to) {
  GraphBuilder b("matmul");
  const TensorId x = b.Input("a", type, ad), w = b.Input("b", type, bd);
  Dims row(bd.size(), 1);
  row.back() = bd.back();
  TensorId y = b.Apply(GraphOp::kMatmul, {x, w}, graph::MatmulAttrs{}, kFloat);
  y = b.Pointwise(PointwiseMode::kAdd, {y, b.Input("bias", DType::kF32, row)}, kFloat);
  if (stored.result) b.Output(y, "y", type, stored.strides);
  Reduce(b, y, to);
  return {std::move(name), *b.Finish()};
}

Dims ChannelsLast(const Dims& d) { return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; }

Case Conv(std::string name, GraphOp op, DType type, const Dims& x, const Dims& w, bool last,
          const std::vector<std::pair<ReductionMode, Dims>>& to, bool relu = false,
          const Dims& dx = {}) {
  GraphBuilder b("conv");
  const Dims like = last ? ChannelsLast(x) : Dims{};
  const TensorId in = b.Input("x", type, x, like);
  const TensorId filter = b.Input("w", type, w, last ? ChannelsLast(w) : Dims{});
  const graph::ConvAttrs attrs{
      .pre_padding = {1, 0}, .post_padding = {1, 2}, .stride = {2, 1}, .dilation = {1, 1}};
  graph::ResultOptions options = kFloat;
  options.dims = dx;
  TensorId y = b.Apply(op, {in, filter}, attrs, options);
  if (relu) y = b.Pointwise(PointwiseMode::kReluFwd, {y}, kFloat);
  b.Output(y, "y", type, {});
  Reduce(b, y, to);
  return {std::move(name), *b.Finish()};
}

std::vector<Case> Cases(DType type) {
  constexpr ReductionMode kSum = ReductionMode::kAdd, kMax = ReductionMode::kMax,
                          kAmax = ReductionMode::kAmax, kMin = ReductionMode::kMin;
  std::vector<Case> all;
  const Dims a = {1, 77, 40}, b = {1, 40, 90};
  all.push_back(Matmul("columns", type, a, b, {}, {{kSum, {1, 1, 90}}}));
  all.push_back(Matmul("rows", type, a, b, {}, {{kMax, {1, 77, 1}}}));
  all.push_back(Matmul("amax", type, a, b, {}, {{kAmax, {1, 1, 1}}}));
  all.push_back(Matmul("all_sides", type, a, b, {},
                       {{kSum, {1, 77, 1}}, {kMin, {1, 1, 90}}, {kAmax, {1, 1, 1}}}));
  all.push_back(
      Matmul("virtual", type, a, b, {.result = false}, {{kSum, {1, 1, 90}}, {kMax, {1, 1, 90}}}));
  all.push_back(Matmul("transposed", type, a, b, {.strides = {77 * 90, 1, 77}},
                       {{kSum, {1, 1, 90}}, {kMax, {1, 77, 1}}}));
  const Dims ba = {3, 35, 24}, bb = {3, 24, 70};
  all.push_back(Matmul("batched", type, ba, bb, {}, {{kSum, {3, 1, 70}}, {kSum, {3, 35, 1}}}));
  all.push_back(Matmul("over_batches", type, ba, bb, {}, {{kSum, {1, 1, 70}}, {kSum, {1, 35, 1}}}));
  all.push_back(Matmul("of_batches", type, ba, bb, {}, {{kAmax, {3, 1, 1}}, {kSum, {1, 1, 1}}}));
  for (const bool last : {true, false}) {
    const char* layout = last ? "nhwc" : "nchw";
    all.push_back(Conv(fmt::format("fprop_{}", layout), GraphOp::kConvFprop, type, {3, 8, 9, 7},
                       {40, 8, 3, 3}, last, {{kSum, {1, 40, 1, 1}}, {kMax, {1, 40, 1, 1}}}, true));
    all.push_back(Conv(fmt::format("dgrad_{}", layout), GraphOp::kConvDgrad, type, {2, 24, 5, 7},
                       {24, 40, 3, 3}, last, {{kSum, {1, 40, 1, 1}}}, false, {2, 40, 10, 7}));
  }
  return all;
}

// Right, and in one group beside those that move its operands.
void ExpectFused(const Case& c, const Target& target, const char* engine,
                 const std::vector<KnobSetting>& knobs) {
  const EngineChoice choice{.engine = EngineIndex(engine), .knobs = knobs};
  const graph::TensorValues inputs = graph::RandomInputs(c.graph, 5, false);
  const Result<TileRun> run = CheckTiles(c.graph, target, inputs, choice);
  ASSERT_TRUE(run.ok()) << c.name << " on " << target.arch << ": " << run.status().message() << "\n"
                        << graph::Print(c.graph);
  EXPECT_EQ(std::ranges::count(run->module.groups, false, &Group::moves_data), 1)
      << c.name << " on " << target.arch;
}

TEST(EpilogueReductionsTest, OnFmaUnits) {
  for (const Case& c : Cases(DType::kF32)) {
    ExpectFused(c, *TargetFromArch("sm_90a"), "contract_simt", {{"tile_m", 32}, {"tile_n", 32}});
    ExpectFused(c, *TargetFromArch("sm_90a"), "contract_simt",
                {{"tile_m", 64}, {"tile_n", 32}, {"threads", 128}});
    ExpectFused(c, *TargetFromArch("cpu"), "contract_simt", {{"tile_m", 32}, {"tile_n", 64}});
  }
}

TEST(EpilogueReductionsTest, OnTensorCores) {
  int number = 0;
  for (const Case& c : Cases(DType::kF16)) {
    const int warps = number++ % 2 == 0 ? 4 : 8;
    ExpectFused(c, *TargetFromArch("sm_80"), "contract_mma",
                {{"tile_m", 64}, {"tile_n", 64}, {"warps", warps}, {"split_k", 2}});
  }
}

Graph Followed(bool spread) {
  GraphBuilder b("follow");
  const TensorId x = b.Input("a", DType::kF32, {1, 40, 24}),
                 w = b.Input("b", DType::kF32, {1, 24, 50});
  const TensorId y = b.Apply(GraphOp::kMatmul, {x, w}, graph::MatmulAttrs{}, kFloat);
  const TensorId sum = b.Reduction(ReductionMode::kAdd, y, {1, 1, 50}, kFloat);
  const TensorId peak = b.Reduction(ReductionMode::kMax, y, {1, 1, 50}, kFloat);
  const TensorId both = b.Pointwise(PointwiseMode::kMul, {sum, peak}, kFloat);
  const TensorId offset = b.Input("o", DType::kF32, {1, 1, 50});
  b.Output(b.Pointwise(PointwiseMode::kAdd, {both, offset}, kFloat), "z", DType::kF16);
  b.Output(y, "y", DType::kF32);
  if (spread) b.Output(b.Pointwise(PointwiseMode::kSub, {y, both}, kFloat), "s", DType::kF32);
  return *b.Finish();
}

// Maps that follow a reduction, place by place, are in the group too; those that spread it are not.
TEST(EpilogueReductionsTest, MapsThatFollow) {
  const Case c{"follow", Followed(false)};
  for (const char* arch : {"sm_90a", "cpu"})
    ExpectFused(c, *TargetFromArch(arch), "contract_simt", {{"tile_m", 32}, {"tile_n", 32}});
  const Graph g = Followed(true);
  const Result<TileRun> run =
      CheckTiles(g, *TargetFromArch("sm_90a"), graph::RandomInputs(g, 5, false));
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->module.groups.size(), 2u);
}

// A reduction reads the result where the engine for it would be slower, or would need k in slices.
TEST(EpilogueReductionsTest, StaySeparate) {
  const auto groups = [](const Graph& g, const char* arch) {
    const Result<TileRun> run =
        RunTiles(g, *TargetFromArch(arch), graph::RandomInputs(g, 5, false));
    EXPECT_TRUE(run.ok()) << run.status().message();
    return run.ok() ? static_cast<int>(run->module.groups.size()) : 0;
  };
  const Case rows = Matmul("rows", DType::kF16, {1, 40, 24}, {1, 24, 48}, {},
                           {{ReductionMode::kMax, {1, 40, 1}}});
  EXPECT_EQ(groups(rows.graph, "sm_80"), 1);
  const Case few = Conv("few", GraphOp::kConvFprop, DType::kF16, {2, 3, 9, 7}, {8, 3, 3, 3}, true,
                        {{ReductionMode::kAdd, {1, 8, 1, 1}}});
  EXPECT_EQ(groups(few.graph, "sm_80"), 2);
  const Case deep = Matmul("deep", DType::kF32, {1, 8, 1100}, {1, 1100, 9}, {},
                           {{ReductionMode::kAdd, {1, 1, 9}}});
  EXPECT_EQ(groups(deep.graph, "sm_80"), 2);
  EXPECT_EQ(groups(deep.graph, "cpu"), 1);
}

}  // namespace
}  // namespace kiln::compiler
