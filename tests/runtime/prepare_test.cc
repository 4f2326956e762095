// Kernels that are not there are compiled side by side, over a device whose compiler takes its
// time.
#include "runtime/prepare.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>

#include "ir/base/threads.h"
#include "runtime/executable.h"
#include "tests/runtime/fake_device.h"

namespace kiln::runtime {
namespace {

// Compiling a kernel ends when as many are under way as are expected, or after a while.
class SlowCompiler final : public FakeDevice {
 public:
  explicit SlowCompiler(TargetKind kind) { target_.kind = kind; }
  bool IsReady(const KernelSource& source) override {
    const std::lock_guard lock(mutex_);
    return ready.contains(source.entry);
  }
  void Prepare(const KernelSource& source) override {
    std::unique_lock lock(mutex_);
    most = std::max(most, ++under_way_);
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(2), [&] { return most >= expected; });
    --under_way_;
    ready.insert(source.entry);
    if (source.entry == "broken") throw std::runtime_error("a bug of the compiler's");
  }

  std::set<std::string> ready;
  int most = 0, expected = 2;

 private:
  int under_way_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

std::vector<KernelSource> Sources(std::initializer_list<const char*> entries) {
  std::vector<KernelSource> sources;
  for (const char* entry : entries) sources.push_back({.entry = entry, .text = "0", .arch = "a"});
  return sources;
}

TEST(PrepareTogether, CompilesSideBySide) {
  SlowCompiler device(TargetKind::kCuda);
  device.ready = {"known"};
  PrepareTogether(device, Sources({"one", "known", "two"}));
  EXPECT_EQ(device.most, std::min(2, Cores()));
  EXPECT_EQ(device.ready, (std::set<std::string>{"known", "one", "two"}));
}

TEST(PrepareTogether, LeavesOneAloneAndTheCpuToo) {
  SlowCompiler device(TargetKind::kCuda);
  device.ready = {"known"};
  PrepareTogether(device, Sources({"one", "known"}));
  EXPECT_EQ(device.most, 0) << "whoever loads it compiles it";
  SlowCompiler cpu(TargetKind::kCpu);
  PrepareTogether(cpu, Sources({"one", "two"}));
  EXPECT_EQ(cpu.most, 0);
}

TEST(PrepareTogether, SurvivesACompilerThatThrows) {
  SlowCompiler device(TargetKind::kCuda);
  PrepareTogether(device, Sources({"broken", "one", "two"}));
  EXPECT_EQ(device.ready.size(), 3u);
}

TEST(PrepareTogether, IsPartOfMakingAnExecutable) {
  SlowCompiler device(TargetKind::kCuda);
  Program program;
  program.kernels = Sources({"one", "two"});
  ASSERT_TRUE(Executable::Create(device, program).ok());
  EXPECT_EQ(device.most, std::min(2, Cores()));
  EXPECT_EQ(device.loads, 2);
}

}  // namespace
}  // namespace kiln::runtime
