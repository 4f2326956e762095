// ir/base/nearest.h: misspellings, parts, and names that are like nothing.
#include "ir/base/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kiln {
namespace {

const std::vector<std::string_view> kKnown = {"conv_fprop", "pointwise", "matmul", "reduction"};

TEST(NearestTest, FindsWhatWasMeant) {
  const struct {
    const char *name, *nearest;
  } cases[] = {
      {"conv", "conv_fprop"},
      {"point_wise", "pointwise"},
      {"Matmul", "matmul"},
      {"mamtul", ""},
      {"matmull", "matmul"},
      {"reductoin", "reduction"},
      {"my_matmul_2", "matmul"},
      {"softmax", ""},
      {"", ""},
      {"x", ""},
      {"re", ""},
  };
  for (const auto& c : cases) EXPECT_EQ(Nearest(c.name, kKnown), c.nearest) << c.name;
}

TEST(NearestTest, TakesTheFewestChangesOfAll) {
  const std::vector<std::string_view> known = {"add_square", "add", "madd"};
  EXPECT_EQ(Nearest("add", known), "add");
  EXPECT_EQ(Nearest("ADD_SQUARES", known), "add_square");
}

TEST(NearestTest, ALongNameIsNoMisspelling) {
  EXPECT_EQ(Nearest(std::string(1 << 20, 'a'), kKnown), "");
  EXPECT_EQ(Nearest("matmul", {}), "");
}

}  // namespace
}  // namespace kiln
