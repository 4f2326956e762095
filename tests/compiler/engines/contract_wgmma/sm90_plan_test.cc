// Plans of wgmma_sm90 against values worked out by hand: which operand is left, tensor maps with
// their corners, taps and phases; what is declined in words; which tiles are legal.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/engines/contract_wgmma/candidates.h"
#include "compiler/engines/contract_wgmma/plan.h"
#include "compiler/engines/contract_wgmma/tile.h"
#include "compiler/engines/registry.h"
#include "compiler/kernel/map_dims.h"
#include "ir/graph/builder.h"
#include "tests/compiler/conv_problem.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::TensorId;
using Strides = std::array<int64_t, 4>;
using Corner = std::array<int32_t, 3>;
using Five = std::array<int64_t, 5>;
using FiveInts = std::array<int32_t, 5>;

Target Hopper() { return *TargetFromArch("sm_90a"); }

Group GroupOf(const Graph& g) { return *std::move(*LeadingGroupOf(g, Hopper())); }

Result<TensorMapSpec> PlanOutput(const Group& group, const Sm90Plan& plan) {
  return PlanSm90Matrix(group, graph::Outputs(group.graph)[0], plan);
}

Sm90Plan PlanOf(const Graph& g) {
  Result<Sm90Plan> plan = PlanSm90(GroupOf(g));
  EXPECT_TRUE(plan.ok()) << plan.status().message() << "\n" << graph::Print(g);
  return plan.ok() ? *std::move(plan) : Sm90Plan{};
}

// Value of a member of contract_shape; members that are not mentioned have its defaults.
int64_t Member(const Sm90Plan& plan, std::string_view name) {
  for (const auto& [member, value] : plan.shape)
    if (member.name == name) return value;
  ADD_FAILURE() << "no member " << name;
  return INT64_MIN;
}

struct Expected {
  const char* name;
  int64_t value;
};
void ExpectMembers(const Sm90Plan& plan, std::initializer_list<Expected> members) {
  for (const Expected& e : members) EXPECT_EQ(Member(plan, e.name), e.value) << e.name;
}

// 2 images of 7x9 with 64 channels, 32 filters of 3x3, padding 1, stride 2: results are 4x5.
ConvProblem Strided(GraphOp op) {
  return {.name = "conv",
          .op = op,
          .groups = 1,
          .channels = 64,
          .filters = 32,
          .image = {7, 9},
          .stride = {2, 2}};
}

TEST(Sm90PlanTest, StridedFprop) {
  const Sm90Plan plan = PlanOf(Build(Strided(GraphOp::kConvFprop)));
  EXPECT_FALSE(plan.left.is_pixels);
  EXPECT_FALSE(plan.left.is_outer);
  EXPECT_TRUE(plan.right.is_pixels);
  EXPECT_EQ(plan.row_bytes, 128);
  EXPECT_EQ(plan.left_size, 32);
  EXPECT_EQ(plan.right_size, 2 * 4 * 5);
  EXPECT_EQ(plan.k_steps, 9);
  EXPECT_EQ(plan.all_steps, 9);
  EXPECT_TRUE(plan.phases.empty());
  // Filters [32, taps 9, channels 64].
  EXPECT_EQ(plan.left_map.kind, TensorMapSpec::Kind::kTiled);
  EXPECT_EQ(plan.left_map.dims, (Five{64, 32, 9, 1, 1}));
  EXPECT_EQ(plan.left_map.stride_bytes, (Strides{9 * 128, 128, 16, 0}));
  // Images [2, 7, 9, 64]; the last place starts at 7 of 9 and at 5 of 7.
  EXPECT_EQ(plan.right_map.kind, TensorMapSpec::Kind::kPixels);
  EXPECT_EQ(plan.right_map.rank, 4);
  EXPECT_EQ(plan.right_map.dims, (Five{64, 9, 7, 2, 1}));
  EXPECT_EQ(plan.right_map.stride_bytes, (Strides{128, 9 * 128, 63 * 128, 0}));
  EXPECT_EQ(plan.right_map.lower, (Corner{-1, -1, 0}));
  EXPECT_EQ(plan.right_map.upper, (Corner{-1, -1, 0}));
  EXPECT_EQ(plan.right_map.element_strides, (FiveInts{1, 2, 2, 1, 1}));
  ExpectMembers(plan, {{"tap_steps", 1},
                       {"places_w", 5},
                       {"places_h", 4},
                       {"step_w", 2},
                       {"low_h", -1},
                       {"offset_w", 1},
                       {"taps_w", 3},
                       {"taps_h", 3},
                       {"filter_first", 0},
                       {"filter_w", 1},
                       {"filter_h", 3}});
}

