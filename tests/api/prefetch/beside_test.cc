// A session compiles what a known network needs next, over a driver that runs nothing: in the
// background, at the batch that the client has, and not where KILN_TUNE=off. A process may end
// meanwhile. The program is its own child: `beside_test end` builds two plans and returns.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "api/prefetch/background.h"
#include "api/session/session.h"
#include "runtime/cuda/nvrtc.h"

namespace kiln::api {
namespace {

constexpr int64_t kListed = 4, kAsked = 6;  // images

graph::Graph Convolution(int64_t images, int64_t channels) {
  const auto graph = graph::Parse(fmt::format(
      "graph g {{\n"
      "  tensor %x uid=1 f16 [{0},{1},5,5] strides=[{2},1,{3},{1}]\n"
      "  tensor %w uid=2 f16 [{1},{1},1,1] strides=[{1},1,{1},{1}]\n"
      "  tensor %y uid=3 f16 [{0},{1},5,5] strides=[{2},1,{3},{1}]\n"
      "  %y = conv_fprop(%x, %w) compute=f32 pre_padding=[0,0] post_padding=[0,0] stride=[1,1] "
      "dilation=[1,1]\n}}\n",
      images, channels, 25 * channels, 5 * channels));
  CHECK(graph.ok(), "{}", graph.status().message());
  return *graph;
}

// Convolutions whose kernels differ.
const std::vector<int64_t> kChannels = {8, 24, 3, 256};

void WriteNetwork(const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream file(folder + "/few.kiln");
  for (const int64_t channels : kChannels) file << graph::Print(Convolution(kListed, channels));
}

std::shared_ptr<Session> Opened() {
  const auto session = OpenSession();
  CHECK(session.ok(), "{}", session.status().message());
  return *session;
}

EngineConfig Best(const Session& session, const graph::Graph& graph) {
  const auto ranked = session.Rank(graph, {});
  CHECK(ranked.ok(), "{}", ranked.status().message());
  return ranked->front();
}

void BuildFirstTwo(Session& session, int64_t images) {
  for (size_t i = 0; i < 2; ++i) {
    const graph::Graph graph = Convolution(images, kChannels[i]);
    const auto plan = session.Build(graph, Best(session, graph), {});
    CHECK(plan.ok(), "{}", plan.status().message());
  }
}

bool IsReady(const Session& session, int64_t images, int64_t channels) {
  const graph::Graph graph = Convolution(images, channels);
  return session.IsReady(graph, Best(session, graph));
}

// Exit status of this program with `argument` and a variable more.
int InChild(const char* argument, const char* variable, const char* value) {
  const pid_t child = fork();
  if (child == 0) {
    setenv(variable, value, 1);
    unsetenv("TEST_PREMATURE_EXIT_FILE");
    execl("/proc/self/exe", "beside_test", argument, nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

class BesideTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto nvrtc = runtime::ProcessNvrtc(); !nvrtc.ok())
      GTEST_SKIP() << nvrtc.status().message();
  }
};

TEST_F(BesideTest, AProcessMayEndMeanwhile) {
  const std::string cache = std::string(std::getenv("TEST_TMPDIR")) + "/of_child";
  EXPECT_EQ(InChild("end", "KILN_CACHE_DIR", cache.c_str()), 0);
}

TEST_F(BesideTest, NothingIsDoneWithoutRecords) {
  EXPECT_EQ(InChild("whether_ready", "KILN_TUNE", "off"), 1);
}

TEST_F(BesideTest, TheRestOfTheNetworkIsCompiledAtTheClientsBatch) {
  EXPECT_EQ(InChild("whether_ready", "KILN_TUNE", "records"), 0);
}

// 0 where all of the network's kernels are there, 1 where none but the client's own are.
int WhetherReady() {
  const auto session = Opened();
  BuildFirstTwo(*session, kAsked);
  Background::OfProcess().Wait();
  const bool third = IsReady(*session, kAsked, kChannels[2]);
  const bool fourth = IsReady(*session, kAsked, kChannels[3]);
  return third && fourth ? 0 : third || fourth ? 2 : 1;
}

int Play(const std::string& name) {
  alarm(120);
  if (name == "whether_ready") return WhetherReady();
  BuildFirstTwo(*Opened(), kAsked);
  return 0;
}

}  // namespace
}  // namespace kiln::api

int main(int argc, char** argv) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  setenv("KILN_RECORDS", (folder + "/networks").c_str(), 1);
  setenv("KILN_CACHE_DIR", (folder + "/cache" + std::to_string(getpid())).c_str(), 0);
  if (argc == 2 && argv[1][0] != '-') return kiln::api::Play(argv[1]);
  unsetenv("KILN_CACHE_DIR");
  kiln::api::WriteNetwork(folder + "/networks");
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
