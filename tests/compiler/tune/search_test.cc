// The search against a device that is a table: what it finds, what it skips, and when it stops.
#include "compiler/tune/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "ir/graph/builder.h"

namespace kiln::compiler {
namespace {

// A matmul, for which several engines and knobs offer themselves.
Group MatmulGroup(const Target& target, int64_t extent) {
  graph::GraphBuilder b("matmul");
  const auto x = b.Input("a", DType::kF16, {1, extent, 64}),
             z = b.Input("b", DType::kF16, {1, 64, extent});
  b.Output(b.Apply(graph::GraphOp::kMatmul, {x, z}, graph::MatmulAttrs{}), "y", DType::kF16);
  return **LeadingGroupOf(*b.Finish(), target);
}

// Times and faults by the binary; a clock that only measurements move.
class FakeBench final : public Bench {
 public:
  struct Behaviour {
    double seconds = 1e-3;
    Status check = {};
  };

  Result<std::shared_ptr<Trial>> Prepare(const Program& program) override {
    const std::lock_guard lock(mutex_);
    ++prepared;
    if (broken) return Status::Text(Code::kCompilationFailed, "no compiler today");
    return std::shared_ptr<Trial>(std::make_shared<FakeTrial>(*this, BinaryKey(program)));
  }
  bool IsCompiled(const Program& program) override { return compiled.contains(BinaryKey(program)); }
  double Now() override { return clock; }

  std::map<std::string, Behaviour> behaviour;
  std::vector<std::string> timed, checked;  // binaries, in order
  std::set<std::string> compiled;           // before
  double clock = 0, cost_of_a_time = 1;
  size_t cool_times = 0;  // until the device is hot
  double slower_when_hot = 1;
  int prepared = 0;
  bool broken = false;

 private:
  class FakeTrial final : public Trial {
   public:
    FakeTrial(FakeBench& bench, std::string key) : bench_(bench), key_(std::move(key)) {}
    Status Check() override {
      bench_.checked.push_back(key_);
      return bench_.behaviour[key_].check;
    }
    Result<Timing> Time(double) override {
      bench_.timed.push_back(key_);
      bench_.clock += bench_.cost_of_a_time;
      const double slower = bench_.timed.size() > bench_.cool_times ? bench_.slower_when_hot : 1;
      return Timing{.seconds = slower * bench_.behaviour[key_].seconds, .spread = 0.01};
    }
    FakeBench& bench_;
    std::string key_;
  };

  std::mutex mutex_;
};

class SearchTest : public testing::Test {
 protected:
  SearchTest() {
    for (const Candidate& c : ranked_)
      binaries_.push_back(BinaryKey(*CompileGroup(group_, target_, c)));
  }

  Result<SearchResult> Run(const std::vector<Record>& known = {}) {
    return Search(group_, target_, known, options_, bench_,
                  [&](const SearchStep& step) { stored_.push_back(step.record); });
  }
  std::string KnobsOf(size_t i) const {
    return KnobText(Engines()[static_cast<size_t>(ranked_[i].engine)], ranked_[i].knobs);
  }
  // The first in the list of those that make the same binary.
  size_t FirstOfBinary(size_t i) const {
    return static_cast<size_t>(std::ranges::find(binaries_, binaries_[i]) - binaries_.begin());
  }
  size_t DistinctBinaries() const { return std::set(binaries_.begin(), binaries_.end()).size(); }

  const Target target_ = *TargetFromArch("sm_80");
  const Group group_ = MatmulGroup(target_, 256);
  const std::vector<Candidate> ranked_ = RankCandidates(group_, target_);
  std::vector<std::string> binaries_;
  SearchOptions options_{.patience = 0};
  FakeBench bench_;
  std::vector<Record> stored_;
};

TEST_F(SearchTest, FindsTheFastestAndStoresEach) {
  ASSERT_GT(ranked_.size(), 5u);
  bench_.behaviour[binaries_[4]].seconds = 5e-4;
  for (const int jobs : {1, 4}) {
    options_.jobs = jobs;
    stored_.clear();
    bench_.timed.clear();
    const auto result = Run();
    ASSERT_TRUE(result.ok()) << result.status().message();
    ASSERT_EQ(result->fastest.size(), 1u);
    EXPECT_EQ(result->fastest[0].knobs, KnobsOf(FirstOfBinary(4)));
    EXPECT_EQ(result->fastest[0].microseconds, 500);
    EXPECT_TRUE(result->complete());
    EXPECT_EQ(stored_.size(), ranked_.size());
    for (size_t i = 0; i < stored_.size(); ++i) EXPECT_EQ(stored_[i].knobs, KnobsOf(i));
    // A binary is timed once, whatever the number of knobs that make it.
    EXPECT_EQ(bench_.timed.size(), DistinctBinaries());
  }
}

TEST_F(SearchTest, StopsWhenPatienceIsOver) {
  options_.patience = 3;
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->complete());
  EXPECT_NE(result->stopped.find("3 candidates"), std::string::npos) << result->stopped;
  EXPECT_EQ(result->measured, 4);
}

TEST_F(SearchTest, CompilesNothingAheadThatMayBeForNothing) {
  options_.patience = 3;
  options_.jobs = 16;
  bench_.behaviour[binaries_[2]].seconds = 5e-4;
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->fastest[0].knobs, KnobsOf(2));
  EXPECT_EQ(result->measured, 6);
  EXPECT_EQ(bench_.prepared, 6);
}

