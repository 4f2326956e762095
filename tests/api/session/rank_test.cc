// Rankings of the session are never empty, for devices that are not here: the recorded graphs on
// GPUs of three generations and on the CPU. tests/numerics/heuristics_test.cc has cases and random
// graphs, through the C API.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "api/session/session.h"
#include "api/spec/cudnn_types.h"
#include "tests/support/case_graph.h"
#include "tests/support/cases.h"
#include "tests/support/recorded.h"

namespace kiln::api {
namespace {

constexpr RankMode kModes[] = {RankMode::kInstant, RankMode::kB, RankMode::kFallback, RankMode::kA};

class Rankings : public ::testing::TestWithParam<const char*> {
 protected:
  // True for what several GPUs compute together on the CPU, which says so and has nothing to rank.
  bool IsDeclined(const graph::Graph& graph) const {
    if (GetParam() != std::string_view("cpu") || !testing::NeedsSeveralGpus(graph)) return false;
    EXPECT_EQ(session_->Measure(graph, {}).status().code(), Code::kArchMismatch);
    for (const RankMode mode : kModes) {
      const auto ranked = session_->Rank(graph, {.mode = mode});
      EXPECT_TRUE(!ranked.ok() || ranked->empty());
    }
    return true;
  }

  const std::shared_ptr<Session> session_ = NewSessionFor(*TargetFromArch(GetParam()));
};

TEST_P(Rankings, OfRecordedGraphsAreNeverEmpty) {
  for (const auto& [line, graph] : testing::RecordedGraphs()) {
    SCOPED_TRACE(fmt::format("line {}", line));
    if (IsDeclined(graph)) continue;
    const std::vector<int64_t> engines = session_->EnginesOf(graph);
    ASSERT_FALSE(engines.empty());
    EXPECT_EQ(engines.front(), kCompilersChoice);
    for (const int64_t engine : engines)
      EXPECT_TRUE(session_->Describe(graph, engine).ok()) << "engine " << engine;
    for (const RankMode mode : kModes) {
      const auto ranked = session_->Rank(graph, {.mode = mode});
      ASSERT_TRUE(ranked.ok()) << ranked.status().message();
      ASSERT_FALSE(ranked->empty());
      const Result<Footprint> first = session_->Measure(graph, ranked->front());
      EXPECT_TRUE(first.ok()) << first.status().message();
      for (const EngineConfig& config : *ranked)
        EXPECT_EQ(std::ranges::count(engines, config.engine), 1) << "engine " << config.engine;
    }
    EXPECT_TRUE(session_->Measure(graph, {}).ok());
  }
}

// The plan in which nobody names an engine: its knob is the workspace's, and its notes are those of
// all that may work in it.
TEST_P(Rankings, TheCompilersChoiceDescribesItself) {
  for (const auto& [line, graph] : testing::RecordedGraphs()) {
    SCOPED_TRACE(fmt::format("line {}", line));
    if (IsDeclined(graph)) continue;
    const Result<EngineFacts> facts = session_->Describe(graph, kCompilersChoice);
    ASSERT_TRUE(facts.ok()) << facts.status().message();
    ASSERT_EQ(facts->knobs.size(), 1u);
    EXPECT_EQ(facts->knobs[0].type, CUDNN_KNOB_TYPE_WORKSPACE);
    const auto least =
        session_->Measure(graph, {.knobs = {{.type = CUDNN_KNOB_TYPE_WORKSPACE, .value = 1}}});
    const auto fastest = session_->Measure(graph, {});
    ASSERT_TRUE(least.ok() && fastest.ok()) << least.status().message();
    EXPECT_LE(least->workspace_bytes, fastest->workspace_bytes);
    const auto other =
        session_->Measure(graph, {.knobs = {{.type = CUDNN_KNOB_TYPE_SPLIT_K, .value = 0}}});
    EXPECT_EQ(other.status().code(), Code::kBadParam);
    std::set<int32_t> notes(facts->numerical_notes.begin(), facts->numerical_notes.end());
    EXPECT_EQ(notes.size(), facts->numerical_notes.size()) << "no note stands twice";
  }
}

// Gradients whose rows of 192 only `mma.sync` takes: a plan of products that round f32 would be
// ranked before it, with all scores in memory.
TEST(Attention, IsNotTakenApartToRoundAProduct) {
  constexpr std::string_view kGradients =
      "wide: matmul(q:bf16[2,16,2048,192], k:bf16[2,16,192,2048]@p0132) -> %s:f32; "
      "mul(%s, c:f32[1,1,1,1]=0.07) -> %t:f32; sub(%t, l:f32[2,16,2048,1]) -> %x:f32; "
      "exp(%x) -> %p:f32; reshape(%p) -> %pt:bf16[2,16,2048,2048]@p0132; "
      "matmul(%pt, g:bf16[2,16,2048,128]) -> dv:bf16; "
      "matmul(g, v:bf16[2,16,128,2048]@p0132) -> %z:f32; "
      "sub(%z, delta:f32[2,16,2048,1]) -> %y:f32; mul(%y, %p) -> %b:f32; mul(%b, c) -> %ds:f32; "
      "reshape(%ds) -> %dt:bf16[2,16,2048,2048]@p0132; matmul(%dt, q) -> dk:bf16; "
      "reshape(k) -> %kk:f32[2,16,2048,192]; matmul(%ds, %kk) -> sums:f32; "
      "identity(sums) -> dq:bf16";
  std::string error;
  const auto wide = testing::ParseCase(kGradients, &error);
  ASSERT_TRUE(wide) << error;
  const Result<graph::Graph> graph = testing::ToGraph(*wide);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const auto session = NewSessionFor(*TargetFromArch("sm_90a"));
  for (const RankMode mode : {RankMode::kInstant, RankMode::kA, RankMode::kB}) {
    const auto ranked = session->Rank(*graph, {.mode = mode});
    ASSERT_TRUE(ranked.ok()) << ranked.status().message();
    ASSERT_FALSE(ranked->empty());
    const Result<Footprint> first = session->Measure(*graph, ranked->front());
    ASSERT_TRUE(first.ok()) << first.status().message();
    const int64_t scores = int64_t{2} * 16 * 2048 * 2048 * 2;  // bytes
    EXPECT_LT(first->workspace_bytes, scores) << "engine " << ranked->front().engine;
  }
}

// Layers of a recurrent network are one group for an engine that runs them at once, and one each
// for others: who wants no tensor cores, say, is to find the latter.
TEST(RecurrentLayers, AreOfferedToEnginesOfOneLayerToo) {
  constexpr std::string_view kForward = R"(graph forward {
  tensor %x uid=1 f16 [12,4,64]
  tensor %w uid=2 f16 [66560]
  tensor %y uid=3 f16 [12,4,64]
  %y, _, _ = rnn_forward(%x, %w) compute=f32 cell=lstm hidden=64 projected=64 layers=2
})";
  constexpr std::string_view kBackward = R"(graph backward {
  tensor %y uid=1 f16 [12,4,64]
  tensor %dy uid=2 f16 [12,4,64]
  tensor %w uid=3 f16 [66560]
  tensor %reserve uid=4 f16 [33792]
  tensor %dx uid=5 f16 [12,4,64]
  tensor %gradients uid=6 f16 [24576]
  %dx, %gradients = rnn_backward_data(%y, %dy, %w, %reserve) compute=f32 cell=lstm hidden=64 projected=64 layers=2
})";
  const auto session = NewSessionFor(*TargetFromArch("sm_90a"));
  for (const std::string_view text : {kForward, kBackward}) {
    const Result<graph::Graph> graph = graph::Parse(text);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    std::set<std::string> names;
    for (const int64_t engine : session->EnginesOf(*graph)) {
      const Result<EngineFacts> facts = session->Describe(*graph, engine);
      ASSERT_TRUE(facts.ok()) << facts.status().message();
      names.insert(std::string(facts->name));
      const Status measured = session->Measure(*graph, {.engine = engine}).status();
      EXPECT_TRUE(measured.ok()) << facts->name << ": " << measured.message();
    }
    for (const char* const engine : {"recurrence", "recurrence_sm80", "recurrence_stack_sm80"})
      EXPECT_EQ(names.count(engine), 1u) << engine << " of " << graph->name;
  }
}

TEST(Engines, ThatDoNotExistAreRefusedInWords) {
  const auto session = NewSessionFor(*TargetFromArch("sm_90a"));
  const graph::Graph graph = testing::RecordedGraphs().front().graph;
  for (const int64_t engine : {int64_t{-2}, int64_t{1000}}) {
    const Status status = session->Measure(graph, {.engine = engine}).status();
    EXPECT_NE(status.message().find("does not exist; there are rows 0 to"), std::string::npos)
        << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Rankings, ::testing::Values("sm_80", "sm_90a", "sm_100a", "cpu"));

}  // namespace
}  // namespace kiln::api
