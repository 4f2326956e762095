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
        EXPECT_TRUE(Supports(engine, **group, target).ok()) << engine.name;
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

// Proposals say of all configurations at once what an estimate says of each alone.
TEST(Candidates, ProposalsAgreeWithTheirParts) {
  const Target target = *TargetFromArch("sm_90a");
  std::set<std::string> asked;
  int preferred = 0;
  for (const SampleGraph& sample : AllSamples()) {
    const auto group = LeadingGroupOf(sample.graph, target);
    if (!group.ok() || !*group) continue;
    for (const Engine& engine : Engines()) {
      const auto plan = engine.plan(**group, target);
      if (!plan.ok()) continue;
      asked.insert(engine.name);
      const std::vector<Proposal> proposals = Propose(engine, **plan);
      ASSERT_FALSE(proposals.empty()) << sample.graph.name << " " << engine.name;
      for (const Proposal& p : proposals) {
        const Estimate alone = (*plan)->EstimateOf(p.knobs);
        EXPECT_GE(p.seconds, 0) << sample.graph.name << " "
                                << engine.name;  // no NaN, even of nothing
        EXPECT_EQ(p.seconds, alone.seconds) << engine.name << " " << KnobText(engine, p.knobs);
        EXPECT_EQ(p.shared_bytes, alone.shared_bytes)
            << engine.name << " " << KnobText(engine, p.knobs);
        if (p.preference != Proposal::kNotPreferred) ++preferred;
      }
    }
  }
  for (const char* name : {"wgmma_sm90", "conv_halo_sm90", "conv_first_layer", "rows"})
    EXPECT_TRUE(asked.contains(name)) << name;
  EXPECT_GT(preferred, 0);
}

}  // namespace
}  // namespace kiln::compiler