TEST_F(SearchTest, StopsAtTheDeadline) {
  options_.deadline = 2;
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(bench_.timed.size(), 2u);  // nothing is timed in turns either
  EXPECT_NE(result->stopped.find("budget"), std::string::npos);
}

TEST_F(SearchTest, LooksAtTheTopOfTheList) {
  options_.top = 2;
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->measured, 2);
  EXPECT_TRUE(result->complete());
}

TEST_F(SearchTest, LooksFirstAtWhatItIsTold) {
  options_.top = 3;
  options_.confirm = false;
  for (const size_t told : {size_t{1}, size_t{4}}) {
    options_.first = ranked_[told];
    stored_.clear();
    const auto result = Run();
    ASSERT_TRUE(result.ok());
    std::vector<size_t> order = {told};
    for (size_t i = 0; i < 3; ++i)
      if (i != told) order.push_back(i);
    ASSERT_EQ(stored_.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(stored_[i].knobs, KnobsOf(order[i])) << told;
  }
}

TEST_F(SearchTest, WaitsForTheCompilerAtTheTopOfTheListAlone) {
  ASSERT_GT(DistinctBinaries(), 4u);
  options_.worth_compiling = 2;
  bench_.compiled = {binaries_[4]};
  bench_.behaviour[binaries_[4]].seconds = 5e-4;
  for (const int jobs : {1, 4}) {
    options_.jobs = jobs;
    stored_.clear();
    const auto result = Run();
    ASSERT_TRUE(result.ok());
    const auto looked_at = static_cast<size_t>(result->measured);
    EXPECT_EQ(looked_at + static_cast<size_t>(result->not_compiled), ranked_.size());
    EXPECT_GE(result->not_compiled, 2);
    ASSERT_EQ(stored_.size(), looked_at);
    EXPECT_EQ(stored_[0].knobs, KnobsOf(0));
    EXPECT_EQ(stored_[1].knobs, KnobsOf(1));
    EXPECT_EQ(result->fastest[0].knobs, KnobsOf(FirstOfBinary(4)));
  }
}

TEST_F(SearchTest, GoesOnWhereItStopped) {
  options_.deadline = 2;
  ASSERT_TRUE(Run().ok());
  const std::vector<Record> known = stored_;
  const std::vector<std::string> before = bench_.timed;
  ASSERT_EQ(known.size(), 2u);
  options_.deadline = 0;
  stored_.clear();
  bench_.timed.clear();
  bench_.behaviour[binaries_[3]].seconds = 5e-4;
  const auto result = Run(known);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->known, 2);
  for (const std::string& binary : before) EXPECT_EQ(std::ranges::count(bench_.timed, binary), 0);
  EXPECT_EQ(result->fastest[0].knobs, KnobsOf(3));
  // Unless it is asked to.
  options_.retune = true;
  bench_.timed.clear();
  ASSERT_TRUE(Run(known).ok());
  for (const std::string& binary : before) EXPECT_GT(std::ranges::count(bench_.timed, binary), 0);
}

TEST_F(SearchTest, ADoneProblemCostsNothing) {
  bench_.behaviour[binaries_[1]].seconds = 5e-4;
  ASSERT_TRUE(Run().ok());
  std::vector<Record> known = Merge(stored_);
  for (Record& record : known) record.confirmed = true;
  bench_.timed.clear();
  bench_.prepared = 0;
  const auto result = Run(known);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(bench_.prepared, 0);
  EXPECT_EQ(result->fastest[0].knobs, KnobsOf(1));
}

