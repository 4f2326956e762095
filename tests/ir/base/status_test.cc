// ir/base/status.h and result.h: codes, sentences, and the two macros that hand failures on.
#include "ir/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ir/base/result.h"

namespace kiln {
namespace {

TEST(Status, DefaultIsOkWithoutAMessage) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
}

TEST(Status, ErrorFormatsItsSentence) {
  const Status status =
      Status::Error(Code::kShapeMismatch, "filter has {} channels, input has {}", 32, 64);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kShapeMismatch);
  EXPECT_EQ(status.message(), "filter has 32 channels, input has 64");
}

TEST(Status, TextTakesBracesAsTheyAre) {
  EXPECT_EQ(Status::Text(Code::kCompilationFailed, "expected '}' {0}").message(),
            "expected '}' {0}");
}

TEST(Status, WithinPutsTheOuterPlaceFirstAndLeavesOkAlone) {
  EXPECT_EQ(Status::Error(Code::kBadParam, "bad").Within("conv1").Within("graph").message(),
            "graph: conv1: bad");
  EXPECT_EQ(Status().Within("conv1").message(), "");
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Status::Error(Code::kInvalidValue, "{} is odd", value);
  return value / 2;
}

Result<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckQuarter(int value, int* calls) {
  RETURN_IF_ERROR(Quarter(value).status());
  ++*calls;
  return {};
}

TEST(Result, HoldsAValueOrAStatus) {
  EXPECT_EQ(*Half(8), 4);
  const Result<int> odd = Half(7);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.status().message(), "7 is odd");
}

TEST(Result, AssignOrReturnHandsOnTheFirstFailure) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(7).status().message(), "7 is odd");
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
}

TEST(Result, ReturnIfErrorStopsAtAFailureOnly) {
  int calls = 0;
  EXPECT_TRUE(CheckQuarter(8, &calls).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(CheckQuarter(6, &calls).code(), Code::kInvalidValue);
  EXPECT_EQ(calls, 1);
}

TEST(Result, CarriesTypesThatOnlyMove) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = *std::move(made);
  EXPECT_EQ(*taken, 5);
}

}  // namespace
}  // namespace kiln
