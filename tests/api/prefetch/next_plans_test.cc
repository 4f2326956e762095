// NextPlans: the configurations that are compiled together with the one that is built.
#include "api/prefetch/next_plans.h"

#include <gtest/gtest.h>

namespace kiln::api {
namespace {

EngineConfig Config(int64_t engine, int64_t knob = 0) {
  return {.engine = engine, .knobs = {{.type = 1, .value = knob}}};
}

const std::vector<EngineConfig> kOffered = {Config(3), Config(3, 1), Config(5), Config(0)};

std::shared_ptr<const std::vector<EngineConfig>> Shared() {
  return std::make_shared<const std::vector<EngineConfig>>(kOffered);
}

TEST(NextPlansTest, AClientThatBuildsTheFirstOfEachGraphWaitsForNothingElse) {
  NextPlans next;
  for (const char* graph : {"a", "b", "c", "a"}) {
    next.Offered(graph, Shared());
    EXPECT_TRUE(next.After(graph, kOffered[0]).empty()) << graph;
    EXPECT_TRUE(next.After(graph, kOffered[0]).empty()) << graph << ": the same once more";
  }
}

TEST(NextPlansTest, TheSecondConfigurationOfAGraphBringsThoseBehindItOnce) {
  NextPlans next;
  next.Offered("a", Shared());
  EXPECT_TRUE(next.After("a", kOffered[0]).empty());
  EXPECT_EQ(next.After("a", kOffered[1]), std::vector(kOffered.begin() + 2, kOffered.end()));
  EXPECT_TRUE(next.After("a", kOffered[2]).empty());
}

TEST(NextPlansTest, AfterAGraphThatWasTimedTheFirstBringsThem) {
  NextPlans next;
  for (const char* graph : {"a", "b"}) next.Offered(graph, Shared());
  next.After("a", kOffered[0]);
  next.After("a", kOffered[1]);
  EXPECT_EQ(next.After("b", kOffered[0]), std::vector(kOffered.begin() + 1, kOffered.end()));
  // b had but one, so its successor is not taken for one that is timed.
  next.Offered("c", Shared());
  EXPECT_TRUE(next.After("c", kOffered[0]).empty());
}

TEST(NextPlansTest, WhatWasNotOfferedBringsNothing) {
  NextPlans next;
  next.Offered("a", Shared());
  next.After("a", Config(7));
  EXPECT_TRUE(next.After("a", Config(8)).empty());
  next.After("unknown", kOffered[0]);
  EXPECT_TRUE(next.After("unknown", kOffered[1]).empty());
}

}  // namespace
}  // namespace kiln::api
