// ir/base/env.h: defaults, legal and illegal values, and the sentences about mistakes.
#include "ir/base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <set>
#include <string>

namespace kiln {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EnvTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const EnvRow& row : EnvRows()) unsetenv(row.variable);
    ResetEnvForTest();
  }
  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    ResetEnvForTest();
  }
  void Set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.insert(name);
    ResetEnvForTest();
  }

 private:
  std::set<std::string> set_;
};

TEST_F(EnvTest, GivesDefaultsWhereNothingIsSet) {
  EXPECT_EQ(GetEnv(Env::kDevice), "auto");
  EXPECT_EQ(GetEnv(Env::kCacheDir), "");
  EXPECT_EQ(EnvInt(Env::kCacheSizeMb), int64_t{2048} << 20);
  EXPECT_FALSE(EnvFlag(Env::kWhy));
  EXPECT_THAT(EnvWarnings(), IsEmpty());
}

TEST_F(EnvTest, ReadsLegalValues) {
  Set("KILN_DEVICE", "cpu");
  Set("KILN_WHY", "1");
  Set("KILN_CPU_THREADS", "3");
  EXPECT_EQ(GetEnv(Env::kDevice), "cpu");
  EXPECT_TRUE(EnvFlag(Env::kWhy));
  EXPECT_EQ(EnvInt(Env::kCpuThreads), 3);
  EXPECT_THAT(EnvWarnings(), IsEmpty());
}

TEST_F(EnvTest, AMinorVersionIsOneOfItsMajor) {
  const auto default_minor = EnvInt(Env::kCudnnVersion);
  for (const int minor : {0, 9, 28}) {
    Set("KILN_CUDNN_VERSION", "9." + std::to_string(minor));
    EXPECT_EQ(EnvInt(Env::kCudnnVersion), minor);
    EXPECT_THAT(EnvWarnings(), IsEmpty());
  }
  for (const char* value : {"9.29", "8.9", "9", "9.", "9.-1", "9.+1", "9.07", "9.1.0", "28", ""}) {
    Set("KILN_CUDNN_VERSION", value);
    EXPECT_EQ(EnvInt(Env::kCudnnVersion), default_minor) << value;
    EXPECT_THAT(EnvWarnings(), ElementsAre(AllOf(HasSubstr("KILN_CUDNN_VERSION"),
                                                 HasSubstr("legal are 9.0 to 9.28"))));
  }
}

TEST_F(EnvTest, AnIllegalValueCountsAsTheDefaultAndIsReported) {
  for (const char* value : {"gpu", "", "auto|cuda", "CPU", "cp"}) {
    Set("KILN_DEVICE", value);
    EXPECT_EQ(GetEnv(Env::kDevice), "auto") << value;
    EXPECT_THAT(EnvWarnings(),
                ElementsAre(AllOf(HasSubstr("KILN_DEVICE"), HasSubstr("auto|cuda|cpu"))))
        << value;
  }
}

TEST_F(EnvTest, AnUnknownVariableIsReported) {
  Set("KILN_DEVISE", "cpu");
  EXPECT_THAT(EnvWarnings(),
              ElementsAre(AllOf(HasSubstr("KILN_DEVISE"), HasSubstr("KILN_DEVICE"))));
}

TEST_F(EnvTest, ErrorsComeInTheOrderOfTheNames) {
  Set("KILN_ZZZ", "1");
  Set("KILN_AAA", "1");
  EXPECT_THAT(EnvWarnings(), ElementsAre(HasSubstr("KILN_AAA"), HasSubstr("KILN_ZZZ")));
}

struct NumberCase {
  const char* variable;
  Env which;
  const char* text;
  int64_t value;
};

TEST_F(EnvTest, ReadsNumbersWithTheirUnits) {
  constexpr int64_t kMega = int64_t{1} << 20, kGiga = int64_t{1} << 30;
  for (const NumberCase& c : std::initializer_list<NumberCase>{
           {"KILN_CACHE_SIZE_MB", Env::kCacheSizeMb, "1", kMega},
           {"KILN_CACHE_SIZE_MB", Env::kCacheSizeMb, "0", 0},
           {"KILN_CACHE_SIZE_MB", Env::kCacheSizeMb, "2GB", 2 * kGiga},
           {"KILN_CACHE_SIZE_MB", Env::kCacheSizeMb, "2 gib", 2 * kGiga},
           {"KILN_CACHE_SIZE_MB", Env::kCacheSizeMb, "1.5G", 3 * kGiga / 2},
           {"KILN_CACHE_SIZE_MB", Env::kCacheSizeMb, "512KB", kMega / 2},
           {"KILN_CACHE_SIZE_MB", Env::kCacheSizeMb, "1024T", int64_t{1} << 50},
           {"KILN_CACHE_SIZE_MB", Env::kCacheSizeMb, "-1", -1},
           {"KILN_WORKSPACE_LIMIT", Env::kWorkspaceLimit, "4096", 4096},
           {"KILN_WORKSPACE_LIMIT", Env::kWorkspaceLimit, "64MB", 64 * kMega},
           {"KILN_WORKSPACE_LIMIT", Env::kWorkspaceLimit, "-1", -1},
           {"KILN_CPU_THREADS", Env::kCpuThreads, "1000000", 1000000},
           {"KILN_NVRTC_COPIES", Env::kNvrtcCopies, "1", 1}}) {
    Set(c.variable, c.text);
    EXPECT_EQ(EnvInt(c.which), c.value) << c.variable << "=" << c.text;
    EXPECT_THAT(EnvWarnings(), IsEmpty()) << c.variable << "=" << c.text;
  }
}

