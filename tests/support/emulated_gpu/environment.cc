// Environment that tests on the emulated GPU have in common, by being linked with this: a kernel
// cache of their own, since what it would keep is PTX, and a skip with the reason where there is no
// NVRTC to make it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/cuda/nvrtc.h"

namespace {

class OnEmulatedGpu : public ::testing::Environment {
 public:
  OnEmulatedGpu() {
    const char* const folder = std::getenv("TEST_TMPDIR");
    const std::string cache = std::string(folder != nullptr ? folder : "/tmp") + "/emulated_cache";
    setenv("KILN_CACHE_DIR", cache.c_str(), 1);
  }
  void SetUp() override {
    if (const auto nvrtc = kiln::runtime::ProcessNvrtc(); !nvrtc.ok())
      GTEST_SKIP() << nvrtc.status().message();
  }
};

[[maybe_unused]] const ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new OnEmulatedGpu);

}  // namespace
