// A test that brings an NVRTC names it in KILN_TEST_NVRTC: `bazel test` passes on the caller's
// KILN_NVRTC (.bazelrc), which counts for more than a target's own.
#include <cstdlib>

namespace {
[[maybe_unused]] const bool is_set = [] {
  const char* const own = std::getenv("KILN_TEST_NVRTC");
  return own != nullptr && setenv("KILN_NVRTC", own, 1) == 0;
}();
}  // namespace
