// conv_direct by interpretation: depthwise and grouped convolutions in both designs, both
// directions, odd geometry, layouts, prologues and epilogues, every knob value.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "ir/graph/builder.h"
#include "tests/compiler/sample_graphs.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::TensorId;

struct Problem {
  std::string name;
  GraphOp op = GraphOp::kConvFprop;
  DType type = DType::kF16;
  int64_t groups = 32, channels = 1, filters = 1;  // the last two of a group
  int64_t images = 2;
  Dims image = {7, 9}, taps = {3, 3};
  Dims pad = {1, 1}, stride = {1, 1}, dilation = {1, 1};
  bool last = true, flip = false, fused = false;
};

Dims Strides(const Dims& dims, bool channels_last) {
  Dims strides(dims.size());
  int64_t step = 1;
  if (channels_last) {
    strides[1] = 1;
    step = dims[1];
  }
  for (size_t d = dims.size(); d-- > 0;) {
    if (d == 1 && channels_last) continue;
    strides[d] = step;
    step *= dims[d];
  }
  return strides;
}

Graph Build(const Problem& p) {
  graph::GraphBuilder b(p.name);
  Dims x = {p.images, p.groups * p.channels}, w = {p.groups * p.filters, p.channels};
  Dims y = {p.images, p.groups * p.filters};
  for (size_t s = 0; s < p.image.size(); ++s) {
    x.push_back(p.image[s]);
    w.push_back(p.taps[s]);
    const int64_t reach = (p.taps[s] - 1) * p.dilation[s] + 1;
    y.push_back((p.image[s] + 2 * p.pad[s] - reach) / p.stride[s] + 1);
  }
  const graph::ConvAttrs attrs{.pre_padding = p.pad,
                               .post_padding = p.pad,
                               .stride = p.stride,
                               .dilation = p.dilation,
                               .flip = p.flip};
  const auto input = [&](const char* name, const Dims& dims) {
    return b.Input(name, p.type, dims, Strides(dims, p.last));
  };
  const auto per_channel = [&](const char* name, int64_t channels) {
    Dims dims(x.size(), 1);
    dims[1] = channels;
    return b.Input(name, p.type, dims, Strides(dims, p.last));
  };
  const DType compute = p.type == DType::kF64 ? DType::kF64 : DType::kF32;
  const bool dgrad = p.op == GraphOp::kConvDgrad, wgrad = p.op == GraphOp::kConvWgrad;
  TensorId first = dgrad ? input("dy", y) : input("x", x);
  const TensorId second = wgrad ? input("dy", y) : input("w", w);
  const Dims made = dgrad ? x : wgrad ? w : y;
  if (p.fused) {
    const TensorId scale = per_channel("scale", dgrad ? y[1] : x[1]);
    first = b.Pointwise(graph::PointwiseMode::kMul, {first, scale},
                        {.dtype = p.type, .compute = compute, .dims = {}});
    first = b.Pointwise(graph::PointwiseMode::kAdd, {first, scale},
                        {.dtype = p.type, .compute = compute, .dims = {}});
  }
  TensorId c =
      b.Apply(p.op, {first, second}, attrs, {.dtype = compute, .compute = compute, .dims = made});
  if (p.fused && !wgrad) {
    c = b.Pointwise(graph::PointwiseMode::kAdd, {c, per_channel("bias", made[1])},
                    {.dtype = compute, .compute = compute, .dims = {}});
    c = b.Pointwise(graph::PointwiseMode::kAdd, {c, input("residual", made)},
                    {.dtype = compute, .compute = compute, .dims = {}});
    const TensorId r = b.Pointwise(graph::PointwiseMode::kReluFwd, {c},
                                   {.dtype = compute, .compute = compute, .dims = {}});
    b.Output(c, "before", compute, Strides(made, p.last));
    c = r;
  }
  b.Output(c, "result", p.type, Strides(made, p.last));
  return *b.Finish();
}

void ExpectRight(const Problem& p, std::vector<KnobSetting> knobs = {}) {
  const Graph g = Build(p);
  const EngineChoice choice{.engine = EngineIndex("conv_direct"), .knobs = std::move(knobs)};
  const Result<TileRun> run =
      CheckTiles(g, *TargetFromArch("sm_90a"), graph::RandomInputs(g, 5, false), choice);
  EXPECT_TRUE(run.ok()) << p.name << ": " << run.status().message() << "\n" << graph::Print(g);
}

constexpr auto kF = GraphOp::kConvFprop;
constexpr auto kD = GraphOp::kConvDgrad;

