// Engines that add in no fixed order are offered where clients expect that, first if they are
// faster and with the note that says so; clients who want the same bits each time filter by it, or
// spell the graph so that none is offered.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "api/session/session.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/knob_types.h"
#include "ir/graph/import_recorded.h"

namespace kiln::api {
namespace {

// As cudnn-frontend sends it.
graph::Graph Recorded(const std::string& test) {
  std::ifstream file("tests/data/recorded_graphs.jsonl");
  for (std::string line; std::getline(file, line);)
    if (line.find("\"test\":\"" + test + "\"") != std::string::npos)
      return *graph::ImportRecorded(line);
  ADD_FAILURE() << "no graph " << test;
  return {};
}

struct Offer {
  std::string engine;
  bool any_order = false;  // as its note says
};

std::vector<Offer> OffersFor(const graph::Graph& graph, const RankOptions& options) {
  const auto session = *OpenSessionFor(*TargetFromArch("sm_90a"));
  std::vector<Offer> offers;
  const std::vector<EngineConfig> configs = *session->Rank(graph, options);
  for (const EngineConfig& config : configs) {
    const Result<EngineFacts> facts = session->Describe(graph, config.engine);
    EXPECT_TRUE(facts.ok()) << facts.status().message();
    const bool any_order =
        std::ranges::count(facts->numerical_notes, compiler::kNoteNondeterministic) > 0;
    offers.push_back({.engine = facts->name, .any_order = any_order});
  }
  return offers;
}

constexpr RankMode kModes[] = {RankMode::kA, RankMode::kB, RankMode::kInstant, RankMode::kFallback};

TEST(DeterminismTest, GradientsOfAttentionAddInAnyOrder) {
  for (const char* test : {"bwd_plain", "bwd_causal", "bwd_causal_gqa"}) {
    const graph::Graph graph = Recorded(test);
    for (const RankMode mode : kModes) {
      const std::vector<Offer> offers = OffersFor(graph, {.mode = mode});
      ASSERT_FALSE(offers.empty());
      EXPECT_TRUE(offers[0].any_order) << test << ": " << offers[0].engine;
      // A client that filters by the note gets this offer.
      const auto ordered = std::ranges::find(offers, false, &Offer::any_order);
      ASSERT_NE(ordered, offers.end()) << test;
      EXPECT_EQ(ordered->engine, "attention_grad_sm90") << test;
    }
  }
}

TEST(DeterminismTest, GradientsOfAttentionAddInOrderOnRequest) {
  const graph::Graph graph = Recorded("bwd_causal_deterministic");
  for (const RankMode mode : kModes) {
    const std::vector<Offer> offers = OffersFor(graph, {.mode = mode});
    ASSERT_FALSE(offers.empty());
    EXPECT_EQ(offers[0].engine, "attention_grad_sm90");
    EXPECT_EQ(std::ranges::count(offers, true, &Offer::any_order), 0);
  }
}

}  // namespace
}  // namespace kiln::api
