// The record store: tiers, damaged lines, what one process stores and the next one finds.
#include "api/tuning/record_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "runtime/cache/record_files.h"
#include "tests/api/tuning/small_groups.h"
#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::api {
namespace {

using compiler::Candidate;
using compiler::Record;

class RecordStoreTest : public testing::Test {
 protected:
  RecordStore::Options Options() const {
    return {.user_folder = folder_.path() + "/user",
            .shipped_paths = {folder_.path() + "/shipped", folder_.path() + "/missing"}};
  }
  Record Timed(size_t rank, double microseconds) const {
    Record record = RecordOf(problem_, ranked_[rank]);
    record.microseconds = microseconds;
    record.date = "2026-11-22T04:00:00Z";
    return record;
  }
  void Ship(const Record& record) const { Ship(ToLine(record)); }
  void Ship(const std::string& line) const {
    ASSERT_TRUE(runtime::AppendRecordLine(folder_.path() + "/shipped/h200.txt", line).ok());
  }
  static std::optional<Candidate> BestOf(RecordStore&& store, const compiler::Group& group,
                                         const Target& target) {
    return store.Best(group, target);
  }

  const runtime::TemporaryFolder folder_;
  const Target target_ = *TargetFromArch("sm_90a");
  const compiler::Group group_ = GroupOf(SmallMatmul(8), target_);
  const compiler::Problem problem_ = ProblemOf(group_, target_);
  const std::vector<Candidate> ranked_ = compiler::RankCandidates(group_, target_);
};

TEST_F(RecordStoreTest, WithoutRecordsTheModelRanks) {
  RecordStore store(Options());
  EXPECT_FALSE(store.Best(group_, target_).has_value());
  EXPECT_EQ(store.Rank(group_, target_), ranked_);
}

TEST_F(RecordStoreTest, WhatIsStoredIsFoundByTheNextProcess) {
  ASSERT_GT(ranked_.size(), 3u);
  {
    RecordStore store(Options());
    const int64_t epoch = store.epoch();
    store.Add(Timed(2, 10));
    store.Add(Timed(3, 9));
    EXPECT_NE(store.epoch(), epoch);
    EXPECT_EQ(store.Best(group_, target_), ranked_[3]);
  }
  RecordStore store(Options());
  EXPECT_EQ(store.Best(group_, target_), ranked_[3]);
  const std::vector<Candidate> ranked = store.Rank(group_, target_);
  ASSERT_EQ(ranked.size(), ranked_.size());
  EXPECT_EQ(ranked[0], ranked_[3]);
  EXPECT_EQ(ranked[1], ranked_[2]);
  EXPECT_EQ(ranked[2], ranked_[0]);
  // Another extent is another problem.
  EXPECT_FALSE(store.Best(GroupOf(SmallMatmul(9), target_), target_).has_value());
}

TEST_F(RecordStoreTest, TheUsersTimeOfAConfigurationCounts) {
  Ship(Timed(1, 5));
  Ship(Timed(2, 7));
  EXPECT_EQ(RecordStore(Options()).Best(group_, target_), ranked_[1]);
  RecordStore store(Options());
  store.Add(Timed(1, 9));  // here it is slower
  EXPECT_EQ(store.Best(group_, target_), ranked_[2]);
}

// Boards of one chip lend each other records until they have some of their own, fast or slow.
TEST_F(RecordStoreTest, KinAreAskedWhereADeviceHasNone) {
  Target h200 = target_;
  h200.name = "NVIDIA H200";
  ASSERT_NE(target_.name, h200.name);
  Record kins = Timed(3, 5);
  kins.problem = ProblemOf(group_, h200);
  Ship(kins);
  {
    RecordStore store(Options());
    EXPECT_EQ(store.Best(group_, target_), ranked_[3]);
    EXPECT_EQ(store.Rank(group_, target_)[0], ranked_[3]);
    EXPECT_FALSE(store.Has(group_, target_));
    EXPECT_TRUE(store.Has(group_, h200));
    EXPECT_TRUE(store.Known(group_, target_, problem_).empty());
    Target smaller = target_;
    --smaller.multiprocessors;
    EXPECT_FALSE(store.Best(group_, smaller).has_value());
    Target stranger = target_;
    stranger.name = "NVIDIA A100-SXM4-80GB";
    EXPECT_FALSE(store.Best(group_, stranger).has_value());
  }
  Ship(Timed(2, 900));
  RecordStore store(Options());
  EXPECT_EQ(store.Best(group_, target_), ranked_[2]);
  EXPECT_EQ(store.Best(group_, h200), ranked_[3]);
  EXPECT_TRUE(store.Has(group_, target_));
}

TEST_F(RecordStoreTest, DamagedAndForeignLinesAreSkipped) {
  const std::string good = ToLine(Timed(2, 10));
  Ship("nonsense");
  std::string damaged = ToLine(Timed(1, 1));
  damaged[60] ^= 4;
  Ship(damaged);
  Record old = Timed(1, 1);
  --old.version;
  Ship(old);
  Record foreign = Timed(1, 1);
  foreign.engine = "abacus";
  Ship(foreign);
  Ship(good);
  Ship(good.substr(0, good.size() / 2));
  EXPECT_EQ(RecordStore(Options()).Best(group_, target_), ranked_[2]);
  const Result<RecordsRead> read = ReadRecords(folder_.path() + "/shipped");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->damage.size(), 3u);
  EXPECT_EQ(read->records.size(), 3u);
}

TEST_F(RecordStoreTest, WhatWasRejectedIsKnownAndNotUsed) {
  RecordStore store(Options());
  store.Add(Timed(1, 5));
  store.Add(Timed(2, 7));
  Record rejected = RecordOf(problem_, ranked_[1]);
  rejected.rejected = "element 3 is wrong";
  store.Add(rejected);
  EXPECT_EQ(store.Best(group_, target_), ranked_[2]);
  EXPECT_EQ(std::ranges::count_if(store.Known(group_, target_, problem_), &Record::is_rejected), 1);
  // A rejection by another build says only that its time is not to be trusted.
  rejected.library = "another";
  rejected.date = "2027";
  rejected.engine = ranked_[2].engine == ranked_[1].engine ? rejected.engine : "contract_simt";
  Ship(rejected);
  EXPECT_EQ(std::ranges::count_if(RecordStore(Options()).Known(group_, target_, problem_),
                                  &Record::is_rejected),
            1);
}

TEST_F(RecordStoreTest, AFolderThatCannotBeWrittenCostsNothingElse) {
  std::ofstream(folder_.path() + "/user") << "a file, not a folder";
  RecordStore store(Options());
  store.Add(Timed(1, 5));
  EXPECT_EQ(store.Best(group_, target_), ranked_[1]);
}

TEST(RecordFileName, IsTheDevices) {
  EXPECT_EQ(RecordFileName("NVIDIA H200"), "nvidia_h200.txt");
  EXPECT_EQ(RecordFileName("../x"), "___x.txt");
  EXPECT_EQ(RecordFileName(""), "device.txt");
}

}  // namespace
}  // namespace kiln::api