std::vector<Problem> Problems() {
  return {
      {.name = "depthwise"},
      {.name = "depthwise_bf16_fused", .type = DType::kBF16, .groups = 40, .fused = true},
      {.name = "depthwise_5x5_s2", .taps = {5, 5}, .pad = {2, 2}, .stride = {2, 2}},
      {.name = "depthwise_even_dilated", .taps = {2, 4}, .pad = {3, 1}, .dilation = {2, 3}},
      {.name = "depthwise_flip", .taps = {3, 2}, .flip = true},
      {.name = "depthwise_wide_pad", .image = {3, 2}, .taps = {2, 2}, .pad = {3, 4}},
      {.name = "depthwise_stride_beyond", .taps = {2, 1}, .pad = {0, 0}, .stride = {3, 4}},
      {.name = "group2", .groups = 12, .channels = 2, .filters = 2},
      {.name = "group4", .groups = 10, .channels = 4, .filters = 4, .fused = true},
      {.name = "group8", .groups = 5, .channels = 8, .filters = 8, .stride = {2, 1}},
      {.name = "group16", .groups = 3, .channels = 16, .filters = 16},
      {.name = "group32", .groups = 2, .channels = 32, .filters = 32, .taps = {1, 3}},
      {.name = "one_dim", .image = {19}, .taps = {4}, .pad = {2}, .stride = {2}, .dilation = {1}},
      {.name = "three_dims",
       .groups = 8,
       .image = {3, 5, 6},
       .taps = {2, 3, 3},
       .pad = {1, 1, 0},
       .stride = {2, 1, 1},
       .dilation = {1, 1, 2}},
      {.name = "one_pixel", .images = 3, .image = {1, 1}},
      {.name = "dgrad", .op = kD},
      {.name = "dgrad_s2", .op = kD, .taps = {3, 3}, .stride = {2, 2}, .fused = true},
      {.name = "dgrad_s3", .op = kD, .image = {8, 11}, .taps = {3, 2}, .stride = {2, 3}},
      {.name = "dgrad_group8", .op = kD, .groups = 4, .channels = 8, .filters = 8, .flip = true},
      {.name = "dgrad_group16",
       .op = kD,
       .groups = 2,
       .channels = 16,
       .filters = 16,
       .stride = {1, 2},
       .dilation = {1, 2}},
      {.name = "dgrad_three_dims",
       .op = kD,
       .groups = 8,
       .image = {4, 5, 3},
       .taps = {3, 2, 2},
       .pad = {1, 0, 1},
       .stride = {2, 2, 1},
       .dilation = {1, 1, 1}},
      // FMA units.
      {.name = "f32", .type = DType::kF32, .groups = 12, .fused = true},
      {.name = "f32_nchw", .type = DType::kF32, .groups = 5, .stride = {1, 2}, .last = false},
      {.name = "f64_group3", .type = DType::kF64, .groups = 3, .channels = 3, .filters = 3},
      {.name = "f16_nchw", .groups = 7, .taps = {5, 3}, .last = false, .fused = true},
      {.name = "multiplier", .groups = 6, .filters = 3, .stride = {2, 2}},
      {.name = "multiplier2_f32", .type = DType::kF32, .groups = 8, .filters = 2, .flip = true},
      {.name = "group_4_to_2", .groups = 4, .channels = 4, .filters = 2},
      {.name = "one_channel", .groups = 1, .filters = 9, .last = false},
      {.name = "dgrad_f32", .op = kD, .type = DType::kF32, .groups = 12, .stride = {2, 2}},
      {.name = "dgrad_multiplier", .op = kD, .groups = 6, .filters = 3, .stride = {1, 3}},
      {.name = "dgrad_nchw_3d",
       .op = kD,
       .type = DType::kF32,
       .groups = 3,
       .channels = 2,
       .filters = 3,
       .image = {3, 4, 5},
       .taps = {2, 3, 2},
       .pad = {0, 1, 1},
       .stride = {2, 1, 2},
       .dilation = {1, 2, 1},
       .last = false},
  };
}

TEST(ConvDirectTest, RunsRight) {
  for (const Problem& p : Problems()) ExpectRight(p);
}

TEST(ConvDirectTest, EveryKnobValueRunsRight) {
  const Engine& engine = Engines()[EngineIndex("conv_direct")];
  size_t number = 0;
  for (const Problem& p : Problems()) {
    if (++number % 3 != 0 && p.name.find("group") == std::string::npos) continue;
    for (const KnobRow& row : engine.knobs)
      for (const int value : row.domain.subspan(1)) ExpectRight(p, {{row.name, value}});
  }
}

Graph WithHalfInputs(Graph g) {
  for (TensorId id : graph::Inputs(g))
    if (g[id].dtype == DType::kF32) g[id].dtype = DType::kF16;
  return g;
}

TEST(ConvDirectTest, TakesConvolutionSamples) {
  const Target target = *TargetFromArch("sm_90a");
  const Engine& engine = Engines()[EngineIndex("conv_direct")];
  int taken = 0;
  for (const SampleGraph& sample : ConvSamples()) {
    for (const Graph& g : {sample.graph, WithHalfInputs(sample.graph)}) {
      const Result<std::optional<Group>> leading = LeadingGroupOf(g, target);
      if (!leading.ok() || !leading->has_value() || !engine.supports(**leading, target).ok())
        continue;
      const Result<TileRun> run = CheckTiles(g, target, graph::RandomInputs(g, 3, sample.positive),
                                             {.engine = EngineIndex("conv_direct"), .knobs = {}});
      EXPECT_TRUE(run.ok()) << sample.name << ": " << run.status().message() << graph::Print(g);
      ++taken;
    }
  }
  EXPECT_GT(taken, 20);
}

std::string Refusal(const Problem& p) {
  const Result<CompiledPlan> plan = Compile(Build(p), *TargetFromArch("sm_90a"),
                                            {.engine = EngineIndex("conv_direct"), .knobs = {}});
  return plan.ok() ? "" : plan.status().message();
}

TEST(ConvDirectTest, DeclinesInWords) {
  EXPECT_NE(Refusal({.name = "dense", .groups = 1, .channels = 64, .filters = 64})
                .find("64 channels and 64 filters"),
            std::string::npos);
  EXPECT_NE(Refusal({.name = "strided", .op = kD, .image = {19, 19}, .stride = {5, 1}})
                .find("dgrad's stride is 5"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln::compiler
