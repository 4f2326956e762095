// The list of known differences and the text about a difference.
#include "tests/numerics/differences.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <limits>

namespace kiln::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(KnownDifferences, HoldReasons) {
  const auto known =
      ParseKnownDifferences("# no case\n\na.txt:l/one  drops NaN\n b.txt:l/two it rounds up\n");
  EXPECT_TRUE(known.errors.empty());
  ASSERT_EQ(known.reasons.size(), 2u);
  EXPECT_EQ(known.reasons.at("a.txt:l/one"), "drops NaN");
  EXPECT_EQ(known.reasons.at("b.txt:l/two"), "it rounds up");
}

TEST(KnownDifferences, SayWhereNvidiaIsNotAsked) {
  const auto known =
      ParseKnownDifferences("a.txt:l/one crashes: SIGSEGV\na.txt:l/two it crashes\n");
  EXPECT_TRUE(known.Crashes("a.txt:l/one"));
  EXPECT_FALSE(known.Crashes("a.txt:l/two"));
  EXPECT_FALSE(known.Crashes("a.txt:l/three"));
}

TEST(KnownDifferences, WithoutReasonOrTwiceAreErrors) {
  EXPECT_EQ(ParseKnownDifferences("a\n").errors.front(), "line 1: a has no reason");
  EXPECT_EQ(ParseKnownDifferences("a x\na y\n").errors.front(), "line 2: a stands twice");
}

// Three columns: the same, NaN against a number, and another number.
TEST(Differences, ShowOperandsAndBothResults) {
  std::string error;
  const auto c = ParseCase("c: max(x:f32[2,3], b:f32[1,3]) -> y:f32", &error);
  ASSERT_TRUE(c.has_value()) << error;
  CaseData before = MakeData(*c, 1);
  before.images[0].Store({1, kNan, 3, 1, kNan, 3});
  before.images[1].Store({2, 2, 2});
  CaseData ours = before, nvidia = before;
  ours.images[2].Store({2, kNan, 3, 2, kNan, 3});
  nvidia.images[2].Store({2, 2, 3, 2, 2, 2.5});
  const auto expected = Evaluate(*c, before);
  EXPECT_EQ(DescribeDifferences(*c, before, ours, ours, expected, {}), "");
  const std::string text = DescribeDifferences(*c, before, ours, nvidia, expected, {});
  EXPECT_NE(text.find("y: 3 of 6 elements differ"), std::string::npos) << text;
  EXPECT_NE(text.find("[0,1] x=nan b=2 | oracle 2 | ours nan | NVIDIA 2\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("[1,2] x=3 b=2 | oracle 3 | ours 3 | NVIDIA 2.5\n"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("[1,1]"), std::string::npos) << "one element of a kind:\n" << text;
}

TEST(Differences, WritesOutsideOfElementsAreSome) {
  std::string error;
  const auto c = ParseCase("c: exp(x:f32[2,3]) -> y:f32@row+1", &error);
  ASSERT_TRUE(c.has_value()) << error;
  const CaseData before = MakeData(*c, 1);
  CaseData ours = before;
  ours.images[1].Store({1, 1, 1, 1, 1, 1});
  CaseData nvidia = ours;
  nvidia.images[1].bytes[static_cast<size_t>(oracle::Image::kGuard + 3 * 4)] ^= 1;
  const std::string text =
      DescribeDifferences(*c, before, ours, nvidia, Evaluate(*c, before), {.scale = 1e9});
  EXPECT_NE(text.find("NVIDIA: "), std::string::npos) << text;
}

TEST(Refusals, AreOneLine) {
  EXPECT_EQ(BriefRefusal("cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED: {\"engineId\":1}\n"
                         "Warning: X; Reason: !is_NHWC\nWarning: Y; Reason: other\n"),
            "cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED (!is_NHWC)");
  EXPECT_EQ(BriefRefusal("the heuristics give no engine config"),
            "the heuristics give no engine config");
}

TEST(Report, NamesTheListedAndTheRest) {
  std::string error;
  const auto c = ParseCase("c: exp(x:f32[2]) -> y:f32", &error);
  ASSERT_TRUE(c.has_value()) << error;
  ParityReport report;
  report.Add(Outcome::kNvidiaDiffers, *c, "    y: 1 of 2 elements differ\n");
  report.Add(Outcome::kNvidiaRefuses, *c, "no engine");
  report.Add(Outcome::kNvidiaRefuses, *c, "no engine");
  ::testing::internal::CaptureStdout();
  report.Print(ParseKnownDifferences(c->Label() + " it is approximate"));
  std::fflush(stdout);
  const std::string text = ::testing::internal::GetCapturedStdout();
  for (const char* part :
       {"exp(x:f32[2]) -> y:f32\n    y: 1 of 2 elements differ\n    listed: it is approximate\n",
        "  2: no engine\n", "     1 NVIDIA differs, ours is what the oracle expects\n",
        "     1 of the differences are listed"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }
}

}  // namespace
}  // namespace kiln::testing