TEST(Sm90PlanTest, RotatedFiltersAreWalkedBackwards) {
  ConvProblem problem = Strided(GraphOp::kConvFprop);
  problem.flip = true;
  ExpectMembers(PlanOf(Build(problem)), {{"filter_first", 8}, {"filter_w", -1}, {"filter_h", -3}});
}

// Along each dim, place 2i gets tap 1 of dy[i], and place 2i+1 taps 2 of dy[i] and 0 of dy[i+1].
TEST(Sm90PlanTest, StridedDgradHasPhases) {
  const Sm90Plan plan = PlanOf(Build(Strided(GraphOp::kConvDgrad)));
  EXPECT_TRUE(plan.left.is_outer);  // channels are contiguous, k are the filters
  EXPECT_EQ(plan.row_bytes, 64);
  EXPECT_EQ(plan.left_size, 64);
  EXPECT_EQ(plan.phases, (Dims{2, 2}));
  EXPECT_EQ(plan.places, (Dims{2, 4, 5}));
  EXPECT_EQ(plan.right_size, 2 * 4 * 5);
  EXPECT_EQ(plan.k_steps, 2 * 2);
  EXPECT_EQ(plan.all_steps, 3 * 3);
  EXPECT_EQ(plan.tap_phases, 4);
  EXPECT_TRUE(plan.has_uneven_phases());
  EXPECT_FALSE(plan.has_empty_phases());
  EXPECT_EQ(plan.left_map.dims, (Five{64, 32, 9, 1, 1}));
  EXPECT_EQ(plan.right_map.dims, (Five{32, 5, 4, 2, 1}));
  EXPECT_EQ(plan.right_map.lower, (Corner{0, 0, 0}));
  EXPECT_EQ(plan.right_map.upper, (Corner{0, 0, 0}));
  EXPECT_EQ(plan.right_map.element_strides, (FiveInts{1, 1, 1, 1, 1}));
  ExpectMembers(plan, {{"phases_w", 2},
                       {"phases_h", 2},
                       {"pad_w", 1},
                       {"size_w", 3},
                       {"period_w", 2},
                       {"offset_w", 1},
                       {"low_w", 0},
                       {"filter_w", -2},
                       {"filter_h", -6}});
}

// dx [2, 8, 10, 64]: each phase has 4x5 places, two pixels apart.
TEST(Sm90PlanTest, PhasesAreStoredByMapsOfTheirOwn) {
  ConvProblem problem = Strided(GraphOp::kConvDgrad);
  problem.image = {8, 10};
  const Group group = GroupOf(Build(problem));
  const Sm90Plan plan = PlanOf(Build(problem));
  const graph::Tensor& dx = group.graph[graph::Outputs(group.graph)[0]];
  const Result<std::vector<TensorMapSpec>> maps = PlanSm90Phases(dx, plan);
  ASSERT_TRUE(maps.ok()) << maps.status().message();
  ASSERT_EQ(maps->size(), 4u);
  const int64_t offsets[] = {0, 128, 10 * 128, 11 * 128};
  for (size_t phase = 0; phase < 4; ++phase) {
    const TensorMapSpec& map = (*maps)[phase];
    EXPECT_EQ(map.kind, TensorMapSpec::Kind::kPixels);
    EXPECT_EQ(map.dims, (Five{64, 5, 4, 2, 1}));
    EXPECT_EQ(map.stride_bytes, (Strides{2 * 128, 20 * 128, 80 * 128, 0}));
    EXPECT_EQ(map.upper, (Corner{0, 0, 0}));
    EXPECT_EQ(map.offset_bytes, offsets[phase]) << phase;
  }
  problem.image = {7, 10};
  EXPECT_FALSE(PlanSm90Phases(dx, PlanOf(Build(Strided(GraphOp::kConvFprop)))).ok());
  const Group odd = GroupOf(Build(problem));
  const graph::Tensor& odd_dx = odd.graph[graph::Outputs(odd.graph)[0]];
  EXPECT_FALSE(PlanSm90Phases(odd_dx, PlanOf(Build(problem))).ok());
}

