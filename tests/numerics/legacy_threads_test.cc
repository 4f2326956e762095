// The cases of legacy_test from many threads at once, against the oracle: each with a handle and a
// stream of its own, and all with one handle, of which cuDNN asks that its calls do not overlap.
// KILN_TEST_FILTER=… picks cases by a part of their names.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "tests/numerics/legacy_cases.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

// As many as there are cores to compile on, for two have each case: an even number.
size_t ThreadCount() {
  const size_t cores = std::thread::hardware_concurrency();
  return std::clamp<size_t>(cores / 2 * 2, 6, 16);
}

class LegacyThreads : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ours_ = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(ours_, nullptr) << dlerror();
    // Misuse is quiet about its results, and Find measures what others disturb.
    cases_ = AllLegacyCases(TestOptions::Get().filter);
    std::erase_if(cases_, [](const LegacyCase& c) { return c.name.starts_with("misuse/"); });
    ASSERT_GT(cases_.size(), ThreadCount());
  }

  static cudnnHandle_t Handle(LegacyClient& client, const Device& device) {
    cudnnHandle_t handle = nullptr;
    KILN_CALL(client, cudnnCreate, &handle);
    KILN_CALL(client, cudnnSetStream, handle, static_cast<cudaStream_t>(device.stream()));
    return handle;
  }
  static void Run(const LegacyCase& c, Device& device, cudnnHandle_t handle) {
    LegacyClient client(ours_);
    EXPECT_EQ(c.run({client, device, handle}), "") << c.name;
  }
  // body(thread) in all of them.
  template <class Body>
  static void InThreads(Body&& body) {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < ThreadCount(); ++t) threads.emplace_back([&, t] { body(t); });
    for (std::thread& thread : threads) thread.join();
  }

  inline static void* ours_ = nullptr;
  inline static std::vector<LegacyCase> cases_;
};

// Two threads have each case, at about the same time: plans are made at once, and used at once.
TEST_F(LegacyThreads, EachWithAHandle) {
  InThreads([](size_t thread) {
    std::string error;
    const std::unique_ptr<Device> device = OpenTestDevice(&error);
    ASSERT_NE(device, nullptr) << error;
    LegacyClient root(ours_);
    const cudnnHandle_t handle = Handle(root, *device);
    const size_t shares = ThreadCount() / 2;
    for (size_t i = thread % shares; i < cases_.size(); i += shares)
      Run(cases_[i], *device, handle);
    EXPECT_EQ(KILN_CALL(root, cudnnDestroy, handle), CUDNN_STATUS_SUCCESS);
  });
}

TEST_F(LegacyThreads, AllWithOneHandle) {
  std::string error;
  const std::unique_ptr<Device> device = OpenTestDevice(&error);
  ASSERT_NE(device, nullptr) << error;
  LegacyClient root(ours_);
  const cudnnHandle_t handle = Handle(root, *device);
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  InThreads([&](size_t) {
    if (device->is_gpu()) static_cast<GpuDevice&>(*device).BindThread();
    for (size_t i = next++; i < cases_.size(); i = next++) {
      const std::lock_guard lock(mutex);
      Run(cases_[i], *device, handle);
    }
  });
  EXPECT_EQ(KILN_CALL(root, cudnnDestroy, handle), CUDNN_STATUS_SUCCESS);
}

}  // namespace
}  // namespace kiln::testing
