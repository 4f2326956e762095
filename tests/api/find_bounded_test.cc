// How much cudnnFind… compiles, over a driver that runs nothing and a compiler that takes its time
// (//tests/support): for small convolutions what their algorithms run, and nothing to search with;
// in a second process nothing at all. Each mode is a process of its own, with its own cache.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/api/legacy_convolution.h"

namespace kiln::api {
namespace {

namespace fs = std::filesystem;

std::string Folder(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

int KernelsIn(const std::string& cache) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(Folder(cache), error))
    count += entry.path().filename() == "kernel.cubin";
  return count;
}

// Finds all algorithms of the small convolutions in a process of its own.
void FindIn(const std::string& cache, const char* mode) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("KILN_TUNE", mode, 1);
    setenv("KILN_CACHE_DIR", Folder(cache).c_str(), 1);
    setenv("KILN_RECORDS_DIR", Folder(cache + "_records").c_str(), 1);
    setenv("KILN_NVRTC_COPIES", "1", 1);
    unsetenv("TEST_PREMATURE_EXIT_FILE");
    unsetenv("TEST_SHARD_STATUS_FILE");
    execl("/proc/self/exe", "find_bounded_test", "--gtest_filter=FindBounded.DISABLED_InAProcess",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(FindBounded, DISABLED_InAProcess) {
  // Longer than what a search of a small problem may take.
  constexpr int kMilliseconds = 150;
  void* const nvrtc = dlopen(std::getenv("KILN_NVRTC"), RTLD_NOW);
  ASSERT_NE(nvrtc, nullptr) << dlerror();
  reinterpret_cast<void (*)(int)>(dlsym(nvrtc, "MinimalNvrtcTakes"))(kMilliseconds);
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), kOk);
  const Geometry geometries[] = {{.x = {1, 1, 28, 28}, .w = {20, 1, 5, 5}},
                                 {.x = {8, 16, 16, 16}, .w = {32, 16, 3, 3}, .padding = 1},
                                 {.type = CUDNN_DATA_HALF,
                                  .format = CUDNN_TENSOR_NHWC,
                                  .x = {8, 64, 14, 14},
                                  .w = {64, 64, 3, 3},
                                  .padding = 1}};
  for (Geometry geometry : geometries) {
    for (const Direction direction : kDirections) {
      geometry.direction = direction;
      for (const Perf& perf : Convolution(geometry).Find(handle))
        EXPECT_EQ(perf.time > 0, perf.status == kOk) << perf.algorithm;
    }
  }
  EXPECT_EQ(cudnnDestroy(handle), kOk);
}

TEST(FindBounded, CompilesWhatRunsAndNothingInASecondProcess) {
  FindIn("off", "off");  // does not search
  const int run = KernelsIn("off");
  ASSERT_GT(run, 9);
  FindIn("cold", "records");
  EXPECT_EQ(KernelsIn("cold"), run);
  FindIn("cold", "records");
  EXPECT_EQ(KernelsIn("cold"), run) << "the disk has the kernels";
}

}  // namespace
}  // namespace kiln::api