// Only every second place of a 1x1 filter of stride 2 gets anything; padding 1 makes it the odd
// ones.
TEST(Sm90PlanTest, PhasesWithoutTaps) {
  ConvProblem problem = Strided(GraphOp::kConvDgrad);
  problem.taps = {1, 1};
  problem.pad = {0, 0};
  problem.image = {8, 8};
  Sm90Plan plan = PlanOf(Build(problem));
  EXPECT_EQ(plan.tap_phases, 1);
  EXPECT_TRUE(plan.has_empty_phases());
  EXPECT_EQ(plan.k_steps, 1);
  EXPECT_EQ(plan.all_steps, 1);

  // Stride 2 and dilation 2: all three taps reach the even places, none the odd ones.
  problem.taps = {3, 3};
  problem.pad = {2, 2};
  problem.dilation = {2, 2};
  plan = PlanOf(Build(problem));
  EXPECT_EQ(plan.tap_phases, 1);
  EXPECT_TRUE(plan.has_empty_phases());
  EXPECT_EQ(plan.k_steps, 9);
  EXPECT_EQ(plan.all_steps, 9);
  EXPECT_EQ(plan.right_map.lower, (Corner{-1, -1, 0}));
  EXPECT_EQ(plan.right_map.upper, (Corner{-1, -1, 0}));
  ExpectMembers(plan, {{"period_w", 1}, {"offset_w", 1}, {"low_w", -1}});
}

TEST(Sm90PlanTest, DgradOfStrideOneIsTheRotatedConvolution) {
  ConvProblem problem = Strided(GraphOp::kConvDgrad);
  problem.stride = {1, 1};
  problem.pad = {0, 2};
  const Sm90Plan plan = PlanOf(Build(problem));
  EXPECT_TRUE(plan.phases.empty());
  // dy is 5x11: h reaches from -2 to one past its end, w inside of it.
  EXPECT_EQ(plan.right_map.lower, (Corner{0, -2, 0}));
  EXPECT_EQ(plan.right_map.upper, (Corner{-2, 0, 0}));
  ExpectMembers(plan, {{"filter_first", 8}, {"filter_w", -1}, {"filter_h", -3}, {"taps_w", 3}});
}

TEST(Sm90PlanTest, WgradPadsTapsToPanels) {
  ConvProblem problem = Strided(GraphOp::kConvWgrad);
  problem.channels = 40;
  const Sm90Plan plan = PlanOf(Build(problem));
  EXPECT_TRUE(plan.left.is_pixels && plan.left.is_outer && plan.right.is_outer);
  EXPECT_FALSE(plan.right.is_pixels);
  EXPECT_EQ(plan.padded_channels, 64);
  EXPECT_EQ(plan.left_size, 9 * 64);
  EXPECT_EQ(plan.right_size, 32);
  EXPECT_EQ(plan.k_steps, 1);  // 40 places of dy, 64 at a time
  EXPECT_EQ(plan.left_map.lower, (Corner{-1, -1, 0}));
  EXPECT_EQ(plan.right_map.dims[0], 32);
  EXPECT_EQ(plan.right_map.dims[1], 40);
  ExpectMembers(plan, {{"tap_panels", 1}, {"taps_w", 3}, {"places_w", 5}});
}

TEST(Sm90PlanTest, PlainPixelsAreAMatrix) {
  ConvProblem problem = Strided(GraphOp::kConvFprop);
  problem.taps = problem.stride = {1, 1};
  problem.pad = {0, 0};
  const Sm90Plan plan = PlanOf(Build(problem));
  EXPECT_FALSE(plan.right.is_pixels);
  EXPECT_EQ(plan.right_map.kind, TensorMapSpec::Kind::kTiled);
  EXPECT_EQ(plan.right_map.dims, (Five{64, 2 * 7 * 9, 1, 1, 1}));
  const Result<TensorMapSpec> out = PlanOutput(GroupOf(Build(problem)), plan);
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ(out->dims, (Five{32, 2 * 7 * 9, 1, 1, 1}));
  EXPECT_EQ(out->stride_bytes[0], 64);
}

// 3 images of 6x8, channels not innermost: 40 channels, 24 filters.
ConvProblem Nchw(GraphOp op) {
  return {.name = "conv",
          .op = op,
          .groups = 1,
          .channels = 40,
          .filters = 24,
          .images = 3,
          .image = {6, 8},
          .taps = {1, 1},
          .pad = {0, 0},
          .last = false};
}

