// Winograd's products by interpretation: both operands to their coordinates, products on FMA units,
// and back; all directions, both layouts, tiles that hang over the image, every padding. And what
// the engines decline.
#include <gtest/gtest.h>

#include <utility>

#include "compiler/compile.h"
#include "compiler/engines/candidates.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "tests/compiler/conv_problem.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;

constexpr GraphOp kDirections[] = {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad};

ConvProblem Small(GraphOp op) {
  return {.name = "winograd",
          .op = op,
          .type = DType::kF32,
          .groups = 1,
          .channels = 18,
          .filters = 17,
          .images = 4,
          .image = {5, 6}};
}

void ExpectRight(const ConvProblem& problem, const char* arch = "sm_90a") {
  const graph::Graph g = Build(problem);
  const EngineChoice choice{.engine = EngineIndex("winograd"),
                            .knobs = {{"tile_m", 32}, {"tile_n", 32}, {"threads", 64}}};
  const Result<TileRun> run =
      CheckTiles(g, *TargetFromArch(arch), graph::RandomInputs(g, 5, false), choice);
  ASSERT_TRUE(run.ok()) << run.status().message() << "\n" << graph::Print(g);
  EXPECT_GE(run->plan.program.launches.size(), 4u);
}

std::string WhyNot(const ConvProblem& problem, const char* engine = "winograd") {
  const Result<CompiledPlan> plan =
      Compile(Build(problem), *TargetFromArch("sm_90a"), {.engine = EngineIndex(engine)});
  return plan.ok() ? "" : plan.status().message();
}

TEST(WinogradTest, ImagesThatTilesDoNotDivide) {
  for (const GraphOp op : kDirections)
    for (const Dims& image : {Dims{1, 1}, Dims{1, 4}, Dims{3, 2}, Dims{4, 4}, Dims{7, 5}})
      for (const bool last : {false, true}) {
        ConvProblem p = Small(op);
        p.image = image;
        p.last = last;
        if (op == GraphOp::kConvWgrad) p.images = 16;
        ExpectRight(p);
      }
}

TEST(WinogradTest, EveryPadding) {
  for (const GraphOp op : kDirections)
    for (const Dims& pad : {Dims{0, 0}, Dims{0, 2}, Dims{2, 1}, Dims{3, 4}}) {
      ConvProblem p = Small(op);
      p.pad = pad;
      ExpectRight(p);
      p.last = false;
      ExpectRight(p);
    }
}

// One channel or filter where it is not summed, one image; and numbers that are no multiple of
// four, nor of a tile of the product.
TEST(WinogradTest, RaggedChannels) {
  for (const GraphOp op : kDirections)
    for (const auto& [summed, made, images] : {std::array{16, 1, 1}, std::array{21, 3, 3},
                                               std::array{33, 7, 1}, std::array{16, 35, 3}}) {
      ConvProblem p = Small(op);
      p.image = {8, 7};
      p.channels = op == GraphOp::kConvDgrad ? made : summed;
      p.filters = op == GraphOp::kConvDgrad ? summed : made;
      p.images = images;
      p.last = images == 1;
      ExpectRight(p);
    }
}

TEST(WinogradTest, RotatedFilters) {
  for (const GraphOp op : kDirections) {
    ConvProblem p = Small(op);
    p.flip = true;
    ExpectRight(p);
  }
}

TEST(WinogradTest, MapsBeforeAndBehind) {
  for (const GraphOp op : kDirections)
    for (const bool last : {false, true}) {
      ConvProblem p = Small(op);
      p.fused = true;
      p.last = last;
      ExpectRight(p);
    }
}

