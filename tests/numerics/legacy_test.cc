// Compute calls of the legacy API against the oracle, on ours and, on a GPU, on NVIDIA's library
// where it is installed, which checks the test itself. legacy_cpu_test and legacy_gpu_test are both
// this program. KILN_TEST_FILTER=… picks cases by a part of their names.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/numerics/legacy_cases.h"
#include "tests/support/nvidia_library.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

struct Library {
  std::string name, path;
  void* handle = nullptr;
};

// The cases that a library gets wrong, in words.
std::vector<std::string> RunOn(const Library& library, Device& device, bool is_ours,
                               const std::vector<LegacyCase>& cases) {
  std::vector<std::string> errors;
  LegacyClient root(library.handle);
  cudnnHandle_t handle = nullptr;
  KILN_CALL(root, cudnnCreate, &handle);
  KILN_CALL(root, cudnnSetStream, handle, static_cast<cudaStream_t>(device.stream()));
  for (const LegacyCase& c : cases) {
    if (!is_ours && c.not_nvidia) continue;
    LegacyClient client(library.handle);
    const std::string error = c.run({client, device, handle});
    if (!error.empty()) errors.push_back(library.name + ": " + c.name + ": " + error);
  }
  KILN_CALL(root, cudnnDestroy, handle);
  return errors;
}

TEST(Legacy, IsWhatTheReferenceSays) {
  const TestOptions& options = TestOptions::Get();
  const std::vector<LegacyCase> cases = AllLegacyCases(options.filter);
  EXPECT_GT(cases.size(), options.filter.empty() ? 450u : 0u);
  std::string error;
  const std::unique_ptr<Device> device = OpenTestDevice(&error);
  ASSERT_NE(device, nullptr) << error;
  void* const ours = dlopen(options.cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(ours, nullptr) << dlerror();
  for (const std::string& text : RunOn({"ours", options.cudnn, ours}, *device, true, cases))
    ADD_FAILURE() << text;
  if (!device->is_gpu()) return;
  const std::string path = NvidiaLibraryPath(options.nvidia);
  if (path.empty()) return;
  LoadPartsBeside(path);
  void* const theirs = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (theirs == nullptr || theirs == ours) return;
  // Differences of NVIDIA's are told, and are no failure of ours.
  for (const std::string& text : RunOn({"NVIDIA", path, theirs}, *device, false, cases))
    std::printf("%s\n", text.c_str());
}

// Microseconds of the host for a call that was made before: the least mean of batches that the
// device's queue can hold.
double HostMicroseconds(Device& device, const std::function<cudnnStatus_t()>& call) {
  constexpr int kBatches = 20, kCalls = 100;
  double least = 1e9;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) {
      if (call() != CUDNN_STATUS_SUCCESS) return 1e9;
    }
    const std::chrono::duration<double, std::micro> passed =
        std::chrono::steady_clock::now() - start;
    least = std::min(least, passed.count() / kCalls);
    device.Synchronize();
  }
  return least;
}

double HostTimeOn(const Library& library, Device& device) {
  LegacyClient client(library.handle);
  cudnnHandle_t handle = nullptr;
  KILN_CALL(client, cudnnCreate, &handle);
  KILN_CALL(client, cudnnSetStream, handle, static_cast<cudaStream_t>(device.stream()));
  auto relu = client.New<cudnnActivationDescriptor_t>("Activation");
  KILN_CALL(client, cudnnSetActivationDescriptor, relu, CUDNN_ACTIVATION_RELU,
            CUDNN_NOT_PROPAGATE_NAN, 0.0);
  const LegacyTensor x(client, device, {}, {2, 3, 4, 5}, "uniform", 1),
      y(client, device, {}, {2, 3, 4, 5}, "uniform", 2);
  const float one = 1, zero = 0;
  const auto forward = reinterpret_cast<decltype(&cudnnActivationForward)>(
      dlsym(library.handle, "cudnnActivationForward"));
  const double time = HostMicroseconds(device, [&] {
    return forward(handle, relu, &one, x.desc(), x.data(), &zero, y.desc(), y.data());
  });
  KILN_CALL(client, cudnnDestroy, handle);
  std::printf("%s: %.2f us of the host for a repeated cudnnActivationForward\n",
              library.name.c_str(), time);
  return time;
}

TEST(Legacy, ARepeatedCallIsALookUpAndALaunch) {
  const TestOptions& options = TestOptions::Get();
  std::string error;
  const std::unique_ptr<Device> device = OpenTestDevice(&error);
  ASSERT_NE(device, nullptr) << error;
  void* const ours = dlopen(options.cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(ours, nullptr) << dlerror();
  // The bar is 3 us; machines that are busy with other things get more.
  EXPECT_LT(HostTimeOn({"ours", options.cudnn, ours}, *device), 50);
  const std::string path = device->is_gpu() ? NvidiaLibraryPath(options.nvidia) : "";
  if (path.empty()) return;
  LoadPartsBeside(path);
  void* const theirs = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (theirs != nullptr && theirs != ours) HostTimeOn({"NVIDIA", path, theirs}, *device);
}

}  // namespace
}  // namespace kiln::testing
