// Recent: what it keeps, what it forgets, and that what was found outlives its place.
#include "api/session/recent.h"

#include <gtest/gtest.h>

namespace kiln::api {
namespace {

std::shared_ptr<const int> Value(int v) { return std::make_shared<const int>(v); }

TEST(RecentTest, ForgetsTheLeastRecentlyUsed) {
  Recent<int> recent(2);
  EXPECT_EQ(recent.Find("a"), nullptr);
  recent.Insert("a", Value(1));
  recent.Insert("b", Value(2));
  ASSERT_NE(recent.Find("a"), nullptr);  // used after b
  recent.Insert("c", Value(3));
  EXPECT_EQ(recent.Find("b"), nullptr);
  ASSERT_NE(recent.Find("a"), nullptr);
  EXPECT_EQ(*recent.Find("a"), 1);
  EXPECT_EQ(*recent.Find("c"), 3);
}

TEST(RecentTest, KeepsTheFirstOfTwoThatMissedAtOnce) {
  Recent<int> recent(2);
  recent.Insert("a", Value(1));
  recent.Insert("a", Value(2));
  EXPECT_EQ(*recent.Find("a"), 1);
}

// A value that was found stays whole while others push it out.
TEST(RecentTest, AValueOutlivesItsPlace) {
  Recent<int> recent(1);
  recent.Insert("a", Value(7));
  const auto held = recent.Find("a");
  recent.Insert("b", Value(8));
  EXPECT_EQ(recent.Find("a"), nullptr);
  EXPECT_EQ(*held, 7);
}

}  // namespace
}  // namespace kiln::api