TEST(Sm90PlanTest, ImagesAreBatchesWherePixelsAreContiguous) {
  const Graph g = Build(Nchw(GraphOp::kConvFprop));
  const Sm90Plan plan = PlanOf(g);
  EXPECT_FALSE(plan.left.is_outer);
  EXPECT_FALSE(plan.right.is_pixels);
  EXPECT_TRUE(plan.right.is_outer);
  EXPECT_TRUE(plan.along_right);
  EXPECT_EQ(plan.images, 3);
  EXPECT_EQ(plan.batches, 3);
  EXPECT_EQ(plan.left_size, 24);
  EXPECT_EQ(plan.right_size, 48);
  EXPECT_EQ(plan.left_map.dims, (Five{40, 24, 1, 1, 1}));
  EXPECT_EQ(plan.right_map.dims, (Five{48, 40, 3, 1, 1}));
  EXPECT_EQ(plan.right_map.stride_bytes, (Strides{96, 40 * 96, 16, 0}));
  ExpectMembers(plan, {{"tap_steps", 1}, {"inner_batches", 3}, {"left_inner", 3}});
  const Result<TensorMapSpec> out = PlanOutput(GroupOf(g), plan);
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ(out->dims, (Five{48, 24, 3, 1, 1}));
  EXPECT_EQ(out->stride_bytes, (Strides{96, 24 * 96, 16, 0}));

  const Sm90Plan dgrad = PlanOf(Build(Nchw(GraphOp::kConvDgrad)));
  EXPECT_TRUE(dgrad.left.is_outer);
  EXPECT_TRUE(dgrad.right.is_outer);
  EXPECT_EQ(dgrad.left_size, 40);
  EXPECT_EQ(dgrad.right_map.dims, (Five{48, 24, 3, 1, 1}));
}

TEST(Sm90PlanTest, GroupsStandOutsideOfImages) {
  ConvProblem problem = Nchw(GraphOp::kConvFprop);
  problem.groups = 2;
  problem.channels = 32;
  const Graph g = Build(problem);
  const Sm90Plan plan = PlanOf(g);
  EXPECT_EQ(plan.batches, 6);
  EXPECT_EQ(plan.left_map.dims, (Five{32, 24, 1, 2, 1}));
  EXPECT_EQ(plan.right_map.dims, (Five{48, 32, 3, 2, 1}));
  EXPECT_EQ(plan.right_map.stride_bytes, (Strides{96, 64 * 96, 32 * 96, 0}));
  const Result<TensorMapSpec> out = PlanOutput(GroupOf(g), plan);
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ(out->dims, (Five{48, 24, 3, 2, 1}));
  EXPECT_EQ(out->stride_bytes, (Strides{96, 48 * 96, 24 * 96, 0}));
}

// One image is one matrix, whatever is contiguous.
TEST(Sm90PlanTest, OneImageIsNoBatch) {
  ConvProblem problem = Nchw(GraphOp::kConvFprop);
  problem.images = 1;
  Sm90Plan plan = PlanOf(Build(problem));
  EXPECT_EQ(plan.batches, 1);
  EXPECT_TRUE(plan.right.is_outer);
  EXPECT_EQ(plan.right_map.dims, (Five{48, 40, 1, 1, 1}));
  problem.op = GraphOp::kConvWgrad;
  plan = PlanOf(Build(problem));
  EXPECT_FALSE(plan.left.is_outer);
  EXPECT_EQ(plan.k_steps, 1);
}

// Images are to blocks of their pixels what taps are to blocks of channels.
TEST(Sm90PlanTest, WgradWalksImages) {
  ConvProblem problem = Nchw(GraphOp::kConvWgrad);
  for (const DType type : {DType::kF16, DType::kE4M3}) {
    problem.type = type;
    const int64_t size = SizeOf(type);
    problem.image = {8, 16 - 4 * size};  // 96 or 64
    const int64_t places = 8 * (16 - 4 * size), steps = CeilDiv(places * size, 128);
    const Sm90Plan plan = PlanOf(Build(problem));
    EXPECT_FALSE(plan.left.is_outer);
    EXPECT_FALSE(plan.right.is_outer);
    EXPECT_EQ(plan.batches, 1);
    EXPECT_EQ(plan.left_size, 40);
    EXPECT_EQ(plan.right_size, 24);
    EXPECT_EQ(plan.padded_channels, 0);
    EXPECT_EQ(plan.k_steps, 3 * steps);
    EXPECT_EQ(plan.left_map.dims, (Five{places, 40, 3, 1, 1}));
    EXPECT_EQ(plan.right_map.dims, (Five{places, 24, 3, 1, 1}));
    EXPECT_EQ(plan.right_map.stride_bytes, (Strides{places * size, 24 * places * size, 16, 0}));
    ExpectMembers(plan, {{"tap_steps", steps}, {"taps_w", 3}});
  }
}

