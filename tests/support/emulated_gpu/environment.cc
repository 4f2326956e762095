// Tests that run on the emulated GPU are skipped as a whole, with the reason, where there is no
// NVRTC to make PTX. Linked into tests that say nothing of it themselves.
#include <gtest/gtest.h>

#include "runtime/cuda/nvrtc.h"

namespace {

class NeedsNvrtc : public ::testing::Environment {
  void SetUp() override {
    if (const auto nvrtc = kiln::runtime::ProcessNvrtc(); !nvrtc.ok())
      GTEST_SKIP() << nvrtc.status().message();
  }
};

[[maybe_unused]] const ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new NeedsNvrtc);

}  // namespace
