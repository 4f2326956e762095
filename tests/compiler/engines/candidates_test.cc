// The ranked list: complete, ordered, without duplicates, and headed by what pick-engine takes.
#include "compiler/engines/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "tests/compiler/sample_graphs.h"

namespace kiln::compiler {
namespace {

TEST(Candidates, AreOrderedLegalAndHeadedByThePick) {
  int lists = 0;
  for (const char* arch : {"sm_90a", "sm_80", "cpu"}) {
    const Target target = *TargetFromArch(arch);
    for (const SampleGraph& sample : AllSamples()) {
      const auto group = LeadingGroupOf(sample.graph, target);
      ASSERT_TRUE(group.ok()) << sample.graph.name << ": " << group.status().message();
      if (!*group) continue;
      const std::vector<Candidate> ranked = RankCandidates(**group, target);
      ASSERT_FALSE(ranked.empty()) << sample.graph.name;
      ++lists;
      EXPECT_EQ(ranked[0].engine, (*group)->engine) << sample.graph.name;
      EXPECT_EQ(ranked[0].knobs, (*group)->knobs) << sample.graph.name;
      // The choice first, which is the least or near it, then the others in their order.
      EXPECT_TRUE(std::ranges::is_sorted(std::span(ranked).subspan(1), {}, &Candidate::seconds));
      EXPECT_LE(ranked[0].seconds, LeastSeconds(ranked) * kWorthAKernel);
      for (const Candidate& c : ranked) {
        const Engine& engine = Engines()[static_cast<size_t>(c.engine)];
        EXPECT_TRUE(engine.supports(**group, target).ok()) << engine.name;
        EXPECT_EQ(std::ranges::count(ranked, c), 1) << KnobText(engine, c.knobs);
        ASSERT_EQ(c.knobs.size(), engine.knobs.size());
        for (size_t k = 0; k < c.knobs.size(); ++k)
          EXPECT_EQ(std::ranges::count(engine.knobs[k].domain, c.knobs[k]), 1)
              << engine.name << " " << KnobText(engine, c.knobs);
      }
    }
  }
  EXPECT_GT(lists, 10);
}

// Proposals say of all candidates at once what is said of each alone.
TEST(Candidates, ProposalsAgreeWithTheirParts) {
  const Target target = *TargetFromArch("sm_90a");
  std::set<std::string> asked;
  int preferred = 0;
  for (const SampleGraph& sample : AllSamples()) {
    const auto group = LeadingGroupOf(sample.graph, target);
    if (!group.ok() || !*group) continue;
    for (const Engine& engine : Engines()) {
      if (engine.propose == nullptr || !engine.supports(**group, target).ok()) continue;
      asked.insert(engine.name);
      const std::vector<Proposal> proposals = Propose(engine, **group, target);
      const std::vector<std::vector<int>> knobs = CandidateKnobs(engine, **group, target);
      ASSERT_EQ(proposals.size(), knobs.size()) << sample.graph.name << " " << engine.name;
      for (size_t i = 0; i < knobs.size(); ++i) {
        EXPECT_EQ(proposals[i].knobs, knobs[i]);
        EXPECT_EQ(proposals[i].seconds, engine.cost(**group, target, knobs[i]));
        EXPECT_EQ(proposals[i].shared_bytes, engine.shared_bytes == nullptr
                                                 ? 0
                                                 : engine.shared_bytes(**group, target, knobs[i]));
        if (proposals[i].preference != Proposal::kNotPreferred) ++preferred;
      }
    }
  }
  EXPECT_TRUE(asked.contains("wgmma_sm90") && asked.contains("conv_halo_sm90"));
  EXPECT_GT(preferred, 0);
}

std::vector<std::vector<int>> Repeating(const Group&, const Target&) { return {{1}, {2}, {1}}; }
std::vector<std::vector<int>> Nothing(const Group&, const Target&) { return {}; }

TEST(Candidates, ComeFromTheEnginesOwnListWhereItHasOne) {
  constexpr static int kDomain[] = {1, 2};
  constexpr static KnobRow kRows[] = {{.name = "x", .cudnn_type = 0, .domain = kDomain}};
  Engine engine = Engines()[0];
  engine.knobs = kRows;
  const Group group;
  const Target target;
  EXPECT_EQ(CandidateKnobs(engine, group, target), NeighbouringKnobs(engine));
  engine.candidates = Repeating;
  EXPECT_EQ(CandidateKnobs(engine, group, target), Repeating(group, target));
  engine.candidates = Nothing;  // a list is never empty
  EXPECT_EQ(CandidateKnobs(engine, group, target), std::vector<std::vector<int>>{{1}});
}

}  // namespace
}  // namespace kiln::compiler
