// cudnnFind… and the tuning records, on either device, once for each value of KILN_TUNE: what is
// measured is on record for later rankings and later processes, and not measured again.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "api/session/session.h"
#include "api/tuning/record_store.h"
#include "compiler/compile.h"
#include "ir/base/env.h"
#include "ir/graph/builder.h"
#include "tests/api/legacy/legacy_convolution.h"

namespace kiln::api {
namespace {

std::string Folder() {
  const char* const given = std::getenv("FIND_TEST_FOLDER");
  return given != nullptr ? given : std::string(std::getenv("TEST_TMPDIR")) + "/find";
}
std::string Mode() {
  const char* const mode = std::getenv("KILN_TUNE");
  return mode != nullptr ? mode : "records";
}
bool Records() { return Mode() != "off"; }

// A problem that is worth a search: cudnnFind… compiles nothing to search with where there is
// little to win (api/tuning/search_budget.h). That is 0.3 ms or more on a GPU, some 150 MB; on the
// CPU, where compiling counts for nothing, 0.1 ms, whose search has half a second: a busy machine
// measures nothing in that of a smaller one.
Geometry Worthwhile(Direction direction, int channels) {
  const bool is_gpu = (*OpenSession())->target().is_cuda();
  const int images = is_gpu ? 256 : 16, extent = is_gpu ? 162 : 33;
  return {.direction = direction,
          .type = CUDNN_DATA_HALF,
          .y_type = CUDNN_DATA_HALF,
          .x = {images, channels, extent, extent},
          .w = {12, channels, 3, 3}};
}

// The convolution as a client of graphs has it.
graph::Graph GraphOf(const Geometry& g) {
  const auto dims = [](const std::vector<int>& v) { return Dims(v.begin(), v.end()); };
  const Dims x = dims(g.x), w = dims(g.w), y = {x[0], w[0], x[2] - 2, x[3] - 2};
  graph::GraphBuilder b("conv");
  graph::ConvAttrs attrs;
  attrs.pre_padding = attrs.post_padding = {0, 0};
  attrs.stride = attrs.dilation = {1, 1};
  const bool forward = g.direction == Direction::kForward, data = g.direction == Direction::kData;
  const auto first = b.Input("first", DType::kF16, data ? y : x),
             second = b.Input("second", DType::kF16, forward || data ? w : y);
  const graph::GraphOp op = forward ? graph::GraphOp::kConvFprop
                            : data  ? graph::GraphOp::kConvDgrad
                                    : graph::GraphOp::kConvWgrad;
  const auto result = b.Apply(op, {first, second}, attrs,
                              {.dtype = DType::kF32,
                               .dims = forward ? y
                                       : data  ? x
                                               : w});
  b.Output(result, "result", DType::kF16);
  return *b.Finish();
}

std::vector<compiler::Record> OnRecord() {
  const auto read = ReadRecords(Folder() + "/records");
  if (!read.ok()) return {};
  EXPECT_TRUE(read->damage.empty()) << read->damage[0];
  return read->records;
}

class FindTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("KILN_RECORDS_DIR", (Folder() + "/records").c_str(), 1);
    ::setenv("KILN_CACHE_DIR", (Folder() + "/cache").c_str(), 1);
    ResetEnvForTest();
  }
  void SetUp() override { ASSERT_EQ(cudnnCreate(&handle_), kOk); }
  void TearDown() override { EXPECT_EQ(cudnnDestroy(handle_), kOk); }

  cudnnHandle_t handle_ = nullptr;
};

TEST_F(FindTest, WhatItMeasuresIsOnRecord) {
  for (const Direction direction : kDirections) {
    const Geometry geometry = Worthwhile(direction, 4 + static_cast<int>(direction));
    const Convolution conv(geometry);
    const size_t before = OnRecord().size();
    for (const Perf& perf : conv.Get(handle_)) EXPECT_EQ(perf.time, -1);
    EXPECT_EQ(OnRecord().size(), before) << "Get measures nothing";

    const std::vector<Perf> found = conv.Find(handle_);
    const size_t after = OnRecord().size();
    EXPECT_EQ(after > before, Records());
    for (const Perf& perf : found) {
      EXPECT_EQ(perf.time > 0, perf.status == kOk) << perf.algorithm;
      size_t bytes = 1;
      if (perf.status != kOk) continue;
      EXPECT_EQ(conv.WorkspaceSize(handle_, perf.algorithm, &bytes), kOk);
      EXPECT_EQ(bytes, perf.memory) << perf.algorithm;
    }
    EXPECT_LE(found[0].time, found[1].time);
    conv.Find(handle_);
    EXPECT_EQ(OnRecord().size(), after) << "it is not measured again";
  }
}

// Rankings for clients of graphs in this process, and the next process.
TEST_F(FindTest, OthersGoByTheRecords) {
  const Geometry geometry = Worthwhile(Direction::kForward, 8);
  Convolution(geometry).Find(handle_);
  const std::shared_ptr<Session> session = *OpenSession();
  const graph::Graph graph = GraphOf(geometry);
  const auto group = compiler::LeadingGroupOf(graph, session->target());
  ASSERT_TRUE(group.ok() && group->has_value());
  RecordStore next({.user_folder = Folder() + "/records", .shipped_paths = {}});
  const auto best = next.Best(**group, session->target());
  ASSERT_EQ(best.has_value(), Records()) << "the same group under other names";
  if (!Records()) return;
  const std::vector<EngineConfig> ranked = *session->Rank(graph, {.mode = RankMode::kB});
  EXPECT_EQ(ranked.front().engine, best->engine);
  const std::vector<EngineConfig> instant = *session->Rank(graph, {});
  const auto model = compiler::RankCandidates(**group, session->target());
  EXPECT_EQ(instant.front().engine, Mode() == "heuristic" ? model[0].engine : best->engine);
}

// The named test of this program in a process of its own.
pid_t Start(const std::string& test, const std::string& mode, const std::string& channels) {
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("FIND_TEST_FOLDER", Folder().c_str(), 1);
  setenv("FIND_TEST_CHANNELS", channels.c_str(), 1);
  setenv("KILN_TUNE", mode.c_str(), 1);
  unsetenv("TEST_PREMATURE_EXIT_FILE");
  unsetenv("TEST_SHARD_STATUS_FILE");
  const std::string filter = "--gtest_filter=" + test;
  execl("/proc/self/exe", "find_test", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
  _exit(127);
}

TEST_F(FindTest, DISABLED_AsAnotherProcess) {
  const Convolution conv(
      Worthwhile(Direction::kForward, std::atoi(std::getenv("FIND_TEST_CHANNELS"))));
  EXPECT_EQ(conv.Find(handle_)[0].status, kOk);
}

TEST_F(FindTest, ProcessesLoseNoRecordOfEachOther) {
  constexpr int kFirst = 20, kProcesses = 4;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i)
    children.push_back(
        Start("FindTest.DISABLED_AsAnotherProcess", Mode(), std::to_string(kFirst + i / 2)));
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const Target target = (*OpenSession())->target();
  RecordStore store({.user_folder = Folder() + "/records", .shipped_paths = {}});
  for (int i = 0; i < kProcesses / 2; ++i) {
    const auto group =
        compiler::LeadingGroupOf(GraphOf(Worthwhile(Direction::kForward, kFirst + i)), target);
    EXPECT_EQ(store.Best(**group, target).has_value(), Records()) << kFirst + i;
  }
}

}  // namespace
}  // namespace kiln::api
