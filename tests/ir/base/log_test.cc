// ir/base/log.h: levels of KILN_LOG on stderr, and the tap that cuDNN's callback hangs on.
#include "ir/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace kiln {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The level is read at the first line, so it is set before main.
[[maybe_unused]] const int kLevelIsSet = setenv("KILN_LOG", "warn", 1);

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { SetLogTap({}); }
  std::vector<std::string> tapped_;
};

TEST_F(LogTest, WritesItsLevelAndAbove) {
  ::testing::internal::CaptureStderr();
  LOG(kError, "first {}", 1);
  LOG(kWarn, "second");
  LOG(kInfo, "third");
  LOG(kTrace, "fourth");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("kiln"), HasSubstr("first 1"), HasSubstr("second"),
                    Not(HasSubstr("third")), Not(HasSubstr("fourth"))));
}

TEST_F(LogTest, ALineThatNobodyReadsIsNotFormatted) {
  int formatted = 0;
  LOG(kDebug, "{}", ++formatted);
  EXPECT_EQ(formatted, 0);
}

TEST_F(LogTest, BracesInALineAreKept) {
  ::testing::internal::CaptureStderr();
  LogLine(Severity::kError, "kernel { x = {}; }");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("kernel { x = {}; }"));
}

TEST_F(LogTest, ControlBytesOfALineAreEscapedButItsBreaksAreKept) {
  SetLogTap([this](Severity, std::string_view line) { tapped_.emplace_back(line); });
  ::testing::internal::CaptureStderr();
  LOG(kWarn, "tensor \x1b[2J:\nnext");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("tensor \\x1b[2J:\nnext"));
  EXPECT_THAT(tapped_, ElementsAre("tensor \\x1b[2J:\nnext"));
}

TEST_F(LogTest, ATapSeesInfoAndAboveButNotDebug) {
  SetLogTap([this](Severity, std::string_view line) { tapped_.emplace_back(line); });
  EXPECT_TRUE(LogEnabled(Severity::kInfo));
  EXPECT_FALSE(LogEnabled(Severity::kDebug));
  LOG(kInfo, "seen {}", 1);
  LOG(kDebug, "unseen");
  LOG(kWarn, "seen 2");
  EXPECT_THAT(tapped_, ElementsAre("seen 1", "seen 2"));
}

TEST_F(LogTest, ATapMayReplaceItselfFromWithin) {
  SetLogTap([this](Severity, std::string_view line) {
    tapped_.emplace_back(line);
    SetLogTap({});
  });
  LOG(kInfo, "one");
  LOG(kInfo, "two");
  EXPECT_THAT(tapped_, ElementsAre("one"));
}

TEST_F(LogTest, AnEmptyTapRemovesTheFormerOne) {
  SetLogTap([this](Severity, std::string_view line) { tapped_.emplace_back(line); });
  SetLogTap({});
  EXPECT_FALSE(LogEnabled(Severity::kInfo));
  LOG(kError, "to stderr alone");
  EXPECT_THAT(tapped_, IsEmpty());
}

}  // namespace
}  // namespace kiln
