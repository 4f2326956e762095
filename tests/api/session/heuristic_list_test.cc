// HeuristicList: the candidates of a ranking that heuristics show.
#include "api/session/heuristic_list.h"

#include <gtest/gtest.h>

#include "compiler/engines/registry.h"

namespace kiln::api {
namespace {

using compiler::Candidate;

Candidate Of(const char* engine, double seconds, int knob = 0) {
  const int index = compiler::EngineIndex(engine);
  EXPECT_GE(index, 0) << engine;
  return {.engine = index, .knobs = {knob}, .seconds = seconds};
}

// The places of what is wanted, each taken.
std::vector<size_t> Shown(RankMode mode, const std::vector<Candidate>& candidates,
                          bool may_want_no_tensor_cores = false) {
  HeuristicList list(mode, may_want_no_tensor_cores);
  std::vector<size_t> shown;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!list.Wants(candidates[i])) continue;
    list.Add(candidates[i]);
    shown.push_back(i);
  }
  return shown;
}

using Places = std::vector<size_t>;

TEST(HeuristicListTest, OneThatPromisesAllStandsAlone) {
  EXPECT_EQ(Shown(RankMode::kInstant, {Of("wgmma_sm90", 1), Of("wgmma_sm90", 2),
                                       Of("contract_mma", 3), Of("contract_simt", 4)}),
            Places{0});
}

TEST(HeuristicListTest, WhatIsRoundedIsFollowedByWhatIsExact) {
  EXPECT_EQ(Shown(RankMode::kInstant, {Of("wgmma_sm90_tf32", 1), Of("wgmma_sm90_tf32", 2, 1),
                                       Of("wgmma_sm90_3xtf32", 3), Of("contract_simt", 4)}),
            (Places{0, 2}));
}

TEST(HeuristicListTest, WhatAddsInAnyOrderIsFollowedByWhatAddsInOne) {
  EXPECT_EQ(Shown(RankMode::kInstant,
                  {Of("attention_grad_sm90_atomic", 1), Of("attention_grad_sm90_atomic", 2, 1),
                   Of("attention_grad_sm90", 3), Of("attention_grad_sm80", 4)}),
            (Places{0, 2}));
}

// PyTorch takes no f32 convolution on tensor cores where TF32 is not allowed: the note decides.
TEST(HeuristicListTest, WhatUsesTensorCoresIsFollowedByWhatDoesNot) {
  const std::vector<Candidate> candidates = {Of("wgmma_sm90_tf32", 1), Of("winograd_sm90", 2),
                                             Of("wgmma_sm90_3xtf32", 3), Of("winograd", 4),
                                             Of("contract_simt", 100)};
  EXPECT_EQ(Shown(RankMode::kInstant, candidates, true), (Places{0, 1, 2, 3, 4}));
  EXPECT_EQ(Shown(RankMode::kInstant, candidates), (Places{0, 1, 2}));
  EXPECT_EQ(
      Shown(RankMode::kFallback, {Of("wgmma_sm90_3xtf32", 3), Of("contract_simt", 100)}, true),
      (Places{0, 1}));
  std::vector<Candidate> many;
  for (int i = 0; i < 20; ++i) many.push_back(Of("wgmma_sm90_3xtf32", 1, i));
  many.push_back(Of("contract_simt", 100));
  EXPECT_EQ(Shown(RankMode::kA, many, true).back(), 20u);
  EXPECT_EQ(Shown(RankMode::kA, many).back(), 15u);
}

TEST(HeuristicListTest, WhatWasNotTakenDoesNotCount) {
  HeuristicList list(RankMode::kInstant, false);
  EXPECT_TRUE(list.Wants(Of("wgmma_sm90", 1)));
  EXPECT_TRUE(list.Wants(Of("contract_mma", 2)))
      << "the first needed more workspace than the limit";
}

// Clients that time build the instant list and the fallback: what is in both is compiled once.
TEST(HeuristicListTest, TheFallbackIsTheInstantListOfItsCandidates) {
  for (const RankMode mode : {RankMode::kInstant, RankMode::kFallback}) {
    EXPECT_EQ(Shown(mode, {Of("wgmma_sm90", 1), Of("wgmma_sm90", 2, 1), Of("contract_mma", 1000)}),
              (Places{0}));
    EXPECT_EQ(Shown(mode, {Of("attention_grad_sm90_atomic", 1), Of("attention_grad_sm90", 3),
                           Of("attention_grad_sm80", 4)}),
              (Places{0, 1}));
  }
}

TEST(HeuristicListTest, WideListsEndWithEnginesThatAreNotSlow) {
  std::vector<Candidate> candidates;
  for (int i = 0; i < 20; ++i) candidates.push_back(Of("wgmma_sm90", 1 + i * 0.01, i));
  candidates.push_back(Of("contract_mma", 3));
  candidates.push_back(Of("contract_mma", 3.5, 1));
  candidates.push_back(Of("contract_simt", 4.5));
  for (const RankMode mode : {RankMode::kA, RankMode::kB}) {
    const Places shown = Shown(mode, candidates);
    ASSERT_EQ(shown.size(), 17u);
    EXPECT_EQ(shown[15], 15u);
    EXPECT_EQ(shown[16], 20u);
  }
}

}  // namespace
}  // namespace kiln::api
