// A test that brings an NVRTC names it in KILN_TEST_NVRTC: `bazel test` passes on the caller's
// KILN_NVRTC (.bazelrc), which counts for more than a target's own. An NVRTC that stands before the
// system's (tests/support/emulated_gpu) finds the caller's in EMULATED_GPU_NVRTC.
#include <cstdlib>

namespace {
[[maybe_unused]] const bool is_set = [] {
  const char* const own = std::getenv("KILN_TEST_NVRTC");
  const char* const callers = std::getenv("KILN_NVRTC");
  if (own != nullptr && callers != nullptr) setenv("EMULATED_GPU_NVRTC", callers, 0);
  return own != nullptr && setenv("KILN_NVRTC", own, 1) == 0;
}();
}  // namespace
