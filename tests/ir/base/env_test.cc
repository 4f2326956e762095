// ir/base/env.h: defaults, legal and illegal values, and the sentences about mistakes.
#include "ir/base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
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
  EXPECT_EQ(EnvInt(Env::kCacheSizeMb), 2048);
  EXPECT_FALSE(EnvFlag(Env::kWhy));
  EXPECT_THAT(EnvErrors(), IsEmpty());
}

TEST_F(EnvTest, ReadsLegalValues) {
  Set("KILN_DEVICE", "cpu");
  Set("KILN_WHY", "1");
  Set("KILN_CPU_THREADS", "3");
  EXPECT_EQ(GetEnv(Env::kDevice), "cpu");
  EXPECT_TRUE(EnvFlag(Env::kWhy));
  EXPECT_EQ(EnvInt(Env::kCpuThreads), 3);
  EXPECT_THAT(EnvErrors(), IsEmpty());
}

TEST_F(EnvTest, AnIllegalValueCountsAsTheDefaultAndIsReported) {
  for (const char* value : {"gpu", "", "auto|cuda", "CPU", "cp"}) {
    Set("KILN_DEVICE", value);
    EXPECT_EQ(GetEnv(Env::kDevice), "auto") << value;
    EXPECT_THAT(EnvErrors(),
                ElementsAre(AllOf(HasSubstr("KILN_DEVICE"), HasSubstr("auto|cuda|cpu"))))
        << value;
  }
}

TEST_F(EnvTest, AnUnknownVariableIsReportedWithTheKnownOnes) {
  Set("KILN_DEVISE", "cpu");
  EXPECT_THAT(EnvErrors(), ElementsAre(AllOf(HasSubstr("KILN_DEVISE"), HasSubstr("KILN_DEVICE"))));
}

TEST_F(EnvTest, ErrorsComeInTheOrderOfTheNames) {
  Set("KILN_ZZZ", "1");
  Set("KILN_AAA", "1");
  EXPECT_THAT(EnvErrors(), ElementsAre(HasSubstr("KILN_AAA"), HasSubstr("KILN_ZZZ")));
}

TEST_F(EnvTest, NoNumberCountsAsTheDefault) {
  for (const char* value : {"many", "12x", "", " 12", "99999999999999999999"}) {
    Set("KILN_CACHE_SIZE_MB", value);
    EXPECT_EQ(EnvInt(Env::kCacheSizeMb), 2048) << value;
  }
  Set("KILN_CACHE_SIZE_MB", "-1");
  EXPECT_EQ(EnvInt(Env::kCacheSizeMb), -1);
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
  EXPECT_THAT(EnvErrors(), IsEmpty());
}

}  // namespace
}  // namespace kiln
