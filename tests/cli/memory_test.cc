// Memory that may be taken, from files as the kernel writes them; what graphs take; allocations
// that fail.
#include "cli/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/out_of_memory.h"
#include "ir/graph/builder.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGiB = int64_t{1} << 30;

class Machine : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const fs::path file = root_ + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void SetUp() override {
    root_ = ::testing::TempDir() + "/" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    Write("/proc/meminfo", "MemTotal: 33554432 kB\nMemFree: 1 kB\nMemAvailable: 16777216 kB\n");
  }
  std::string root_;
};

TEST_F(Machine, WithoutGroupsItIsWhatTheMachineHas) { EXPECT_EQ(AvailableBytes(root_), 16 * kGiB); }

TEST_F(Machine, TheTightestGroupAboveCounts) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/memory.max", std::to_string(4 * kGiB));
  Write("/sys/fs/cgroup/a/memory.current", std::to_string(kGiB));
  EXPECT_EQ(AvailableBytes(root_), 3 * kGiB);
  Write("/sys/fs/cgroup/memory.max", std::to_string(2 * kGiB));
  Write("/sys/fs/cgroup/memory.current", std::to_string(kGiB));
  EXPECT_EQ(AvailableBytes(root_), kGiB);
}

TEST_F(Machine, FilesThatAGroupCachesCanBeGivenBack) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", std::to_string(4 * kGiB));
  Write("/sys/fs/cgroup/memory.current", std::to_string(4 * kGiB));
  EXPECT_EQ(AvailableBytes(root_), 0);
  Write("/sys/fs/cgroup/memory.stat",
        "anon 5\nactive_file " + std::to_string(kGiB) + "\ninactive_file " + std::to_string(kGiB));
  EXPECT_EQ(AvailableBytes(root_), 2 * kGiB);
}

TEST_F(Machine, GroupsOfTheFirstVersion) {
  Write("/proc/self/cgroup", "12:cpu:/x\n9:memory:/x\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", std::to_string(2 * kGiB));
  Write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", std::to_string(kGiB));
  EXPECT_EQ(AvailableBytes(root_), kGiB);
}

graph::Graph ExpOf(int64_t elements) {
  graph::GraphBuilder b("exp");
  b.Output(b.Pointwise(graph::PointwiseMode::kExp, {b.Input("x", DType::kF16, {elements})}), "y",
           DType::kF16);
  return *b.Finish();
}

// x as f64 and as f16, y as f16; on the CPU device both stand in its memory too.
TEST(RunBytes, CountsValuesAndImages) {
  EXPECT_EQ(RunBytes(ExpOf(1000), 64, false), 8000 + 2000 + 2000);
  EXPECT_EQ(RunBytes(ExpOf(1000), 64, true), 8000 + 4000 + 4000 + 64);
}

TEST(CheckBytes, CountsEveryTensorTwiceAndTheLargestAgain) {
  EXPECT_EQ(CheckBytes(ExpOf(1000)), 8000 + 2 * 8000 + 2 * 8000);
}

TEST(CheckBytes, DoesNotOverflow) {
  EXPECT_GT(CheckBytes(ExpOf(int64_t{1} << 38)), int64_t{1} << 40);
}

TEST(OutOfMemory, SaysHowMuchWasWanted) {
  const volatile size_t wanted = size_t{1} << 50;
  try {
    const std::string text(wanted, 'x');
    FAIL() << text.size() << " bytes were had";
  } catch (const OutOfMemory& error) {
    EXPECT_GE(error.wanted(), wanted);
    EXPECT_LT(error.wanted(), wanted + 64);
  }
  EXPECT_EQ(new (std::nothrow) char[wanted], nullptr);
}

}  // namespace
}  // namespace kiln::cli
