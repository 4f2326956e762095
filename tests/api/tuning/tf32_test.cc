// Heuristics offer plans that round f32 operands to TF32, as NVIDIA's library does, with the note
// that says so; never in the fallback list, and not where NVIDIA_TF32_OVERRIDE is 0. And plans of
// Winograd's products, with their note. And some that are on no tensor cores.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "api/session/session.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/registry.h"
#include "ir/base/env.h"
#include "ir/graph/builder.h"

namespace kiln::api {
namespace {

graph::Graph Matmul(DType type) {
  graph::GraphBuilder b("matmul");
  const graph::TensorId x = b.Input("a", type, {1, 1024, 1024}),
                        y = b.Input("b", type, {1, 1024, 1024}, {1 << 20, 1, 1024});
  b.Output(b.Apply(graph::GraphOp::kMatmul, {x, y}, graph::MatmulAttrs{},
                   {.dtype = DType::kF32, .compute = DType::kF32, .dims = {}}),
           "y", type);
  return *b.Finish();
}

// For each config of the list, true if it rounds its inputs.
std::vector<bool> RoundedIn(const char* override_value, DType type, RankMode mode) {
  if (override_value == nullptr)
    ::unsetenv("NVIDIA_TF32_OVERRIDE");
  else
    ::setenv("NVIDIA_TF32_OVERRIDE", override_value, 1);
  ResetEnvForTest();
  const auto session = *OpenSessionFor(*TargetFromArch("sm_90a"));
  const graph::Graph graph = Matmul(type);
  std::vector<bool> rounded;
  const std::vector<EngineConfig> configs = *session->Rank(graph, {.mode = mode});
  for (const EngineConfig& config : configs) {
    const Result<EngineFacts> facts = session->Describe(graph, config.engine);
    EXPECT_TRUE(facts.ok()) << facts.status().message();
    rounded.push_back(compiler::OnlyRoundsInputs(compiler::Engines()[config.engine]));
    EXPECT_EQ(rounded.back(),
              std::ranges::count(facts->numerical_notes, compiler::kNoteDownConvertInputs) == 1);
  }
  return rounded;
}

TEST(Tf32Test, IsOfferedByCost) {
  for (const RankMode mode : {RankMode::kA, RankMode::kInstant, RankMode::kB}) {
    for (const char* value : {static_cast<const char*>(nullptr), "1"}) {
      const std::vector<bool> rounded = RoundedIn(value, DType::kF32, mode);
      ASSERT_FALSE(rounded.empty());
      EXPECT_TRUE(rounded[0]);  // tensor cores are many times as fast as FMA units
      EXPECT_GT(std::ranges::count(rounded, false), 0);
    }
    EXPECT_EQ(std::ranges::count(RoundedIn(nullptr, DType::kF16, mode), true), 0);
  }
}

TEST(Tf32Test, IsLeftOutOnRequest) {
  for (const RankMode mode : {RankMode::kA, RankMode::kB})
    EXPECT_EQ(std::ranges::count(RoundedIn("0", DType::kF32, mode), true), 0);
  EXPECT_EQ(std::ranges::count(RoundedIn(nullptr, DType::kF32, RankMode::kFallback), true), 0);
}

// Winograd's products stand before those that they are faster than, in no fallback list, and do not
// depend on whether operands may be rounded.
TEST(WinogradTest, IsOfferedByCost) {
  ::setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  ResetEnvForTest();
  const auto session = *OpenSessionFor(*TargetFromArch("sm_90a"));
  const Dims image = {64, 256, 14, 14};
  graph::GraphBuilder b("wgrad");
  const graph::TensorId x = b.Input("x", DType::kF32, image),
                        dy = b.Input("dy", DType::kF32, image);
  const graph::ConvAttrs attrs{
      .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
  b.Output(b.Apply(graph::GraphOp::kConvWgrad, {x, dy}, attrs, {.dims = {256, 256, 3, 3}}), "dw",
           DType::kF32);
  const graph::Graph graph = *b.Finish();
  const auto is_winograd = [&](const EngineConfig& config) {
    return std::ranges::count(session->Describe(graph, config.engine)->numerical_notes,
                              compiler::kNoteWinograd) == 1;
  };
  for (const RankMode mode : {RankMode::kA, RankMode::kInstant, RankMode::kB}) {
    const std::vector<EngineConfig> configs = *session->Rank(graph, {.mode = mode});
    EXPECT_TRUE(is_winograd(configs.front()));
    EXPECT_FALSE(std::ranges::all_of(configs, is_winograd));
    for (const EngineConfig& config : {configs.front(), configs.back()})
      EXPECT_TRUE(session->Measure(graph, config).ok());
  }
  const std::vector<EngineConfig> fallback = *session->Rank(graph, {.mode = RankMode::kFallback});
  EXPECT_TRUE(std::ranges::none_of(fallback, is_winograd));
}

struct ConvForm {
  graph::GraphOp op;
  DType type;
  bool channels_last;
  int64_t groups, channels;
};

graph::Graph Conv(const ConvForm& f) {
  const auto layout = [&](int64_t c, int64_t side) {
    return f.channels_last ? Dims{side * side * c, 1, side * c, c}
                           : Dims{side * side * c, side * side, side, 1};
  };
  const int64_t inside = f.channels / f.groups;
  const Dims x = {8, f.channels, 14, 14}, w = {64, inside, 3, 3}, y = {8, 64, 14, 14};
  const Dims xs = layout(f.channels, 14), ws = layout(inside, 3), ys = layout(64, 14);
  const graph::ConvAttrs attrs{
      .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
  const DType sum = f.type == DType::kI8 ? DType::kI32 : DType::kF32;
  graph::GraphBuilder b("conv");
  const auto apply = [&](graph::TensorId first, graph::TensorId second, const Dims& dims,
                         const Dims& strides) {
    b.Output(b.Apply(f.op, {first, second}, attrs, {.dtype = sum, .compute = sum, .dims = dims}),
             "result", f.type, strides);
  };
  if (f.op == graph::GraphOp::kConvFprop)
    apply(b.Input("x", f.type, x, xs), b.Input("w", f.type, w, ws), y, ys);
  if (f.op == graph::GraphOp::kConvDgrad)
    apply(b.Input("dy", f.type, y, ys), b.Input("w", f.type, w, ws), x, xs);
  if (f.op == graph::GraphOp::kConvWgrad)
    apply(b.Input("x", f.type, x, xs), b.Input("dy", f.type, y, ys), w, ws);
  return *b.Finish();
}

// PyTorch without allow_tf32 takes no f32 plan with the note of tensor cores or of rounded inputs,
// and its quantized convolutions none either: the instant list or the fallback has to have another.
TEST(TensorCoresTest, EveryListHasAPlanWithoutThem) {
  ::unsetenv("NVIDIA_TF32_OVERRIDE");
  ResetEnvForTest();
  const auto session = *OpenSessionFor(*TargetFromArch("sm_90a"));
  const auto notes_are_free = [&](const graph::Graph& graph, const EngineConfig& config) {
    const auto facts = *session->Describe(graph, config.engine);
    return std::ranges::none_of(facts.numerical_notes, [](int note) {
      return note == compiler::kNoteTensorCore || note == compiler::kNoteDownConvertInputs;
    });
  };
  using graph::GraphOp;
  std::vector<graph::Graph> graphs = {Matmul(DType::kF32)};
  for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad})
    for (const bool channels_last : {false, true})
      for (const auto& [groups, channels] : {std::pair{1, 64}, {1, 3}, {64, 64}, {4, 64}})
        graphs.push_back(Conv({op, DType::kF32, channels_last, groups, channels}));
  graphs.push_back(Conv({GraphOp::kConvFprop, DType::kI8, true, 1, 64}));
  for (const graph::Graph& graph : graphs) {
    SCOPED_TRACE(graph::CanonicalText(graph));
    for (const RankMode mode :
         {RankMode::kA, RankMode::kInstant, RankMode::kB, RankMode::kFallback}) {
      const std::vector<EngineConfig> configs = *session->Rank(graph, {.mode = mode});
      const auto found = std::ranges::find_if(
          configs, [&](const EngineConfig& config) { return notes_are_free(graph, config); });
      ASSERT_NE(found, configs.end()) << "mode " << static_cast<int>(mode);
      EXPECT_TRUE(session->Measure(graph, *found).ok());
    }
  }
}

}  // namespace
}  // namespace kiln::api
