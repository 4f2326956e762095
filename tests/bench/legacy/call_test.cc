// The calls of bench/legacy: names, and when two libraries' results count as different.
#include "bench/legacy/call.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace kiln::bench {
namespace {

TEST(LegacyCallTest, NamesAreUniqueAndHaveAFamily) {
  std::set<std::string> names;
  for (const LegacyCall& call : LegacyCalls()) {
    EXPECT_TRUE(names.insert(call.name).second) << call.name;
    EXPECT_NE(call.name.find('/'), std::string::npos) << call.name;
  }
  EXPECT_GE(names.size(), 60u);
}

std::vector<Sample> Of(std::vector<double> values, size_t element_bytes = 4) {
  return {{.name = "y", .element_bytes = element_bytes, .values = std::move(values)}};
}

TEST(LegacyCallTest, ResultsDifferBeyondRounding) {
  EXPECT_EQ(Difference(Of({1, 2, 3}), Of({1, 2.0001, 3}), {}), "");
  EXPECT_EQ(Difference(Of({1, 2.01, 3}, 2), Of({1, 2, 3}, 2), {}), "");
  EXPECT_EQ(Difference(Of({1, 2.01, 3}), Of({1, 2, 3}), {}),
            "y: sample 1 is 2.01, and 2 of NVIDIA's");
  EXPECT_EQ(Difference(Of({1, 2.01, 3}), Of({1, 2, 3}), {.name = "", .make = {}, .tolerance = 20}),
            "");
  // Elements that nobody wrote are NaN.
  EXPECT_NE(Difference(Of({1, NAN, 3}), Of({1, 2, 3}), {}), "");
  EXPECT_NE(Difference(Of({1, NAN, 3}), Of({1, NAN, 3}), {}), "");
}

TEST(LegacyCallTest, RandomResultsHaveAsManyZeroes) {
  EXPECT_EQ(
      Difference(Of({0, 1, 1, 0}), Of({1, 0, 0, 1}), {.name = "", .make = {}, .is_random = true}),
      "");
  EXPECT_EQ(
      Difference(Of({0, 1, 1, 1}), Of({1, 0, 0, 1}), {.name = "", .make = {}, .is_random = true}),
      "y: 0.250 of ours are 0, and 0.500 of NVIDIA's");
}

}  // namespace
}  // namespace kiln::bench