TEST_F(SearchTest, WhatIsWrongIsNotTimedAndNeverTheBest) {
  for (const char* why : {"element 7 of y is 3, by the generic engine 4",
                          "a write 12 bytes behind the 4096 bytes of y"}) {
    stored_.clear();
    bench_.timed.clear();
    bench_.behaviour[binaries_[0]] = {.seconds = 1e-6,
                                      .check = Status::Text(Code::kUnexpectedValue, why)};
    const auto result = Run();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->rejected, 1);
    EXPECT_EQ(stored_[0].rejected, why);
    EXPECT_EQ(std::ranges::count(bench_.timed, binaries_[0]), 0);
    EXPECT_NE(result->fastest[0].knobs + result->fastest[0].engine,
              stored_[0].knobs + stored_[0].engine);
    // Nor is it tried again.
    bench_.checked.clear();
    ASSERT_TRUE(Run(stored_).ok());
    EXPECT_EQ(std::ranges::count(bench_.checked, binaries_[0]), 0);
  }
}

TEST_F(SearchTest, WhatCannotBeRunIsNoRecord) {
  bench_.behaviour[binaries_[0]].check = Status::Text(Code::kExecutionFailed, "too many registers");
  auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->failed, 1);
  EXPECT_EQ(stored_[0].knobs, KnobsOf(1));

  bench_.broken = true;
  bench_.prepared = 0;
  stored_.clear();
  result = Run();
  EXPECT_FALSE(result.ok());
  EXPECT_LT(bench_.prepared, 6);  // the device is gone: it is not asked for each candidate
  EXPECT_TRUE(stored_.empty());
}

TEST_F(SearchTest, TheCloseOnesAreTimedInTurns) {
  bench_.behaviour[binaries_[1]].seconds = 5.0e-4;
  bench_.behaviour[binaries_[2]].seconds = 5.1e-4;
  ASSERT_NE(binaries_[1], binaries_[2]);
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->fastest[0].confirmed);
  EXPECT_EQ(result->fastest[0].knobs, KnobsOf(1));
  ASSERT_EQ(stored_.size(), ranked_.size() + 2);
  std::vector<std::string> turns(bench_.timed.end() - 4, bench_.timed.end());
  EXPECT_EQ(turns, (std::vector{binaries_[1], binaries_[2], binaries_[1], binaries_[2]}));
  // Unless there is no time for it.
  options_.confirm = false;
  bench_.timed.clear();
  const auto unconfirmed = Run();
  ASSERT_TRUE(unconfirmed.ok());
  EXPECT_FALSE(unconfirmed->fastest[0].confirmed);
  EXPECT_EQ(unconfirmed->fastest[0].knobs, KnobsOf(1));
  EXPECT_EQ(bench_.timed.size(), DistinctBinaries());
}

// The order of tiles is no part of the kernel's text, and none of the candidates differ by it.
TEST_F(SearchTest, TheFastestIsTimedWithOtherArguments) {
  const Target target = *TargetFromArch("sm_90a");
  const Group group = MatmulGroup(target, 4096);
  Candidate other = RankCandidates(group, target)[0];
  const Engine& engine = Engines()[static_cast<size_t>(other.engine)];
  const auto raster = std::ranges::find(engine.knobs, std::string_view("raster"), &KnobRow::name);
  ASSERT_NE(raster, engine.knobs.end()) << engine.name;
  other.knobs[static_cast<size_t>(raster - engine.knobs.begin())] = 4;
  bench_.behaviour[BinaryKey(*CompileGroup(group, target, other))].seconds = 5e-4;
  options_.top = 1;
  options_.vary_arguments = true;
  const auto run = [&](const std::vector<Record>& known) {
    return Search(group, target, known, options_, bench_,
                  [&](const SearchStep& step) { stored_.push_back(step.record); });
  };
  const auto result = run({});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->measured, static_cast<int>(raster->domain.size()));
  EXPECT_EQ(result->fastest[0].knobs, KnobText(engine, other.knobs));
  // It is on record now.
  bench_.prepared = 0;
  const auto again = run(stored_);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(bench_.prepared, 0);
  EXPECT_EQ(again->fastest[0].knobs, KnobText(engine, other.knobs));
}

// By its records, too: what was slower while the device was cool must not come before it.
TEST_F(SearchTest, TheFastestInTurnsIsTheFastestOnAHotDevice) {
  bench_.behaviour[binaries_[1]].seconds = 5.0e-4;
  bench_.behaviour[binaries_[2]].seconds = 5.1e-4;
  bench_.behaviour[binaries_[3]].seconds = 5.4e-4;
  bench_.cool_times = DistinctBinaries();
  bench_.slower_when_hot = 1.2;
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->fastest[0].knobs, KnobsOf(1));
  EXPECT_EQ(result->fastest[0].microseconds, 500);
  const std::vector<Record> merged = Merge(stored_);
  const auto fastest = std::ranges::min_element(merged, {}, &Record::microseconds);
  EXPECT_EQ(fastest->knobs, KnobsOf(1));
  EXPECT_EQ(stored_.back().microseconds, 510);  // in proportion
}

}  // namespace
}  // namespace kiln::compiler
