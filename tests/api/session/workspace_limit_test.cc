// KILN_WORKSPACE_LIMIT, for programs that set no limit of their own: the heuristics' lists hold
// what keeps to it, the fastest first, and a graph that cannot is refused with the numbers.
#include <gtest/gtest.h>

#include <cstdlib>

#include "api/session/session.h"
#include "ir/base/env.h"
#include "ir/graph/builder.h"

namespace kiln::api {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::TensorId;

TensorId Matmul(GraphBuilder& b, TensorId left, TensorId right) {
  return b.Apply(graph::GraphOp::kMatmul, {left, right}, graph::MatmulAttrs{});
}

// A long sum, whose fastest plans divide it.
Graph LongSum() {
  GraphBuilder b("long_sum");
  const TensorId a = b.Input("a", DType::kF16, {1, 64, 65536}),
                 w = b.Input("w", DType::kF16, {1, 65536, 64});
  b.Output(Matmul(b, a, w), "y", DType::kF16);
  return *b.Finish();
}

// Two products: the tensor between them has to be stored.
Graph Chain() {
  GraphBuilder b("chain");
  const TensorId a = b.Input("a", DType::kF16, {1, 128, 64}),
                 w = b.Input("w", DType::kF16, {1, 64, 256}),
                 v = b.Input("v", DType::kF16, {1, 256, 64});
  b.Output(Matmul(b, Matmul(b, a, w), v), "y", DType::kF16);
  return *b.Finish();
}

std::shared_ptr<Session> WithLimit(int64_t bytes) {
  setenv("KILN_WORKSPACE_LIMIT", std::to_string(bytes).c_str(), 1);
  ResetEnvForTest();
  return NewSessionFor(*TargetFromArch("sm_90a"));
}

int64_t Needs(const Session& session, const Graph& g, const EngineConfig& config) {
  const Result<Footprint> needs = session.Measure(g, config);
  EXPECT_TRUE(needs.ok()) << needs.status().message();
  return needs.ok() ? needs->workspace_bytes : -1;
}

TEST(WorkspaceLimit, ListsHoldWhatKeepsToIt) {
  const Graph g = LongSum();
  const auto free = WithLimit(-1);
  const auto ranked = free->Rank(g, {.mode = RankMode::kA});
  ASSERT_TRUE(ranked.ok());
  const int64_t most = Needs(*free, g, ranked->front());
  ASSERT_GT(most, 1000);
  for (const int64_t limit : {most, most - 1, most / 4, int64_t{0}}) {
    const auto session = WithLimit(limit);
    for (const RankMode mode :
         {RankMode::kInstant, RankMode::kA, RankMode::kB, RankMode::kFallback}) {
      const auto listed = session->Rank(g, {.mode = mode});
      ASSERT_TRUE(listed.ok()) << listed.status().message();
      ASSERT_FALSE(listed->empty());
      for (const EngineConfig& config : *listed) EXPECT_LE(Needs(*session, g, config), limit);
    }
    if (limit == most) {
      EXPECT_EQ(session->Rank(g, {.mode = RankMode::kA})->front(), ranked->front());
    }
  }
}

TEST(WorkspaceLimit, AGraphThatNeedsMoreIsRefused) {
  const Graph g = Chain();
  const auto session = WithLimit(1000);
  const auto listed = session->Rank(g, {.mode = RankMode::kA});
  ASSERT_FALSE(listed.ok());
  EXPECT_NE(listed.status().message().find("bytes of workspace at least"), std::string::npos)
      << listed.status().message();
  EXPECT_TRUE(WithLimit(1 << 20)->Rank(g, {.mode = RankMode::kA}).ok());
}

}  // namespace
}  // namespace kiln::api
