// Random graphs of the whole op table, of 1 to 40 operations: none is refused, none is wrong.
// random_graphs_cpu_test and random_graphs_gpu_test are both this program, which Bazel and
// GTEST_TOTAL_SHARDS divide by batches.
//
// KILN_TEST_GRAPHS=… other than the default number, KILN_TEST_SEED=… the first seed less one;
// KILN_TEST_THREADS=… how many at once (NVRTC is faster in many processes than in many threads);
// KILN_TEST_SECONDS=… ends a batch early, and says how far it came. What fails is printed as Kiln
// text, made small in KILN_TEST_SHRINK=… tries, and written to a file of the test's outputs; a
// mended one belongs into tests/data/graphs, all of which run here too.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "runtime/device_select.h"
#include "tests/numerics/graph_runs.h"
#include "tests/support/random_graph.h"
#include "tests/support/shrink.h"

namespace kiln::testing {
namespace {

constexpr int kBatches = 100;
constexpr int kMostMessages = 4;

int64_t Setting(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

struct Settings {
  int64_t graphs = Setting("KILN_TEST_GRAPHS", 5000);
  int64_t seed = Setting("KILN_TEST_SEED", 0);
  int64_t seconds = Setting("KILN_TEST_SECONDS", 1 << 20);
  int64_t threads = Setting("KILN_TEST_THREADS", std::thread::hardware_concurrency());
  int64_t shrink = Setting("KILN_TEST_SHRINK", 400);

  // The library reports every KILN_* name that it does not know.
  static const Settings& Get() {
    static const Settings settings = [] {
      const Settings read;
      for (const char* name : {"KILN_TEST_GRAPHS", "KILN_TEST_SEED", "KILN_TEST_SECONDS",
                               "KILN_TEST_THREADS", "KILN_TEST_SHRINK"})
        unsetenv(name);
      return read;
    }();
    return settings;
  }
};

graph::Graph GraphOf(uint64_t seed) { return graph::RandomGraph(seed, graph::MixedOptions(seed)); }

// Writes the graph to a file, and returns its path; "" where the test has no folder for outputs.
std::string Keep(uint64_t seed, const graph::Graph& graph) {
  const char* const folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  if (folder == nullptr) return "";
  const std::string path = fmt::format("{}/seed_{}.kiln", folder, seed);
  std::ofstream(path) << graph::Print(graph);
  return path;
}

class RandomGraphs : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    Settings::Get();
    const auto device = runtime::DefaultDevice();
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = *device;
  }

  void Report(const graph::Graph& graph, uint64_t seed, const GraphRun& run) {
    const std::lock_guard lock(mutex_);
    if (++failures_ > kMostMessages) return;
    const graph::Graph small = graph::Shrink(
        graph,
        [&](const graph::Graph& smaller) {
          return RunGraph(*device_, smaller, seed).outcome == run.outcome;
        },
        static_cast<int>(Settings::Get().shrink));
    const GraphRun again = RunGraph(*device_, small, seed);
    ADD_FAILURE() << "seed " << seed << (run.outcome == Outcome::kWrong ? " wrong" : " refused")
                  << ": " << run.text << "\n"
                  << again.text << "\n"
                  << graph::Print(small) << Keep(seed, small);
  }

  runtime::Device* device_ = nullptr;
  std::mutex mutex_;
  int failures_ = 0;
};

TEST_P(RandomGraphs, AgreeWithTheInterpreter) {
  const Settings& settings = Settings::Get();
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const int64_t count = settings.graphs / kBatches;
  const int64_t first = settings.seed + 1 + GetParam() * count;
  std::atomic<int64_t> next = 0, ran = 0, nodes = 0, kernels = 0, elements = 0, finite = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < count && seconds() < static_cast<double>(settings.seconds);
         i = next++) {
      const auto seed = static_cast<uint64_t>(first + i);
      const graph::Graph graph = GraphOf(seed);
      const GraphRun run = RunGraph(*device_, graph, seed);
      ++ran, nodes += std::ssize(graph.nodes), kernels += run.kernels;
      elements += run.elements, finite += run.finite;
      if (run.outcome != Outcome::kRight) Report(graph, seed, run);
    }
  };
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < std::max<int64_t>(1, settings.threads); ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures_, 0) << "of " << ran << " graphs";
  fmt::print(
      "{}: seeds from {}: {} graphs of {} operations, {} kernels, {} elements, {} finite, {} "
      "failures, {:.1f} s\n",
      device_->target().name, first, ran.load(), nodes.load(), kernels.load(), elements.load(),
      finite.load(), failures_, seconds());
  // A run in which hardly anything is finite compares hardly anything.
  if (ran > 40) {
    EXPECT_GT(finite, elements / 2);
  }
}

// Graphs that were found once.
TEST(FoundGraphs, AgreeWithTheInterpreter) {
  Settings::Get();
  const auto device = runtime::DefaultDevice();
  ASSERT_TRUE(device.ok()) << device.status().message();
  int ran = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/data/graphs")) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const Result<graph::Graph> graph = graph::Parse(text);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    for (uint64_t seed = 1; seed <= 3; ++seed) EXPECT_EQ(RunGraph(**device, *graph, seed).text, "");
    ++ran;
  }
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(Batch, RandomGraphs, ::testing::Range(0, kBatches));

}  // namespace
}  // namespace kiln::testing
