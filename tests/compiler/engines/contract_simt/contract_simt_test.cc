// The FMA engine's GPU schedule by interpretation: 16-byte reads along k and along the rows of
// either operand, pieces written along either axis of the output, threads and tiles of all kinds,
// and k in slices.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "ir/graph/builder.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::TensorId;
using M = graph::PointwiseMode;

struct Knobs {
  int m = 32, n = 32, k = 8, threads = 64, slices = 1;
};

// The text of the first kernel, for what a test wants to see in it.
std::string ExpectRight(const Graph& g, const Knobs& knobs) {
  const EngineChoice choice{.engine = EngineIndex("contract_simt"),
                            .knobs = {{"tile_m", knobs.m},
                                      {"tile_n", knobs.n},
                                      {"tile_k", knobs.k},
                                      {"threads", knobs.threads},
                                      {"split_k", knobs.slices}}};
  const Target target = *TargetFromArch("sm_90a");
  const Result<TileRun> run = CheckTiles(g, target, graph::RandomInputs(g, 5, false), choice);
  EXPECT_TRUE(run.ok()) << run.status().message() << "\n" << graph::Print(g);
  return run.ok() ? run->plan.program.kernels[0].text : "";
}

Graph Matmul(DType type, const Dims& a, const Dims& as, const Dims& b, const Dims& bs,
             const Dims& cs = {}, DType out = DType::kF32) {
  graph::GraphBuilder builder("matmul");
  const TensorId x = builder.Input("a", type, a, as), y = builder.Input("b", type, b, bs);
  const DType compute = type == DType::kF64 ? DType::kF64 : DType::kF32;
  const TensorId c = builder.Apply(GraphOp::kMatmul, {x, y}, graph::MatmulAttrs{},
                                   {.dtype = compute, .compute = compute, .dims = {}});
  builder.Output(c, "y", out, cs);
  return *builder.Finish();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Extents divisible by 4 and not; each transposition; padded rows.
TEST(ContractSimtTest, MatmulsInEveryLayout) {
  for (const auto& [m, n, k] : {std::array{44, 36, 20}, std::array{37, 41, 19}}) {
    const Dims a = {2, m, k}, b = {2, k, n};
    for (const Dims& as : {Dims{m * k, k, 1}, Dims{m * k, 1, m}, Dims{m * (k + 4), k + 4, 1}})
      for (const Dims& bs : {Dims{k * n, n, 1}, Dims{k * n, 1, k}})
        for (const Dims& cs : {Dims{m * n, n, 1}, Dims{m * n, 1, m}})
          ExpectRight(Matmul(DType::kF32, a, as, b, bs, cs), {});
  }
}

TEST(ContractSimtTest, MovesPiecesWhereMemoryAllows) {
  const Dims a = {1, 64, 32}, b = {1, 32, 64};
  // Along k for a, along the rows for b, along n for the output: nothing element by element. A
  // small tile's kernel reads in one place.
  const std::string wide = ExpectRight(Matmul(DType::kF32, a, {}, b, {}), {});
  EXPECT_EQ(Count(wide, "copy<16>(a_staged"), 1) << wide;
  EXPECT_EQ(Count(wide, "copy<16>(b_staged"), 1) << wide;
  EXPECT_EQ(Count(wide, "copy<16>(y"), 1) << wide;
  const std::string halves = ExpectRight(Matmul(DType::kF16, a, {}, b, {}, {}, DType::kF16), {});
  EXPECT_EQ(Count(halves, "copy<8>(a_staged"), 1) << halves;
  EXPECT_EQ(Count(halves, "copy<8>(y"), 1) << halves;
  // An odd k: a's rows are not aligned, b's are.
  const std::string odd = ExpectRight(Matmul(DType::kF32, {1, 64, 31}, {}, {1, 31, 64}, {}), {});
  EXPECT_EQ(Count(odd, "copy<16>(a_staged"), 0) << odd;
  EXPECT_EQ(Count(odd, "copy<16>(b_staged"), 1) << odd;
}

// NVRTC's time goes with the text: a small tile's has each of a thread's two pieces of a once, and
// products of 4 places of k; a large one's its one piece twice, and all 16 places.
TEST(ContractSimtTest, SmallTilesHaveLittleText) {
  const Graph g = Matmul(DType::kF32, {1, 256, 64}, {}, {1, 64, 256}, {});
  const std::string small = ExpectRight(g, {.m = 64, .n = 32, .k = 16, .threads = 128});
  EXPECT_EQ(Count(small, "copy<16>(a_staged"), 2) << small;
  EXPECT_EQ(Count(small, "kk < 4;"), 1) << small;
  const std::string large = ExpectRight(g, {.m = 64, .n = 64, .k = 16, .threads = 256});
  EXPECT_EQ(Count(large, "copy<16>(a_staged"), 2) << large;
  EXPECT_EQ(Count(large, "kk < 16;"), 1) << large;
}

TEST(ContractSimtTest, EveryBlockOfThreads) {
  const Dims a = {1, 140, 24}, b = {1, 24, 132};
  for (const DType type : {DType::kF32, DType::kF64}) {
    const DType out = type;
    for (const int m : {32, 64, 128})
      for (const int n : {32, 64, 128})
        for (const int threads : {64, 128, 256}) {
          if (type == DType::kF64 && threads == 128) continue;
          ExpectRight(Matmul(type, a, {}, b, {}, {}, out),
                      {.m = m, .n = n, .k = threads == 128 ? 16 : 8, .threads = threads});
        }
  }
}

TEST(ContractSimtTest, SlicesOfK) {
  for (const int64_t k : {1, 8, 9, 64, 100, 131})
    for (const int slices : {2, 4, 64}) {
      ExpectRight(Matmul(DType::kF32, {2, 9, k}, {}, {2, k, 12}, {}), {.slices = slices});
      ExpectRight(Matmul(DType::kF32, {2, 8, k}, {}, {2, k, 7}, {}, {56, 1, 8}),
                  {.slices = slices});
    }
}

// Few tiles and a long k: the default fills the GPU, in two kernels and a workspace.
TEST(ContractSimtTest, SlicesWhereTilesAreFew) {
  const Graph long_k = Matmul(DType::kF32, {1, 64, 65536}, {}, {1, 65536, 64}, {});
  const Graph large = Matmul(DType::kF32, {1, 4096, 4096}, {}, {1, 4096, 4096}, {});
  const Target target = *TargetFromArch("sm_90a");
  const Result<CompiledPlan> few = Compile(long_k, target), many = Compile(large, target);
  ASSERT_TRUE(few.ok() && many.ok());
  ASSERT_EQ(few->program.launches.size(), 2u);
  EXPECT_GE(few->program.launches[0].grid[2] * few->program.launches[0].grid[0], 64u);
  EXPECT_GT(few->program.workspace_bytes, 0);
  EXPECT_EQ(many->program.launches.size(), 1u);
  EXPECT_EQ(many->program.workspace_bytes, 0);
}

Dims ChannelsLast(const Dims& d) {
  Dims s(d.size(), 1);
  int64_t size = d[1];
  for (size_t i = d.size(); i-- > 2;) {
    s[i] = size;
    size *= d[i];
  }
  s[0] = size;
  return s;
}

// conv, then bias, a residual and relu, in one layout or the other.
struct ConvCase {
  GraphOp op;
  bool channels_last;
  int64_t groups, taps, stride, pad;
};

Graph Conv(const ConvCase& c) {
  const int64_t channels = 8 * c.groups, filters = 12 * c.groups, size = 8;
  const int64_t places = (size + 2 * c.pad - c.taps) / c.stride + 1;
  const Dims xd = {2, channels, size, size}, wd = {filters, 8, c.taps, c.taps};
  const Dims yd = {2, filters, places, places};
  const auto layout = [&](const Dims& d) { return c.channels_last ? ChannelsLast(d) : Dims{}; };
  const bool forward = c.op == GraphOp::kConvFprop, wgrad = c.op == GraphOp::kConvWgrad;
  graph::GraphBuilder b("conv");
  const TensorId first = wgrad     ? b.Input("x", DType::kF32, xd, layout(xd))
                         : forward ? b.Input("x", DType::kF32, xd, layout(xd))
                                   : b.Input("dy", DType::kF32, yd, layout(yd));
  const TensorId second = wgrad ? b.Input("dy", DType::kF32, yd, layout(yd))
                                : b.Input("w", DType::kF32, wd, layout(wd));
  const Dims out = wgrad ? wd : forward ? yd : xd;
  const graph::ConvAttrs attrs{.pre_padding = {c.pad, c.pad},
                               .post_padding = {c.pad, c.pad},
                               .stride = {c.stride, c.stride},
                               .dilation = {1, 1}};
  TensorId y = b.Apply(c.op, {first, second}, attrs,
                       {.dtype = DType::kF32, .compute = DType::kF32, .dims = out});
  const TensorId bias = b.Input("bias", DType::kF32, {1, out[1], 1, 1});
  const TensorId residual = b.Input("residual", DType::kF32, out, layout(out));
  y = b.Pointwise(M::kReluFwd, {b.Pointwise(M::kAdd, {b.Pointwise(M::kAdd, {y, bias}), residual})});
  b.Output(y, "y", DType::kF32, layout(out));
  return *b.Finish();
}

TEST(ContractSimtTest, ConvolutionsWithEpilogues) {
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad})
    for (const bool last : {true, false})
      for (const int64_t groups : {1, 2})
        for (const auto& [taps, stride, pad] :
             {std::array{3, 1, 1}, std::array{1, 1, 0}, std::array{2, 2, 0}}) {
          const Graph g = Conv({op, last, groups, taps, stride, pad});
          ExpectRight(g, {});
          ExpectRight(g, {.m = 64, .k = 16, .threads = 128, .slices = 4});
        }
}

// 1x1 filters walk the pixels of NCHW images in pieces, and the epilogue writes them so.
TEST(ContractSimtTest, PixelsInPieces) {
  const std::string text =
      ExpectRight(Conv({GraphOp::kConvFprop, false, 1, 1, 1, 0}), {.m = 64, .threads = 128});
  EXPECT_GE(Count(text, "copy<16>(a_staged"), 1) << text;
  EXPECT_EQ(Count(text, "copy<16>(y"), 1) << text;
  EXPECT_EQ(Count(text, "copy<16>(x3_r"), 1) << text;
}

}  // namespace
}  // namespace kiln::compiler
