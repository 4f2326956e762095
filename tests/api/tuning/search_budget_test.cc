// SearchBudget: its numbers, and how long Find searches under it on a bench whose compiler and
// kernels take the time that the test says, by the test's clock.
#include "api/tuning/search_budget.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "api/tuning/tuner.h"
#include "tests/api/tuning/small_groups.h"

namespace kiln::api {
namespace {

double now = 0;
double Now() { return now; }

double SecondsFor(double problem, double compile) {
  return SearchBudget(problem, compile, Now).seconds();
}

TEST(SearchBudget, IsInProportionToWhatCanBeWon) {
  EXPECT_DOUBLE_EQ(SecondsFor(0, 0), 0);
  EXPECT_DOUBLE_EQ(SecondsFor(2e-6, 0.1), 0.01 + 0.05);
  EXPECT_DOUBLE_EQ(SecondsFor(10e-6, 0.1), 0.05 + 0.05);
  EXPECT_DOUBLE_EQ(SecondsFor(49e-6, 10), 0.12) << "whatever a kernel costs to compile";
  EXPECT_DOUBLE_EQ(SecondsFor(100e-6, 0.2), 0.5 + 0.1);
  EXPECT_DOUBLE_EQ(SecondsFor(1, 0.2), 2);
  double before = 0;
  for (double problem = 1e-7; problem < 1; problem *= 1.5) {
    const double seconds = SecondsFor(problem, 0.2);
    EXPECT_GE(seconds, before) << problem;
    EXPECT_LE(2 * seconds, problem < 50e-6 ? 0.25 : 4) << "Find searches twice at most";
    before = seconds;
  }
}

TEST(SearchBudget, IsSpentByTheClock) {
  now = 100;
  const SearchBudget budget(100e-6, 0.2, Now);
  EXPECT_DOUBLE_EQ(budget.deadline(), 100.6);
  now = 100.5;
  EXPECT_NEAR(budget.left(), 0.1, 1e-12);
  now = 101;
  EXPECT_LT(budget.left(), 0);
}

TEST(SearchBudget, CompilesOnlyWhatThereIsTimeFor) {
  const ReadyKernels nothing, all = {.reference = true, .candidates = 3};
  const ReadyKernels one = {.reference = true, .candidates = 1}, alone = {.candidates = 3};
  now = 0;
  const SearchBudget large(1e-3, 0.2, Now), small(10e-6, 0.2, Now);
  EXPECT_TRUE(large.ScopeOf(nothing, 2).is_worthwhile);
  EXPECT_EQ(large.ScopeOf(nothing, 2).worth_compiling, 2);
  EXPECT_FALSE(small.ScopeOf(nothing, 2).is_worthwhile);
  EXPECT_FALSE(small.ScopeOf(one, 2).is_worthwhile) << "nothing to compare it with";
  EXPECT_FALSE(small.ScopeOf(alone, 2).is_worthwhile) << "nothing to check it by";
  EXPECT_TRUE(small.ScopeOf(all, 2).is_worthwhile);
  EXPECT_EQ(small.ScopeOf(all, 2).worth_compiling, 0);
  now = 1.9;  // another group's search took so long
  EXPECT_FALSE(large.ScopeOf(nothing, 2).is_worthwhile);
  EXPECT_EQ(large.ScopeOf(all, 2).worth_compiling, 0);
  now = 2.1;
  EXPECT_FALSE(large.ScopeOf(all, 2).is_worthwhile);
}

// Compiling and measuring move the clock. A kernel that is compiled stays so.
class ClockBench final : public compiler::Bench {
 public:
  ClockBench(double compile, double measure) : compile_(compile), measure_(measure) {}
  Result<std::shared_ptr<compiler::Trial>> Prepare(const Program& program) override {
    if (compiled.insert(compiler::BinaryKey(program)).second) now += compile_;
    return std::shared_ptr<compiler::Trial>(std::make_shared<ClockTrial>(*this));
  }
  bool IsCompiled(const Program& program) override {
    return compiled.contains(compiler::BinaryKey(program));
  }
  double Now() override { return now; }

  std::set<std::string> compiled;
  int timed = 0;

 private:
  struct ClockTrial final : compiler::Trial {
    explicit ClockTrial(ClockBench& b) : bench(b) {}
    Status Check() override { return {}; }
    Result<compiler::Timing> Time(double) override {
      now += bench.measure_;
      return compiler::Timing{.seconds = 1e-5 / ++bench.timed};  // each is faster: patience lasts
    }
    ClockBench& bench;
  };
  const double compile_, measure_;
};

// As the tuner does it: what the search spends beyond its last measurement is within the budget.
TEST(SearchBudget, BoundsASearch) {
  const Target target = *TargetFromArch("sm_90a");
  const compiler::Group group = GroupOf(SmallMatmul(512), target);
  const auto ranked = compiler::RankCandidates(group, target);
  ASSERT_GT(ranked.size(), 4u);
  constexpr double kCompile = 0.2, kMeasure = 0.004;
  for (const bool is_warm : {false, true}) {
    for (const double problem : {1e-6, 10e-6, 49e-6, 51e-6, 200e-6, 1e-3, 1e-1}) {
      SCOPED_TRACE(testing::Message() << problem << " s, warm " << is_warm);
      ClockBench bench(kCompile, kMeasure);
      if (is_warm) {
        for (const auto& candidate : ranked)
          bench.compiled.insert(
              compiler::BinaryKey(*compiler::CompileGroup(group, target, candidate)));
      }
      now = 0;
      const SearchBudget budget(problem, kCompile, Now);
      const SearchScope scope = budget.ScopeOf(
          {.reference = is_warm, .candidates = is_warm ? 12 : 0}, *kToFind.worth_compiling);
      if (scope.is_worthwhile) {
        compiler::SearchOptions options{.patience = kToFind.patience,
                                        .top = kToFind.top,
                                        .worth_compiling = scope.worth_compiling,
                                        .deadline = budget.deadline(),
                                        .confirm = kToFind.confirm};
        ASSERT_TRUE(compiler::Search(group, target, {}, options, bench, [](const auto&) {}).ok());
      }
      const double most = problem < 50e-6 ? 0.125 : std::min(2.0, 5000 * problem + kCompile / 2);
      // One more kernel and one more time may be under way when the time is over.
      EXPECT_LE(now, most + (is_warm || problem < 50e-6 ? 0 : kCompile) + kMeasure);
      EXPECT_EQ(bench.timed > 1, is_warm || problem >= 50e-6);
    }
  }
}

}  // namespace
}  // namespace kiln::api
