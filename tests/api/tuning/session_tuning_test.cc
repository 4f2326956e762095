// KILN_TUNE and KILN_CAPTURE in the session, on the CPU device.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "api/session/session.h"
#include "api/tuning/record_store.h"
#include "ir/base/env.h"
#include "runtime/cache/record_files.h"
#include "runtime/device_select.h"
#include "tests/api/tuning/small_groups.h"
#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::api {
namespace {

// One folder for the process: the record store of the process is made once.
const std::string& Folder() {
  static const auto* const folder = new runtime::TemporaryFolder;
  return folder->path();
}

class SessionTuningTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("KILN_DEVICE", "cpu", 1);
    ::setenv("KILN_RECORDS_DIR", (Folder() + "/records").c_str(), 1);
    ::setenv("KILN_CACHE_DIR", (Folder() + "/cache").c_str(), 1);
    ::setenv("KILN_CAPTURE", (Folder() + "/captured").c_str(), 1);
    ::setenv("KILN_TUNE", "on-miss", 1);
    ResetEnvForTest();
    const auto session = OpenSession();
    ASSERT_TRUE(session.ok()) << session.status().message();
    measuring_ = *session;
    ::setenv("KILN_TUNE", "records", 1);
  }

  // A session that cannot measure, for the CPU as it is here.
  static std::shared_ptr<Session> SessionIn(const char* mode) {
    ::setenv("KILN_TUNE", mode, 1);
    ResetEnvForTest();
    return *OpenSessionFor((*runtime::CpuDeviceOfProcess())->target());
  }
  static std::vector<EngineConfig> Ranked(const char* mode, const graph::Graph& graph,
                                          RankMode rank) {
    return *SessionIn(mode)->Rank(graph, {.mode = rank});
  }
  static size_t Records() {
    const auto read = ReadRecords(Folder() + "/records");
    return read.ok() ? read->records.size() : 0;
  }

  inline static std::shared_ptr<Session> measuring_;
};

TEST_F(SessionTuningTest, RecordsComeFirstWhereTheModeSaysSo) {
  const graph::Graph graph = SmallMatmul(64);
  const std::vector<EngineConfig> untuned = Ranked("off", graph, RankMode::kA);
  ASSERT_GT(untuned.size(), 3u);
  EXPECT_EQ(Ranked("records", graph, RankMode::kA), untuned);

  const Target target = (*runtime::CpuDeviceOfProcess())->target();
  const compiler::Group group = GroupOf(graph, target);
  compiler::Record record =
      RecordOf(ProblemOf(group, target), compiler::RankCandidates(group, target)[2]);
  record.microseconds = 1;
  RecordStore::OfProcess().Add(record);

  for (const char* mode : {"records", "on-miss", "retune"}) {
    for (const RankMode rank :
         {RankMode::kA, RankMode::kB, RankMode::kInstant, RankMode::kFallback}) {
      const auto ranked = Ranked(mode, graph, rank);
      EXPECT_EQ(ranked[0], untuned[2]) << mode;
      if (rank == RankMode::kInstant || rank == RankMode::kFallback) continue;
      EXPECT_EQ(ranked[1], untuned[0]) << mode;
      EXPECT_EQ(ranked.size(), untuned.size()) << mode;
    }
  }
  EXPECT_EQ(Ranked("off", graph, RankMode::kB), untuned);
  EXPECT_EQ(Ranked("heuristic", graph, RankMode::kA), untuned);
  EXPECT_EQ(Ranked("heuristic", graph, RankMode::kFallback)[0], untuned[0]);
  EXPECT_EQ(Ranked("heuristic", graph, RankMode::kB)[0], untuned[2]);
}

TEST_F(SessionTuningTest, OnMissMeasuresOnceAndOnlyWhenItMay) {
  const graph::Graph graph = SmallMatmul(96);
  const EngineConfig first = (*measuring_->Rank(graph, {.mode = RankMode::kA}))[0];
  const size_t before = Records();
  ASSERT_TRUE(measuring_->Build(graph, first, {.may_measure = false}).ok());
  EXPECT_EQ(Records(), before) << "as when a plan is rebuilt for other shapes at execution";

  const auto plan = measuring_->Build(graph, first, {.may_measure = true});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const size_t after = Records();
  EXPECT_GT(after, before);
  // The client took the model's choice, so it gets the fastest.
  EXPECT_EQ((*plan)->config(), (*measuring_->Rank(graph, {.mode = RankMode::kA}))[0]);
  ASSERT_TRUE(measuring_->Build(graph, first, {.may_measure = true}).ok());
  EXPECT_EQ(Records(), after);
}

TEST_F(SessionTuningTest, AnExplicitChoiceStays) {
  const graph::Graph graph = SmallMatmul(80);
  const std::vector<EngineConfig> ranked = *measuring_->Rank(graph, {.mode = RankMode::kA});
  const auto plan = measuring_->Build(graph, ranked.back(), {.may_measure = true});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ((*plan)->config(), ranked.back());
}

TEST_F(SessionTuningTest, CapturesEachDistinctGraphOnce) {
  ::setenv("KILN_TUNE", "records", 1);
  ResetEnvForTest();
  const auto files = [] {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(Folder() + "/captured", none))
      if (entry.path().filename().string().starts_with("pointwise-"))
        names.push_back(entry.path().string());
    return names;
  };
  EXPECT_TRUE(files().empty());
  for (const int64_t n : {100, 200, 100}) {
    const graph::Graph graph = SmallRelu(n);
    const EngineConfig first = (*measuring_->Rank(graph, {.mode = RankMode::kA}))[0];
    ASSERT_TRUE(measuring_->Build(graph, first, {}).ok());
  }
  ASSERT_EQ(files().size(), 2u);
  std::vector<std::string> texts;
  for (const std::string& file : files()) {
    std::ifstream in(file);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    const auto graph = graph::Parse(text);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    texts.push_back(graph::CanonicalText(*graph));
  }
  EXPECT_EQ(std::ranges::count(texts, graph::CanonicalText(SmallRelu(100))), 1);
  EXPECT_EQ(std::ranges::count(texts, graph::CanonicalText(SmallRelu(200))), 1);
}

}  // namespace
}  // namespace kiln::api