TEST(Sm90PlanTest, ThreeDims) {
  const Sm90Plan plan = PlanOf(Build({.name = "conv",
                                      .groups = 1,
                                      .channels = 32,
                                      .filters = 16,
                                      .image = {4, 5, 6},
                                      .taps = {3, 1, 2},
                                      .pad = {1, 0, 1},
                                      .stride = {1, 2, 1},
                                      .dilation = {1, 1, 2}}));
  EXPECT_EQ(plan.spatial, 3);
  EXPECT_EQ(plan.right_map.rank, 5);
  EXPECT_EQ(plan.right_map.dims, (Five{32, 6, 5, 4, 2}));
  EXPECT_EQ(plan.right_map.lower, (Corner{-1, 0, -1}));
  // Results are 4x3x6: the last places stand at 4 of 6, 4 of 5 and 2 of 4.
  EXPECT_EQ(plan.right_map.upper, (Corner{-1, 0, -1}));
  EXPECT_EQ(plan.right_map.element_strides, (FiveInts{1, 1, 2, 1, 1}));
  EXPECT_EQ(plan.k_steps, 6);
  ExpectMembers(plan, {{"offset_w", 2}, {"taps_w", 2}, {"taps_h", 1}, {"taps_d", 3}});
}

TEST(Sm90PlanTest, GroupsAreBatches) {
  ConvProblem problem = Strided(GraphOp::kConvFprop);
  problem.groups = 4;
  problem.channels = problem.filters = 16;
  const Sm90Plan plan = PlanOf(Build(problem));
  EXPECT_EQ(plan.batches, 4);
  EXPECT_EQ(plan.row_bytes, 32);
  EXPECT_EQ(plan.left_size, 16);
  EXPECT_EQ(plan.left_map.dims, (Five{16, 16, 9, 4, 1}));
  EXPECT_EQ(plan.right_map.dims[0], 64);
  EXPECT_EQ(Member(plan, "group_channels"), 16);
}

Graph Matmul(const Dims& a_strides, const Dims& b_strides, const Dims& y_strides,
             DType type = DType::kF16, const Dims& a = {6, 48, 72}, const Dims& b = {2, 72, 80}) {
  graph::GraphBuilder builder("matmul");
  const TensorId x = builder.Input("a", type, a, a_strides),
                 w = builder.Input("b", type, b, b_strides);
  builder.Output(builder.Apply(GraphOp::kMatmul, {x, w}, graph::MatmulAttrs{},
                               {.dtype = DType::kF32, .compute = DType::kF32, .dims = {}}),
                 "y", DType::kF16, y_strides);
  return *builder.Finish();
}

TEST(Sm90PlanTest, MatmulsOfAllLayouts) {
  const Dims a_row = {48 * 72, 72, 1}, a_column = {48 * 72, 1, 48};
  const Dims b_row = {72 * 80, 80, 1}, b_column = {72 * 80, 1, 72};
  for (const bool a_outer : {false, true}) {
    for (const bool b_outer : {false, true}) {
      const Sm90Plan plan =
          PlanOf(Matmul(a_outer ? a_column : a_row, b_outer ? b_row : b_column, {}));
      EXPECT_FALSE(plan.left_is_a);
      EXPECT_EQ(plan.left.is_outer, b_outer);
      EXPECT_EQ(plan.right.is_outer, a_outer);
      EXPECT_EQ(plan.left_size, 80);
      EXPECT_EQ(plan.right_size, 48);
      EXPECT_EQ(plan.k_steps, 2);
      // Six batches of a, each of b's two for three of them.
      EXPECT_EQ(plan.batches, 6);
      ExpectMembers(plan, {{"inner_batches", 6}, {"left_inner", 3}, {"right_inner", 1}});
      EXPECT_EQ(plan.left_map.dims, b_outer ? (Five{80, 72, 2, 1, 1}) : (Five{72, 80, 2, 1, 1}));
    }
  }
  const Sm90Plan plan = PlanOf(Matmul(a_row, b_row, {48 * 80, 1, 48}));
  EXPECT_TRUE(plan.left_is_a);
  EXPECT_EQ(plan.left_size, 48);
  EXPECT_EQ(plan.right_size, 80);
}

// ---- what is declined

void ExpectDeclined(const Graph& g, std::string_view words) {
  const Result<Sm90Plan> plan = PlanSm90(GroupOf(g));
  ASSERT_FALSE(plan.ok()) << words;
  EXPECT_NE(plan.status().message().find(words), std::string::npos) << plan.status().message();
}

