// Heuristics offer plans that round f32 operands to TF32, as NVIDIA's library does, with the note
// that says so; never in the fallback list, and not where NVIDIA_TF32_OVERRIDE is 0. And plans of
// Winograd's products, with their note.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "api/session.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/knob_types.h"
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

// Whether each config of the list rounds its inputs.
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

}  // namespace
}  // namespace kiln::api
