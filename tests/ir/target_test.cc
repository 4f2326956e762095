// ir/target.h: known architectures, the CPU, and the sentence about an unknown one.
#include "ir/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "ir/base/env.h"

namespace kiln {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Target Known(std::string_view arch) {
  Result<Target> target = TargetFromArch(arch);
  EXPECT_TRUE(target.ok()) << target.status().message();
  return *std::move(target);
}

TEST(Target, EveryGpuArchKeepsItsNameAndHasItsVersion) {
  const std::pair<const char*, int> kArchs[] = {
      {"sm_70", 70},    {"sm_75", 75},    {"sm_80", 80},   {"sm_86", 86},
      {"sm_89", 89},    {"sm_90", 90},    {"sm_90a", 90},  {"sm_100", 100},
      {"sm_100a", 100}, {"sm_103a", 103}, {"sm_120", 120}, {"sm_120a", 120},
  };
  for (const auto& [arch, version] : kArchs) {
    const Target target = Known(arch);
    EXPECT_TRUE(target.is_cuda());
    EXPECT_EQ(target.arch, arch);
    EXPECT_EQ(target.sm_version, version);
    EXPECT_GE(target.multiprocessors, 40) << arch;
    EXPECT_GE(target.shared_bytes_per_block, 65536) << arch;
    EXPECT_GE(target.l2_bytes, 4 << 20) << arch;
    EXPECT_FALSE(target.name.empty()) << arch;
  }
}

TEST(Target, HopperIsTheDefault) {
  const Target hopper = Known("sm_90a");
  const Target defaults;
  EXPECT_EQ(hopper.multiprocessors, defaults.multiprocessors);
  EXPECT_EQ(hopper.shared_bytes_per_block, defaults.shared_bytes_per_block);
  EXPECT_EQ(hopper.l2_bytes, defaults.l2_bytes);
}

TEST(Target, CpuHasTheThreadsThatTheEnvironmentAsksFor) {
  setenv("KILN_CPU_THREADS", "3", 1);
  ResetEnvForTest();
  const Target cpu = Known("cpu");
  EXPECT_FALSE(cpu.is_cuda());
  EXPECT_EQ(cpu.arch, "native");
  EXPECT_EQ(cpu.sm_version, 0);
  EXPECT_EQ(cpu.multiprocessors, 3);
  unsetenv("KILN_CPU_THREADS");
  ResetEnvForTest();
  EXPECT_GE(Known("cpu").multiprocessors, 1);
}

TEST(Target, MinimalLaunchComesFromTheEnvironment) {
  EXPECT_FALSE(Known("sm_80").minimal_launch);
  setenv("KILN_LAUNCH", "minimal", 1);
  ResetEnvForTest();
  EXPECT_TRUE(Known("sm_80").minimal_launch);
  unsetenv("KILN_LAUNCH");
  ResetEnvForTest();
}

TEST(Target, KinAreOtherBoardsOfTheChip) {
  Target target = Known("sm_90a");
  const std::vector<std::string_view> kin = KinOf(target);
  EXPECT_THAT(kin, testing::Contains("NVIDIA H200"));
  EXPECT_THAT(kin, testing::Not(testing::Contains(target.name)));
  target.name = "NVIDIA H200";
  EXPECT_THAT(KinOf(target), testing::Contains("NVIDIA H100 80GB HBM3"));
  EXPECT_THAT(KinOf(Known("sm_80")), testing::IsEmpty());
}

TEST(Target, AnUnknownArchListsTheKnownOnes) {
  for (const char* arch : {"sm_91", "SM_90", "", "sm_90aa", "90"}) {
    const Result<Target> target = TargetFromArch(arch);
    ASSERT_FALSE(target.ok()) << arch;
    EXPECT_EQ(target.status().code(), Code::kInvalidValue);
    EXPECT_THAT(target.status().message(),
                AllOf(HasSubstr(arch), HasSubstr("sm_90a"), HasSubstr("cpu")));
  }
}

}  // namespace
}  // namespace kiln
