// KILN_LAUNCH=minimal, and the promise to allocate nothing: every call of legacy_test's cases, on a
// driver that refuses all but cuModuleLoadData, cuModuleGetFunction, cuLaunchKernel and questions.
// No kernel runs, so that results are not looked at; statuses, launches and refused calls are.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/numerics/legacy_cases.h"
#include "tests/support/minimal_cuda/driver.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

template <class F>
F* Symbol(void* library, const char* name) {
  F* const function = reinterpret_cast<F*>(dlsym(library, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

// The functions of api/spec/legacy.tsv that compute.
std::set<std::string> ComputeFunctions() {
  std::ifstream table("api/spec/legacy.tsv");
  EXPECT_TRUE(table);
  std::set<std::string> functions;
  for (std::string line; std::getline(table, line);) {
    std::istringstream cells(line);
    std::string function, effect;
    cells >> function >> effect;
    if (effect == "compute") functions.insert(function);
  }
  return functions;
}

TEST(LegacyMinimal, NothingButLoadsAndLaunches) {
  const TestOptions& options = TestOptions::Get();
  void* const driver = dlopen(std::getenv("KILN_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  const auto violations = Symbol<decltype(MinimalCudaViolations)>(driver, "MinimalCudaViolations");
  const auto launches = Symbol<decltype(MinimalCudaLaunches)>(driver, "MinimalCudaLaunches");
  // What this compiler makes is for no cache that others read.
  const char* const folder = std::getenv("TEST_TMPDIR");
  setenv("KILN_CACHE_DIR", (std::string(folder ? folder : "/tmp") + "/minimal").c_str(), 1);
  void* const ours = dlopen(options.cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(ours, nullptr) << dlerror();
  const std::unique_ptr<Device> memory = OpenHostDevice();
  LegacyClient root(ours);
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(KILN_CALL(root, cudnnCreate, &handle), CUDNN_STATUS_SUCCESS);
  std::set<std::string> called;
  for (const LegacyCase& c : AllLegacyCases(options.filter)) {
    if (c.name.starts_with("misuse/")) continue;
    SCOPED_TRACE(c.name);
    LegacyClient client(ours);
    c.run({client, *memory, handle});
    char sentence[512] = "";
    client.LastError(sentence, sizeof sentence);
    EXPECT_EQ(client.failures(), 0) << sentence;
    EXPECT_STREQ(violations(), "");
    EXPECT_GT(launches(), 0) << "nothing was computed";
    called.insert(client.called().begin(), client.called().end());
  }
  EXPECT_EQ(KILN_CALL(root, cudnnDestroy, handle), CUDNN_STATUS_SUCCESS);
  EXPECT_STREQ(violations(), "");
  if (!options.filter.empty()) return;
  for (const std::string& function : ComputeFunctions())
    EXPECT_TRUE(called.contains(function)) << function << " is called by no case";
}

// What the driver refuses is noticed: with the whole driver's profile a plan needs more.
TEST(LegacyMinimal, TheDriverRefuses) {
  void* const driver = dlopen(std::getenv("KILN_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  EXPECT_NE(Symbol<int()>(driver, "cuMemAlloc_v2")(), 0);
  EXPECT_STREQ(Symbol<decltype(MinimalCudaViolations)>(driver, "MinimalCudaViolations")(),
               "cuMemAlloc_v2 ");
}

}  // namespace
}  // namespace kiln::testing
