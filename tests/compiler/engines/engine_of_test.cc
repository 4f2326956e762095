// Rows made by EngineOf: the facts, one plan for all that is asked, and the list of a plan that has
// none.
#include "compiler/engines/engine_of.h"

#include <gtest/gtest.h>

namespace kiln::compiler {
namespace {

constexpr int kDomain[] = {1, 2, 3};
constexpr KnobRow kKnobs[] = {{.name = "x", .cudnn_type = 0, .domain = kDomain}};
constexpr int kNotes[] = {kNoteTensorCore};

int planned = 0;  // groups

// Seconds are the tenth of the knob's value; the kernels are as many scratch buffers.
struct Listed {
  const Group& group;
  const Target& target;
  std::vector<std::vector<int>> choices;

  std::vector<std::vector<int>> Choices() const { return choices; }
  Estimate EstimateOf(std::span<const int> knobs) const {
    return {.seconds = knobs[0] / 10.0, .shared_bytes = 100 * knobs[0]};
  }
  Result<Lowered> Lower(std::span<const int> knobs) const {
    if (knobs[0] == 3) return Status::Error(Code::kUnsupportedShape, "x={} is odd", knobs[0]);
    Lowered lowered;
    lowered.scratch_bytes.resize(static_cast<size_t>(knobs[0]));
    return lowered;
  }
};

Result<Listed> PlanOf(const Group& group, const Target& target) {
  if (group.kind != GroupKind::kPointwise)
    return Status::Text(Code::kUnsupportedGraphPattern, "it is something else");
  ++planned;
  return Listed{group, target, {{2}, {3}, {2}}};
}

Result<Listed> PlanWithoutChoices(const Group& group, const Target& target) {
  return Listed{group, target, {}};
}

// A plan that prefers one configuration, and lists no choices.
struct Preferring : Listed {
  std::vector<Proposal> Proposals() const {
    return {{.knobs = {3}, .seconds = 7, .shared_bytes = 8, .preference = 1}};
  }
};
Result<Preferring> PlanPreferring(const Group& group, const Target& target) {
  return Preferring{{group, target, {}}};
}

constexpr Engine kListed =
    EngineOf<PlanOf>({.name = "listed", .version = 3, .knobs = kKnobs, .numerical = kNotes});
constexpr Engine kEmpty =
    EngineOf<PlanWithoutChoices>({.name = "empty", .version = 1, .knobs = kKnobs});
constexpr Engine kPreferring =
    EngineOf<PlanPreferring>({.name = "preferring", .version = 1, .knobs = kKnobs});

TEST(EngineOfTest, ARowHasTheFacts) {
  EXPECT_STREQ(kListed.name, "listed");
  EXPECT_EQ(kListed.version, 3);
  EXPECT_EQ(kListed.knobs.data(), kKnobs);
  EXPECT_TRUE(kListed.notes.HasNumerical(kNoteTensorCore));
  EXPECT_EQ(kListed.notes.behavioral.size(), 1u);
  EXPECT_TRUE(kEmpty.notes.numerical.empty());
  EXPECT_EQ(kListed.any_order, nullptr);
}

TEST(EngineOfTest, AGroupIsPlannedOnceForAllThatIsAsked) {
  const Group group;
  const Target target;
  planned = 0;
  const PlanResult plan = kListed.plan(group, target);
  ASSERT_TRUE(plan.ok());
  const std::vector<Proposal> proposals = Propose(kListed, **plan);
  ASSERT_EQ(proposals.size(), 3u);
  EXPECT_EQ(proposals[1].knobs, std::vector<int>{3});
  EXPECT_EQ(proposals[1].seconds, 0.3);
  EXPECT_EQ(proposals[1].shared_bytes, 300);
  EXPECT_EQ(proposals[1].preference, Proposal::kNotPreferred);
  EXPECT_EQ((*plan)->EstimateOf(std::vector{1}).shared_bytes, 100);
  EXPECT_EQ((*plan)->Lower(std::vector{2})->scratch_bytes.size(), 2u);
  EXPECT_EQ((*plan)->Lower(std::vector{3}).status().message(), "x=3 is odd");
  EXPECT_EQ(planned, 1);
}

TEST(EngineOfTest, APlanWithoutChoicesHasTheDefaults) {
  const Group group;
  const Target target;
  EXPECT_EQ(CandidateKnobs(kEmpty, group, target), std::vector<std::vector<int>>{{1}});
  EXPECT_EQ(NeighbouringKnobs(kKnobs), (std::vector<std::vector<int>>{{1}, {2}, {3}}));
}

TEST(EngineOfTest, ProposalsOfAPlanStandForItsChoices) {
  const Group group;
  const Target target;
  const PlanResult plan = kPreferring.plan(group, target);
  ASSERT_TRUE(plan.ok());
  const std::vector<Proposal> proposals = Propose(kPreferring, **plan);
  ASSERT_EQ(proposals.size(), 1u);
  EXPECT_EQ(proposals[0].seconds, 7);
  EXPECT_EQ(proposals[0].preference, 1);
}

TEST(EngineOfTest, ADeclineIsTheSentenceOfThePlan) {
  Group group;
  group.kind = GroupKind::kWindow;
  const Target target;
  const Status status = Supports(kListed, group, target);
  EXPECT_EQ(status.code(), Code::kUnsupportedGraphPattern);
  EXPECT_EQ(status.message(), "it is something else");
  EXPECT_TRUE(CandidateKnobs(kListed, group, target).empty());
}

}  // namespace
}  // namespace kiln::compiler
