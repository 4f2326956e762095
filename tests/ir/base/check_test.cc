// ir/base/check.h: what a failed check says, and how it ends with and without KILN_ABORT_ON_CHECK.
#include "ir/base/check.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "ir/base/env.h"
#include "ir/base/result.h"

namespace kiln {
namespace {

class CheckTest : public ::testing::Test {
 protected:
  void AbortOnCheck(const char* value) {
    setenv("KILN_ABORT_ON_CHECK", value, 1);
    ResetEnvForTest();
  }
};

std::string MessageOf(void (*fails)()) {
  try {
    fails();
  } catch (const CheckFailure& failure) {
    return failure.what();
  }
  return "nothing was thrown";
}

TEST_F(CheckTest, SaysPlaceConditionAndValues) {
  AbortOnCheck("0");
  const std::string message = MessageOf([] { CHECK(1 + 1 == 3, "sum is {}", 1 + 1); });
  EXPECT_NE(message.find("check_test.cc:"), std::string::npos) << message;
  EXPECT_NE(message.find("check failed: 1 + 1 == 3: sum is 2"), std::string::npos) << message;
}

TEST_F(CheckTest, NeedsNoDetail) {
  AbortOnCheck("0");
  const std::string message = MessageOf([] { CHECK(false); });
  EXPECT_TRUE(message.ends_with("check failed: false")) << message;
}

TEST_F(CheckTest, EvaluatesItsConditionOnce) {
  int evaluations = 0;
  CHECK(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
}

TEST_F(CheckTest, StandsAloneUnderAnIf) {
  AbortOnCheck("0");
  bool reached_else = false;
  if (false)
    CHECK(false);
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST_F(CheckTest, AResultMadeFromAnOkStatusIsABugOfOurs) {
  AbortOnCheck("0");
  EXPECT_THROW(Result<int>{Status()}, CheckFailure);
}

TEST_F(CheckTest, AbortsWhereTheEnvironmentAsksForIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  AbortOnCheck("1");
  EXPECT_DEATH(CHECK(false, "value {}", 7), "check failed: false: value 7");
}

}  // namespace
}  // namespace kiln
