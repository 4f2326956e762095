// Bounds on what cudnnFind… compiles, over a driver that runs nothing and a compiler that takes its
// time (//tests/support): for small convolutions what their algorithms run, and nothing to search
// with; in a second process nothing at all. Compilers that take too long are not waited for. Large
// problems are searched, and small ones whose kernels are on disk. Each mode is a process of its
// own, with its own cache.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/api/legacy/legacy_convolution.h"

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

// The number of records whose work's name begins so.
int RecordsIn(const std::string& cache, const std::string& work = "") {
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(Folder(cache + "_records"), error)) {
    std::ifstream lines(entry.path());
    for (std::string line; std::getline(lines, line);)
      count += line.find("\twork=" + work) != line.npos;
  }
  return count;
}

struct Run {
  std::string cache;
  const char* mode = "records";
  const char* milliseconds = "150";  // that a kernel takes to compile: more than a small search
  const char* problems = "small";
  const char* most_seconds = "1e9";  // of a Find that is not the process's first
};

// Runs a test of this program, which finds, in a process of its own, without records.
void FindIn(const Run& run, const char* test = "InAProcess") {
  fs::remove_all(Folder(run.cache + "_records"));
  const pid_t child = fork();
  if (child == 0) {
    setenv("KILN_TUNE", run.mode, 1);
    setenv("KILN_CACHE_DIR", Folder(run.cache).c_str(), 1);
    setenv("KILN_RECORDS_DIR", Folder(run.cache + "_records").c_str(), 1);
    setenv("KILN_NVRTC_COPIES", "1", 1);
    setenv("FIND_TEST_MILLISECONDS", run.milliseconds, 1);
    setenv("FIND_TEST_PROBLEMS", run.problems, 1);
    setenv("FIND_TEST_MOST_SECONDS", run.most_seconds, 1);
    unsetenv("TEST_PREMATURE_EXIT_FILE");
    unsetenv("TEST_SHARD_STATUS_FILE");
    const std::string filter = std::string("--gtest_filter=FindBounded.DISABLED_") + test;
    execl("/proc/self/exe", "find_bounded_test", filter.c_str(), "--gtest_also_run_disabled_tests",
          nullptr);
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

std::vector<Geometry> Problems() {
  if (std::string(std::getenv("FIND_TEST_PROBLEMS")) == "large")  // 1 ms
    return {{.type = CUDNN_DATA_HALF,
             .format = CUDNN_TENSOR_NHWC,
             .x = {256, 64, 112, 112},
             .w = {64, 64, 3, 3},
             .padding = 1}};
  if (std::string(std::getenv("FIND_TEST_PROBLEMS")) ==
      "copied")  // to channels last, before and after
    return {{.type = CUDNN_DATA_HALF,
             .y_type = CUDNN_DATA_HALF,
             .x = {256, 8, 162, 162},
             .w = {12, 8, 3, 3}}};
  return {{.x = {1, 1, 28, 28}, .w = {20, 1, 5, 5}},
          {.x = {8, 16, 16, 16}, .w = {32, 16, 3, 3}, .padding = 1},
          {.type = CUDNN_DATA_HALF,
           .format = CUDNN_TENSOR_NHWC,
           .x = {8, 64, 14, 14},
           .w = {64, 64, 3, 3},
           .padding = 1}};
}

// Finds, and runs what is named first, as a client does, which waits for its kernels.
void FindAndRun(const Convolution& convolution, cudnnHandle_t handle, double most_seconds) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Perf> perfs = convolution.Find(handle);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(took.count(), most_seconds);
  for (const Perf& perf : perfs) EXPECT_EQ(perf.time > 0, perf.status == kOk) << perf.algorithm;
  ASSERT_FALSE(perfs.empty());
  ASSERT_EQ(perfs.front().status, kOk);
  alignas(256) static char memory[256];  // nothing is read or written
  EXPECT_EQ(convolution.Run(handle, perfs.front().algorithm, memory, memory, memory, memory,
                            perfs.front().memory),
            kOk);
}

TEST(FindBounded, DISABLED_InAProcess) {
  void* const nvrtc = dlopen(std::getenv("KILN_NVRTC"), RTLD_NOW);
  ASSERT_NE(nvrtc, nullptr) << dlerror();
  reinterpret_cast<void (*)(int)>(dlsym(nvrtc, "MinimalNvrtcTakes"))(
      std::atoi(std::getenv("FIND_TEST_MILLISECONDS")));
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), kOk);
  double most_seconds =
      1e9;  // the first Find waits for the compiler's first run, whatever it takes
  for (Geometry geometry : Problems()) {
    for (const Direction direction : kDirections) {
      geometry.direction = direction;
      FindAndRun(Convolution(geometry), handle, most_seconds);
      most_seconds = std::atof(std::getenv("FIND_TEST_MOST_SECONDS"));
    }
  }
  EXPECT_EQ(cudnnDestroy(handle), kOk);
}

