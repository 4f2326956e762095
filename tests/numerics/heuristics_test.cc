// Lists of heuristics are never empty, and engines have indices without gaps: through the C API,
// of every case of tests/cases, of the recorded graphs and of random ones, on the CPU device and on
// GPUs of three generations that stand in for real ones (STANDIN_CHIP).
//
// Of each graph: every mode names a configuration whose first is a plan; index 0 is a plan; every
// index below CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT finalizes, the count itself does not,
// and the heuristics name no other engines.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/graph_case.h"
#include "tests/support/random_graph.h"
#include "tests/support/recorded.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

constexpr int kShards = 8;
constexpr uint64_t kRandomGraphs = 200;

constexpr cudnnBackendHeurMode_t kModes[] = {CUDNN_HEUR_MODE_INSTANT, CUDNN_HEUR_MODE_B,
                                             CUDNN_HEUR_MODE_FALLBACK, CUDNN_HEUR_MODE_A};

class Heuristics : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string error;
    cudnn_ = Cudnn::Open(TestOptions::Get().cudnn, nullptr, &error);
    ASSERT_NE(cudnn_, nullptr) << error;
  }

  std::unique_ptr<Plan> ExpectPlan(const Graph& graph, size_t config) {
    ClientError error;
    std::unique_ptr<Plan> plan = graph.MakePlan(config, &error);
    EXPECT_NE(plan, nullptr) << error.text;
    return plan;
  }

  // The JSON that a plan is written as makes the plan again.
  void ExpectRestored(const Plan* plan) {
    if (plan == nullptr) return;
    constexpr auto kJson = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    const auto get = [&](const Descriptor& of, auto name, auto type, int64_t room, void* place) {
      int64_t count = 0;
      EXPECT_EQ(cudnn_->getAttribute(of.get(), name, type, room, &count, place),
                CUDNN_STATUS_SUCCESS);
      return count;
    };
    std::string json(
        static_cast<size_t>(get(plan->descriptor(), kJson, CUDNN_TYPE_CHAR, 0, nullptr)), '\0');
    get(plan->descriptor(), kJson, CUDNN_TYPE_CHAR, std::ssize(json), json.data());
    Descriptor again(*cudnn_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const cudnnHandle_t handle = cudnn_->handle();
    again.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
        .Set(kJson, CUDNN_TYPE_CHAR, std::ssize(json), json.data());
    ASSERT_TRUE(again.Finalize().ok()) << again.error().text;
    int64_t bytes = -1;
    get(again, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    EXPECT_EQ(bytes, plan->workspace_bytes);
  }

  // The list of the mode begins behind `before`.
  void ExpectMode(Graph& graph, cudnnBackendHeurMode_t mode, int64_t count) {
    SCOPED_TRACE(fmt::format("mode {}", static_cast<int>(mode)));
    const size_t before = graph.configs();
    const ClientError error = graph.AddMode(mode);
    ASSERT_TRUE(error.ok()) << error.text;
    ASSERT_GT(graph.configs(), before);
    const std::unique_ptr<Plan> plan = ExpectPlan(graph, before);
    if (mode == CUDNN_HEUR_MODE_A) ExpectRestored(plan.get());
    for (size_t i = before; i < graph.configs(); ++i) {
      const int64_t engine = graph.FactsOf(i).engine;
      EXPECT_TRUE(engine >= 0 && engine < count) << engine << " of " << count;
    }
  }

  void ExpectEngines(Graph& graph, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const ClientError error = graph.AddEngine(i);
      EXPECT_TRUE(error.ok()) << "engine " << i << " of " << count << ": " << error.text;
      if (!error.ok()) continue;
      EXPECT_EQ(graph.FactsOf(graph.configs() - 1).engine, i);
      if (i == 0) ExpectRestored(ExpectPlan(graph, graph.configs() - 1).get());
    }
    EXPECT_TRUE(graph.AddEngine(count).is_not_supported());
  }

  // Checks one graph, which the library has to take: its modes and its engines.
  void Check(const Case& c) {
    SCOPED_TRACE(c.Label() + " " + c.text);
    ClientError error;
    const std::unique_ptr<Graph> graph = Graph::Build(*cudnn_, SpelledOut(c), &error);
    ASSERT_NE(graph, nullptr) << error.text;
    int64_t count = 0;
    ASSERT_EQ(cudnn_->getAttribute(graph->descriptor().get(),
                                   CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64,
                                   1, nullptr, &count),
              CUDNN_STATUS_SUCCESS);
    EXPECT_GE(count, 1);
    for (const cudnnBackendHeurMode_t mode : kModes) ExpectMode(*graph, mode, count);
    ExpectEngines(*graph, count);
    ++checked_;
  }

  std::unique_ptr<Cudnn> cudnn_;
  int checked_ = 0;
};

TEST_P(Heuristics, OfCasesAreNeverEmpty) {
  const CaseFile all = LoadAllCases(TestOptions::Get());
  ASSERT_TRUE(all.errors.empty()) << all.errors[0];
  int refused = 0;
  for (size_t i = static_cast<size_t>(GetParam()); i < all.cases.size(); i += kShards) {
    if (all.cases[i].expects_bad_param)
      ++refused;
    else
      Check(all.cases[i]);
  }
  EXPECT_EQ(checked_ + refused, std::ssize(all.cases) / kShards +
                                    (GetParam() < std::ssize(all.cases) % kShards ? 1 : 0));
}

TEST_P(Heuristics, OfRecordedGraphsAreNeverEmpty) {
  const std::vector<Recorded> graphs = RecordedGraphs();
  ASSERT_EQ(graphs.size(), 120u);
  for (size_t i = static_cast<size_t>(GetParam()); i < graphs.size(); i += kShards) {
    SCOPED_TRACE(fmt::format("line {}", graphs[i].line));
    // Cases have no ragged tensors: tests/api/session/rank_test.cc has all.
    if (NeedsSeveralGpus(graphs[i].graph)) continue;
    if (const Result<Case> c = ToCase(graphs[i].graph); c.ok()) Check(*c);
  }
  EXPECT_GE(checked_, 120 / kShards - 3);
}

TEST_P(Heuristics, OfRandomGraphsAreNeverEmpty) {
  int written = 0;
  for (uint64_t seed = 1 + static_cast<uint64_t>(GetParam()); seed <= kRandomGraphs;
       seed += kShards) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    // Graphs that the cases have no word for are not what this is about.
    const Result<Case> c = ToCase(graph::RandomGraph(seed, graph::ApiOptions(seed)));
    if (!c.ok()) continue;
    ++written;
    Check(*c);
  }
  EXPECT_GT(written, static_cast<int>(kRandomGraphs) / kShards / 2);
}

INSTANTIATE_TEST_SUITE_P(All, Heuristics, ::testing::Range(0, kShards));

}  // namespace
}  // namespace kiln::testing