TEST(Sm90PlanTest, DeclinesInWords) {
  const auto conv = [](auto change) {
    ConvProblem problem = Strided(GraphOp::kConvFprop);
    change(problem);
    return Build(problem);
  };
  ExpectDeclined(conv([](ConvProblem& p) { p.stride = {9, 1}; }), "step by up to 8 pixels");
  ExpectDeclined(conv([](ConvProblem& p) { p.pad = {1, 130}; }), "corners -130 and 128");
  ExpectDeclined(conv([](ConvProblem& p) { p.channels = 3; }), "multiple of 16 bytes");
  ExpectDeclined(conv([](ConvProblem& p) { p.last = false; }), "");
  ExpectDeclined(conv([](ConvProblem& p) {
                   p.groups = 4;
                   p.channels = 24;
                 }),
                 "24 channels of a group are 48 bytes");
  ExpectDeclined(conv([](ConvProblem& p) { p.images = 0; }), "is empty");
  const auto nchw = [](auto change) {
    ConvProblem problem = Nchw(GraphOp::kConvFprop);
    change(problem);
    return Build(problem);
  };
  ExpectDeclined(nchw([](ConvProblem& p) { p.image = {7, 7}; }), "strides 1 and 49");
  ExpectDeclined(nchw([](ConvProblem& p) { p.type = DType::kE4M3; }), "one must be 1 (that of k)");
  ExpectDeclined(nchw([](ConvProblem& p) { p.stride = {2, 2}; }), "channels innermost");
  ExpectDeclined(Matmul({48 * 72, 1, 48}, {}, {}, DType::kE4M3), "one must be 1 (that of k)");
  ExpectDeclined(Matmul({48 * 73, 73, 1}, {}, {}), "multiple of 16 bytes");
}

// ---- tiles

TEST(Sm90TileTest, LegalTiles) {
  struct Row {
    Sm90Tile tile;
    bool legal;
  };
  const Row rows[] = {
      {{.left = 128, .right = 256}, true},
      {{.left = 256, .right = 256}, false},  // 256 accumulators a thread
      {{.left = 256, .right = 128}, true},
      {{.left = 128, .right = 256, .ping_pong = true}, false},
      {{.left = 64, .right = 256, .ping_pong = true}, true},
      {{.left = 64, .right = 8}, false},  // 4 columns of a group
      {{.left = 64, .right = 16}, true},
      {{.left = 128, .right = 8}, true},
      {{.left = 128, .right = 8, .cluster = 2}, false},  // 4 rows of a block's share
      {{.left = 128, .right = 128, .split_k = 9}, true},
      {{.left = 128, .right = 128, .split_k = 10}, false},  // of 9 steps
      {{.left = 128, .right = 128, .split_k = 8, .split_cluster = 4}, true},
      {{.left = 128, .right = 128, .split_k = 6, .split_cluster = 4}, false},
      {{.left = 128, .right = 128, .cluster = 2, .split_k = 8, .split_cluster = 4}, false},
  };
  const Sm90Plan plan = PlanOf(Build(Strided(GraphOp::kConvFprop)));
  for (const Row& row : rows)
    EXPECT_EQ(IsLegal(plan, row.tile, Hopper()), row.legal)
        << KnobText(Engines()[EngineIndex("wgmma_sm90")], KnobsOf(row.tile));

  // Two terms of an f32 leave half of the accumulators, and come in whole panels of right.
  ConvProblem f32 = Strided(GraphOp::kConvFprop);
  f32.type = DType::kF32;
  const Result<Sm90Plan> terms = PlanSm90(GroupOf(Build(f32)), 2);
  ASSERT_TRUE(terms.ok()) << terms.status().message();
  EXPECT_TRUE(terms->left_in_registers());
  EXPECT_FALSE(terms->moves_rows());
  EXPECT_FALSE(IsLegal(*terms, {.left = 128, .right = 256}, Hopper()));
  EXPECT_TRUE(IsLegal(*terms, {.left = 128, .right = 128}, Hopper()));
  EXPECT_FALSE(IsLegal(*terms, {.left = 128, .right = 16}, Hopper()));
  // As many sums in two blocks of rows, whose pieces have two terms each, are too many registers.
  EXPECT_FALSE(IsLegal(*terms, {.left = 256, .right = 64}, Hopper()));
  EXPECT_FALSE(IsLegal(*terms, {.left = 128, .right = 64, .ping_pong = true}, Hopper()));
  EXPECT_TRUE(IsLegal(*terms, {.left = 64, .right = 128, .ping_pong = true}, Hopper()));
  EXPECT_EQ(StageBytes(*terms, {.left = 128, .right = 64}), (128 + 2 * 64) * 128);

  // An operand that is contiguous along its own axis comes in panels of 64.
  const Sm90Plan panels = PlanOf(Matmul({48 * 72, 1, 48}, {}, {}));
  EXPECT_FALSE(IsLegal(panels, {.left = 128, .right = 96}, Hopper()));
  EXPECT_TRUE(IsLegal(panels, {.left = 128, .right = 64}, Hopper()));
  EXPECT_FALSE(IsLegal(panels, {.left = 64, .right = 64}, Hopper()));
}

