// A kernel is said to cost its own compiling, not the wait for that of others: searches are planned
// by it. The test runs over an NVRTC that compiles nothing and takes its time (//tests/support).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/cuda/cuda_compiler.h"
#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::runtime {
namespace {

KernelSource Source(int number) {
  KernelSource source;
  source.entry = fmt::format("k{}", number);
  source.text = fmt::format("extern \"C\" __global__ void k{}() {{}}\n", number);
  source.arch = "sm_90a";
  return source;
}

void Take(int milliseconds) {
  void* const nvrtc = dlopen(std::getenv("KILN_NVRTC"), RTLD_NOW);
  ASSERT_NE(nvrtc, nullptr) << dlerror();
  reinterpret_cast<void (*)(int)>(dlsym(nvrtc, "MinimalNvrtcTakes"))(milliseconds);
}

TEST(CompileSecondsTest, WaitingForOthersDoesNotCount) {
  constexpr int kThreads = 10, kMilliseconds = 100;
  Take(kMilliseconds);
  const TemporaryFolder folder;
  KernelCache cache({.root = folder.path()});
  CudaCompiler compiler(cache);
  const double before = compiler.seconds_per_kernel();
  std::barrier begin(kThreads);
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      begin.arrive_and_wait();
      EXPECT_TRUE(compiler.Compile(Source(i)).ok());
    });
  threads.clear();  // the last has waited for a second
  EXPECT_LE(compiler.seconds_per_kernel(), before);
}

TEST(CompileSecondsTest, FollowsWhatKernelsTake) {
  const TemporaryFolder folder;
  KernelCache cache({.root = folder.path()});
  CudaCompiler compiler(cache);
  Take(0);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(compiler.Compile(Source(i)).ok());
  EXPECT_LT(compiler.seconds_per_kernel(), 0.05);
  Take(300);
  for (int i = 20; i < 26; ++i) EXPECT_TRUE(compiler.Compile(Source(i)).ok());
  EXPECT_GT(compiler.seconds_per_kernel(), 0.2);
}

}  // namespace
}  // namespace kiln::runtime
