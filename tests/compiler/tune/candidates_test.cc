// The ranked list: complete, ordered, without duplicates, and headed by what pick-engine takes.
#include "compiler/tune/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/compile.h"
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
      // Pick-engine keeps the first of equals, and so does the stable order.
      EXPECT_EQ(ranked[0].engine, (*group)->engine) << sample.graph.name;
      EXPECT_EQ(ranked[0].knobs, (*group)->knobs) << sample.graph.name;
      EXPECT_TRUE(std::ranges::is_sorted(ranked, {}, &Candidate::seconds));
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
