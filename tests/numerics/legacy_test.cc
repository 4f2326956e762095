// Compute calls of the legacy API against the oracle, on ours and, on a GPU, on NVIDIA's library
// where it is installed, which checks the test itself. legacy_cpu_test and legacy_gpu_test are both
// this program. KILN_TEST_FILTER=… picks cases by a part of their names.
#include <gtest/gtest.h>

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

std::vector<LegacyCase> AllCases(const std::string& filter) {
  std::vector<LegacyCase> all;
  for (const auto& family : {TensorOpCases(), ReductionCases(), ActivationCases(), PoolingCases()})
    all.insert(all.end(), family.begin(), family.end());
  std::erase_if(all, [&](const LegacyCase& c) { return c.name.find(filter) == std::string::npos; });
  return all;
}

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
  const std::vector<LegacyCase> cases = AllCases(options.filter);
  EXPECT_GT(cases.size(), options.filter.empty() ? 150u : 0u);
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

}  // namespace
}  // namespace kiln::testing