// Find compiles for small problems only what the best algorithm of each runs: a kernel, and one
// that adds slices.
TEST(FindBounded, CompilesWhatRunsAndNothingInASecondProcess) {
  constexpr int kFinds = 9;
  FindIn({.cache = "off", .mode = "off"});  // does not search
  const int run = KernelsIn("off");
  ASSERT_GE(run, kFinds);
  EXPECT_LE(run, 2 * kFinds);
  FindIn({.cache = "cold"});
  EXPECT_EQ(KernelsIn("cold"), run);
  EXPECT_EQ(RecordsIn("cold", "conv"), 0);
  FindIn({.cache = "cold"});
  EXPECT_EQ(KernelsIn("cold"), run) << "the disk has the kernels";
}

TEST(FindBounded, DISABLED_WithoutACompiler) {
  unsetenv("KILN_TEST_NVRTC");
  setenv("KILN_NVRTC", "/nowhere/libnvrtc.so", 1);
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), kOk);
  const auto runs = [&] {
    bool one_does = false;
    for (const Perf& perf : Convolution(Problems()[0]).Find(handle)) one_does |= perf.status == kOk;
    return one_does;
  };
  // On a busy machine a Find may end before the compiler was looked for.
  bool is_told = false;
  for (int i = 0; i < 50 && !is_told; ++i) is_told = !runs();
  EXPECT_TRUE(is_told);
  EXPECT_EQ(cudnnDestroy(handle), kOk);
}

// An algorithm that failed to compile is not said to run.
TEST(FindBounded, TellsWhatCannotBeCompiled) {
  FindIn({.cache = "no_compiler"}, "WithoutACompiler");
}

// A kernel takes 2 s, and a process that waited for one would take longer than the most here.
TEST(FindBounded, DoesNotWaitForSlowCompilers) {
  FindIn({.cache = "slow", .milliseconds = "2000", .most_seconds = "1.8"});
  EXPECT_GE(KernelsIn("slow"), 9) << "what runs was compiled all the same";
}

// A search is over when its time is, and a busy machine may leave it none: it is seen in one of
// several processes, each with an empty cache of kernels where `is_cold`.
int RecordsOfOneOf(const Run& run, bool is_cold, const std::string& work = "") {
  for (int attempt = 0; attempt < 8; ++attempt) {
    Run again = run;
    if (is_cold) again.cache += std::to_string(attempt);
    FindIn(again);
    if (const int records = RecordsIn(again.cache, work); records > 0) return records;
  }
  return 0;
}

// Small problems are searched where compiling takes no time, and then where the disk has what that
// compiled: only what the fastest runs beside it may be new.
TEST(FindBounded, SearchesWhatIsOnDisk) {
  EXPECT_GT(RecordsOfOneOf({.cache = "fast", .milliseconds = "0"}, true), 0);
  FindIn({.cache = "disk", .milliseconds = "0"});
  EXPECT_GT(RecordsOfOneOf({.cache = "disk"}, false), 0);
}

// Compilers as slow as this leave time to search one of the three groups.
TEST(FindBounded, SearchesTheConvolutionBeforeItsCopies) {
  EXPECT_GT(RecordsOfOneOf({.cache = "copied", .milliseconds = "400", .problems = "copied"}, true,
                           "conv"),
            0);
}

TEST(FindBounded, SearchesLargeProblems) {
  FindIn({.cache = "large_off", .mode = "off", .problems = "large"});
  FindIn({.cache = "large", .problems = "large"});
  EXPECT_GT(KernelsIn("large"), KernelsIn("large_off"));
  EXPECT_GT(RecordsIn("large"), 0);
}

}  // namespace
}  // namespace kiln::api