// The steps of all tiles are dealt to so many clusters a tile, at most to all that fit; equal parts
// are what splits are for.
TEST(Sm90TileTest, Streams) {
  const Sm90Plan plan = PlanOf(Build(Strided(GraphOp::kConvFprop)));
  const Sm90Tile small{.left = 64, .right = 64, .split_k = 3, .stream = true};
  const int64_t tiles = TilesOf(plan, small);
  Target target = Hopper();
  target.multiprocessors = static_cast<int>(3 * tiles + 5);
  EXPECT_EQ(StreamWorkers(plan, small, target), 3 * tiles);
  EXPECT_TRUE(IsLegal(plan, small, target));
  target.multiprocessors = static_cast<int>(2 * tiles + 1);
  EXPECT_EQ(StreamWorkers(plan, small, target), 2 * tiles + 1);
  EXPECT_FALSE(small.splits());
  EXPECT_EQ(small.slices(), 1);
  Sm90Tile other = small;
  other.ping_pong = true;
  EXPECT_FALSE(IsLegal(plan, other, target));
  other = small;
  other.reductions = 1;
  EXPECT_FALSE(IsLegal(plan, other, target));
  other = small;
  other.split_k = 1;  // whole tiles
  EXPECT_FALSE(IsLegal(plan, other, target));
}

// Clusters cost more where phases differ in taps, and only there.
TEST(Sm90TileTest, ClustersOfPhases) {
  ConvProblem problem = Strided(GraphOp::kConvDgrad);
  problem.image = {256, 256};
  problem.images = 64;
  const auto seconds = [](const Sm90Plan& plan, int cluster) {
    const Sm90Tile tile{.left = 64, .right = 128, .cluster = cluster, .direct = true};
    return Sm90Seconds(plan, tile, Hopper(), 0);
  };
  const Sm90Plan uneven = PlanOf(Build(problem));
  problem.taps = {2, 2};
  problem.pad = {0, 0};
  const Sm90Plan even = PlanOf(Build(problem));
  EXPECT_TRUE(uneven.has_uneven_phases());
  EXPECT_FALSE(even.has_uneven_phases());
  EXPECT_GT(seconds(uneven, 2) / seconds(uneven, 1), 1.1 * seconds(even, 2) / seconds(even, 1));
  const Sm90Tile preferred{.left = 256, .right = 128};
  EXPECT_EQ(Sm90Preference(uneven, preferred), 0);
  EXPECT_EQ(Sm90Preference(even, preferred), Proposal::kNotPreferred);
}

// Only phases without taps are filled, at half of what they cost as tiles, where memory's time is
// not the longest.
TEST(Sm90TileTest, Fills) {
  ConvProblem problem = Strided(GraphOp::kConvDgrad);
  const Sm90Tile tile{.left = 64, .right = 128, .fill = true, .direct = true};
  EXPECT_FALSE(IsLegal(PlanOf(Build(problem)), tile, Hopper()));
  problem.taps = {1, 1};
  problem.pad = {0, 0};
  problem.image = {256, 256};
  problem.images = 64;
  const Sm90Plan plan = PlanOf(Build(problem));
  EXPECT_TRUE(IsLegal(plan, tile, Hopper()));
  Sm90Tile other = tile;
  other.reductions = 1;
  EXPECT_FALSE(IsLegal(plan, other, Hopper()));
  other = tile;
  other.fill = false;
  EXPECT_EQ(SharedBytes(plan, tile, Hopper()), SharedBytes(plan, other, Hopper()) + 8);
  EXPECT_GT(Sm90Seconds(plan, other, Hopper(), 0), 1.3 * Sm90Seconds(plan, tile, Hopper(), 0));
  EXPECT_EQ(Sm90Seconds(plan, other, Hopper(), 1e10), Sm90Seconds(plan, tile, Hopper(), 1e10));
}

