// A driver that is missing, wrong or a stub is a sentence, never a crash.
#include "runtime/cuda/driver.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace kiln::runtime {
namespace {

TEST(DriverTest, AMissingFileIsNamedWithAdvice) {
  auto driver = OpenDriver("/nowhere/libcuda.so.1");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), Code::kPrerequisiteMissing);
  for (const char* part : {"/nowhere/libcuda.so.1", "Install", "KILN_LIBCUDA", "KILN_DEVICE=cpu"}) {
    EXPECT_NE(driver.status().message().find(part), std::string::npos) << driver.status().message();
  }
}

TEST(DriverTest, ALibraryThatIsNoDriverIsNamedWithTheFunction) {
  auto driver = OpenDriver("libm.so.6");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), Code::kIncompatibleDriver);
  EXPECT_NE(driver.status().message().find("libm.so.6"), std::string::npos);
  EXPECT_NE(driver.status().message().find("has no function cu"), std::string::npos);
}

TEST(DriverTest, TheToolkitsStubIsRecognised) {
  const char* stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (::access(stub, R_OK) != 0) GTEST_SKIP() << "no " << stub;
  auto driver = OpenDriver(stub);
  ASSERT_FALSE(driver.ok());
  EXPECT_NE(driver.status().message().find(stub), std::string::npos) << driver.status().message();
}

TEST(DriverTest, AResultWithoutADriverIsANumber) {
  EXPECT_EQ(Driver().Describe(700), "CUDA error 700");
  EXPECT_TRUE(Driver().Check(kCuSuccess, "cuInit").ok());
  EXPECT_EQ(Driver().Check(700, "cuLaunchKernel").message(), "cuLaunchKernel: CUDA error 700");
}

}  // namespace
}  // namespace kiln::runtime
