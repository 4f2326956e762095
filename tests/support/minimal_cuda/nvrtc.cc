// An NVRTC that compiles nothing: every program becomes a few bytes, which the driver of driver.cc
// loads. So that a test may make plans by the hundred on a machine without CUDA. It takes no time,
// unless a test asks for some; then, as in NVIDIA's front end, one thread after the other.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <mutex>
#include <thread>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
constexpr char kCubin[] = "no cubin";
constexpr int kArchs[] = {80, 90, 100};
std::atomic<int> milliseconds = 0;
}  // namespace

// For tests: how long a program takes from now on.
EXPORT void MinimalNvrtcTakes(int now) { milliseconds = now; }

EXPORT const char* nvrtcGetErrorString(int) { return "no error"; }
EXPORT int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
EXPORT int nvrtcGetNumSupportedArchs(int* count) { return *count = std::size(kArchs), 0; }
EXPORT int nvrtcGetSupportedArchs(int* archs) { return std::ranges::copy(kArchs, archs), 0; }
EXPORT int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*,
                              const char* const*) {
  static int made;
  return *program = &made, 0;
}
EXPORT int nvrtcDestroyProgram(void** program) { return *program = nullptr, 0; }
EXPORT int nvrtcCompileProgram(void*, int, const char* const*) {
  static std::mutex front_end;
  const std::lock_guard lock(front_end);
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return 0;
}
EXPORT int nvrtcGetProgramLogSize(void*, size_t* size) { return *size = 1, 0; }
EXPORT int nvrtcGetProgramLog(void*, char* log) { return *log = '\0', 0; }
EXPORT int nvrtcGetPTXSize(void*, size_t* size) { return *size = sizeof kCubin, 0; }
EXPORT int nvrtcGetPTX(void*, char* text) {
  return std::memcpy(text, kCubin, sizeof kCubin) == nullptr;
}
EXPORT int nvrtcGetCUBINSize(void*, size_t* size) { return *size = sizeof kCubin, 0; }
EXPORT int nvrtcGetCUBIN(void*, char* cubin) {
  return std::memcpy(cubin, kCubin, sizeof kCubin) == nullptr;
}