TEST(Sm90TileTest, CandidatesAreLegalAndFit) {
  const Target target = Hopper();
  const Engine& engine = Engines()[EngineIndex("wgmma_sm90")];
  size_t candidates = 0;
  for (const Graph& g :
       {Build(Strided(GraphOp::kConvFprop)), Build(Strided(GraphOp::kConvDgrad)),
        Build(Strided(GraphOp::kConvWgrad)), Matmul({}, {}, {}), Matmul({}, {}, {3840, 1, 48})}) {
    const Group group = GroupOf(g);
    const Sm90Plan plan = PlanOf(g);
    const auto planned = engine.plan(group, target);
    ASSERT_TRUE(planned.ok()) << planned.status().message();
    for (const Proposal& p : Propose(engine, **planned)) {
      EXPECT_TRUE(IsLegal(plan, TileOf(p.knobs), target)) << KnobText(engine, p.knobs);
      EXPECT_TRUE(FitsShared(engine, group, target, p.knobs, p.shared_bytes).ok())
          << KnobText(engine, p.knobs);
      EXPECT_LT(p.seconds, 1);
      ++candidates;
    }
  }
  EXPECT_GT(candidates, 20u);
}

// A store by map writes 16 bytes at a time, which rows of 24 bytes in a client's 32 have no room
// for.
TEST(Sm90TileTest, StoresByMapAreOfWholePieces) {
  for (const auto& [columns, is_whole] : {std::pair{72, true}, {76, false}}) {
    const Graph g =
        Matmul({}, {72 * 80, 80, 1}, {48 * 80, 80, 1}, DType::kF16, {6, 48, 72}, {2, 72, columns});
    const Group group = GroupOf(g);
    const Sm90Plan plan = PlanOf(g);
    const Result<TensorMapSpec> map = PlanOutput(group, plan);
    ASSERT_TRUE(map.ok()) << map.status().message();
    EXPECT_EQ(CheckStores(*map, group.graph[graph::Outputs(group.graph)[0]]).ok(), is_whole);
    EXPECT_EQ(Sm90TileModel(group, Hopper(), plan).Tile({.left = 128, .right = 64}).direct,
              is_whole);
  }
}

// Slots of full operands: a tile's boxes and more where sums are short, fewer where stages need the
// room, never fewer than two; what all takes fits.
TEST(Sm90TileTest, SlotsOfFullOperands) {
  const Target target = Hopper();
  const Sm90Plan deep = PlanOf(Build(Strided(GraphOp::kConvFprop)));  // 9 steps
  const Sm90Plan flat = PlanOf(Matmul({}, {}, {}, DType::kF16, {1, 512, 64}, {1, 64, 512}));
  struct Row {
    const Sm90Plan& plan;
    int full, buffers;
  };
  for (const Row& row : {Row{deep, 1, 4}, Row{deep, 2, 4}, Row{flat, 1, 8}, Row{flat, 2, 8}}) {
    const Sm90Tile tile{.left = 128, .right = 256, .direct = true, .full = row.full};
    EXPECT_EQ(BuffersOf(row.plan, tile, target), row.buffers) << row.full;
    EXPECT_TRUE(IsLegal(row.plan, tile, target)) << row.full;
    EXPECT_LE(SharedBytes(row.plan, tile, target), target.shared_bytes_per_block);
  }
  EXPECT_EQ(BuffersOf(deep, {.direct = true}, target), 2);
  EXPECT_EQ(BuffersOf(deep, {}, target), 0);
}

TEST(Sm90TileTest, BoxesFollowTheTile) {
  const Sm90Plan fprop = PlanOf(Build(Strided(GraphOp::kConvFprop)));
  TensorMapSpec left = fprop.left_map, right = fprop.right_map;
  SetBox(left, fprop, fprop.left, 128);
  EXPECT_EQ(left.box, (FiveInts{64, 128, 1, 1, 1}));
  EXPECT_EQ(left.swizzle_bytes, 128);
  SetBox(right, fprop, fprop.right, 96);
  EXPECT_EQ(right.channels, 64);
  EXPECT_EQ(right.pixels, 96);

  const Sm90Plan dgrad = PlanOf(Build(Strided(GraphOp::kConvDgrad)));
  left = dgrad.left_map, right = dgrad.right_map;
  SetBox(left, dgrad, dgrad.left, 128);
  EXPECT_EQ(left.box, (FiveInts{64, 32, 1, 1, 1}));  // a panel of channels, 32 filters
  EXPECT_EQ(left.swizzle_bytes, 128);
  SetBox(right, dgrad, dgrad.right, 96);
  EXPECT_EQ(right.channels, 32);
  EXPECT_EQ(right.swizzle_bytes, 64);

  const Sm90Plan wgrad = PlanOf(Build(Strided(GraphOp::kConvWgrad)));
  left = wgrad.left_map;
  SetBox(left, wgrad, wgrad.left, 128);
  EXPECT_EQ(left.channels, 64);
  EXPECT_EQ(left.pixels, 64);
}

}  // namespace
}  // namespace kiln::compiler