// Maps ask for place 0 along an extent of 1, where the kernel has a place that it computes.
TEST(WinogradTest, MapsBehindExtentsOfOne) {
  for (const GraphOp op : kDirections)
    for (const bool last : {false, true})
      for (const auto& [images, made, image] :
           {std::tuple{1, 17, Dims{5, 6}}, std::tuple{4, 1, Dims{5, 6}},
            std::tuple{16, 17, Dims{1, 6}}, std::tuple{16, 17, Dims{1, 1}},
            std::tuple{1, 1, Dims{12, 12}}}) {
        ConvProblem p = Small(op);
        p.image = op == GraphOp::kConvWgrad && images == 1 ? Dims{12, 12} : image;
        (op == GraphOp::kConvDgrad ? p.channels : p.filters) = made;
        p.images = images;
        p.last = last;
        p.followed = true;
        ExpectRight(p);
        p.followed = false;
        p.fused = true;
        ExpectRight(p);
      }
}

TEST(WinogradTest, OtherArchitectures) {
  for (const char* arch : {"sm_80", "sm_100a"}) ExpectRight(Small(GraphOp::kConvWgrad), arch);
}

TEST(WinogradTest, DeclinesInWords) {
  const auto with = [](auto change) {
    ConvProblem p = Small(GraphOp::kConvFprop);
    change(p);
    return WhyNot(p);
  };
  EXPECT_NE(with([](ConvProblem& p) { p.stride = {1, 2}; }).find("stride 2"), std::string::npos);
  EXPECT_NE(with([](ConvProblem& p) { p.dilation = {2, 1}; }).find("dilation 2"),
            std::string::npos);
  EXPECT_NE(with([](ConvProblem& p) { p.taps = {3, 5}; }).find("5 taps"), std::string::npos);
  EXPECT_NE(with([](ConvProblem& p) { p.groups = 2; }).find("2 groups"), std::string::npos);
  EXPECT_NE(with([](ConvProblem& p) { p.type = DType::kF16; }).find("not f32"), std::string::npos);
  EXPECT_NE(with([](ConvProblem& p) { p.channels = 15; }).find("15 products"), std::string::npos);
  // Short sums of TF32 numbers are not exact enough.
  EXPECT_NE(WhyNot(Small(GraphOp::kConvFprop), "winograd_sm90").find("fewer than 64"),
            std::string::npos);
}

// Seconds of a whole plan, by its fastest configurations of a kind.
double LeastSecondsOf(const graph::Graph& g, const Target& target, Inputs inputs) {
  const Result<Groups> groups = GroupsOf(g, target, inputs);
  EXPECT_TRUE(groups.ok()) << groups.status().message();
  double sum = 0;
  for (const Group& group : groups->all) {
    const auto ranked = RankCandidates(group, target, inputs);
    sum += ranked.empty() ? group.cost : LeastSeconds(ranked);
  }
  return sum;
}

// By the model products of many channels by tiles are worth it, but not where the tiles of large
// images of few channels would be moved. Who asks for nothing gets another engine. For `wide`
// Winograd takes 126 of 187 us on an H200, and 136 of 185 on an H100, whose memory is slower.
TEST(WinogradTest, IsLikedWhereItPays) {
  for (const auto& [board, most] :
       {std::pair("NVIDIA H200", 0.9), std::pair("NVIDIA H100 80GB HBM3", 0.98)})
    for (const GraphOp op : kDirections)
      for (const bool last : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}", board, last));
        const Target target = *TargetFromBoard(board);
        ConvProblem p = Small(op);
        p.channels = p.filters = 256;
        p.images = 64;
        p.image = {14, 14};
        p.last = last;
        const graph::Graph wide = Build(p);
        EXPECT_LT(LeastSecondsOf(wide, target, Inputs::kWinograd),
                  most * LeastSecondsOf(wide, target, Inputs::kExact));
        const Result<CompiledPlan> plan = Compile(wide, target);
        EXPECT_TRUE(plan.ok() && InputsOf(Engines()[plan->engine]) == Inputs::kExact);
        p.channels = p.filters = 16;
        p.image = {56, 56};
        const graph::Graph large = Build(p);
        EXPECT_GT(LeastSecondsOf(large, target, Inputs::kWinograd),
                  LeastSecondsOf(large, target, Inputs::kExact));
      }
}

}  // namespace
}  // namespace kiln::compiler