// Whatever is no number of the variable's range counts as the default, and is told.
TEST_F(EnvTest, ANumberOutOfItsRangeCountsAsTheDefaultAndIsReported) {
  const struct {
    const char* variable;
    Env which;
    int64_t fallback;
    const char* legal;
  } numbers[] = {
      {"KILN_CACHE_SIZE_MB", Env::kCacheSizeMb, int64_t{2048} << 20, "sizes in MB"},
      {"KILN_WORKSPACE_LIMIT", Env::kWorkspaceLimit, -1, "sizes in B"},
      {"KILN_CPU_THREADS", Env::kCpuThreads, 0, "whole numbers from 0 to 1048576"},
      {"KILN_NVRTC_COPIES", Env::kNvrtcCopies, 2, "whole numbers from 1 to 2"},
  };
  for (const auto& number : numbers) {
    for (const char* value : {"abc", "", " ", "1e3", "-5", "-2", "12x", " 12", "+1", "0x10", "1..5",
                              "1.", "1.2.3GB", "GB", "5 B B", "9999999999999999999999",
                              "99999999999999999", "9223372036854775807TB", "1,000"}) {
      Set(number.variable, value);
      EXPECT_EQ(EnvInt(number.which), number.fallback) << number.variable << "=" << value;
      EXPECT_THAT(EnvWarnings(),
                  ElementsAre(AllOf(HasSubstr(number.variable), HasSubstr("is ignored"),
                                    HasSubstr(number.legal))))
          << value;
      unsetenv(number.variable);
    }
  }
}

// The first two emptied the cache before there were ranges.
TEST_F(EnvTest, ACacheOfMoreThanThereIsIsRefused) {
  for (const char* value : {"99999999999999", "8796093022208"}) {
    Set("KILN_CACHE_SIZE_MB", value);
    EXPECT_EQ(EnvInt(Env::kCacheSizeMb), int64_t{2048} << 20) << value;
    EXPECT_THAT(EnvWarnings(), ElementsAre(HasSubstr("-1 for any"))) << value;
  }
}

TEST_F(EnvTest, WarningsNameTheNearest) {
  const struct {
    const char *variable, *value, *sentence;
  } cases[] = {
      {"KILN_DEVISE", "cpu", "the nearest is KILN_DEVICE"},
      {"KILN_THREADS", "4", "the nearest is KILN_CPU_THREADS"},
      {"KILN_CACHE_SIZE", "4", "the nearest is KILN_CACHE_SIZE_MB"},
      {"KILN_LOG_LEVEL", "info", "the nearest is KILN_LOG"},
      {"KILN_BUILD_NUMBER", "7", "docs/environment.md lists all"},
      {"KILN_", "7", "docs/environment.md lists all"},
      {"KILN_DEVICE", "gpu", "legal are auto|cuda|cpu; the default"},
      {"KILN_DEVICE", "CUDA", "the nearest is cuda"},
      {"KILN_LOG", "warning", "the nearest is warn"},
      {"KILN_TUNE", "on_miss", "the nearest is on-miss"},
  };
  for (const auto& c : cases) {
    Set(c.variable, c.value);
    EXPECT_THAT(EnvWarnings(), ElementsAre(HasSubstr(c.sentence))) << c.variable << "=" << c.value;
    unsetenv(c.variable);
  }
}

TEST_F(EnvTest, WithRaisedPrivilegesNoVariableCounts) {
  Set("KILN_DEVICE", "cpu");
  Set("KILN_CPU_PLUGIN", "/tmp/plugin.so");
  EXPECT_STREQ(ForeignEnv("KILN_CPU_PLUGIN"), "/tmp/plugin.so");
  SetPrivilegedForTest(true);
  EXPECT_EQ(GetEnv(Env::kDevice), "auto");
  EXPECT_EQ(GetEnv(Env::kCpuPlugin), "");
  EXPECT_EQ(ForeignEnv("PATH"), nullptr);
  EXPECT_THAT(EnvWarnings(),
              ElementsAre(HasSubstr("KILN_CPU_PLUGIN is ignored: this process has more"),
                          HasSubstr("KILN_DEVICE is ignored")));
  SetPrivilegedForTest(false);
  EXPECT_EQ(GetEnv(Env::kDevice), "cpu");
}

TEST_F(EnvTest, ReadsTheEnvironmentOnce) {
  const std::string& before = GetEnv(Env::kDevice);
  setenv("KILN_DEVICE", "cpu", 1);
  EXPECT_EQ(GetEnv(Env::kDevice), "auto");
  ResetEnvForTest();
  EXPECT_EQ(GetEnv(Env::kDevice), "cpu");
  EXPECT_EQ(before, "auto") << "a reference from before a reset must stay readable";
  unsetenv("KILN_DEVICE");
}

TEST_F(EnvTest, EveryDefaultIsLegalAndEveryNameIsOurs) {
  std::set<std::string> names;
  for (const EnvRow& row : EnvRows()) {
    // Switches of NVIDIA's library that a client may have set already keep their names.
    const std::string_view name = row.variable;
    EXPECT_TRUE(name.starts_with("KILN_") || name == "NVIDIA_TF32_OVERRIDE") << name;
    EXPECT_TRUE(names.insert(row.variable).second) << row.variable << " stands twice";
    EXPECT_NE(std::string_view(row.meaning), "") << row.variable;
    Set(row.variable, row.default_value);
  }
  EXPECT_THAT(EnvWarnings(), IsEmpty());
}

}  // namespace
}  // namespace kiln
