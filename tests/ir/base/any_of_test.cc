// AnyOf: a variant as any other, to those who use it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/base/any_of_inl.h"

namespace kiln {
namespace {

struct Numbers {
  using Variant = std::variant<int, std::string, std::vector<int>, std::shared_ptr<int>>;
};
using Any = AnyOf<Numbers>;

TEST(AnyOf, HoldsTheFirstAlternativeAtFirst) {
  const Any any;
  EXPECT_EQ(any.index(), 0u);
  EXPECT_EQ(std::get<int>(any), 0);
}

TEST(AnyOf, TakesEachAlternative) {
  Any any = std::string("seven");
  EXPECT_EQ(any.index(), 1u);
  EXPECT_EQ(std::get<std::string>(any), "seven");
  any = std::vector<int>{7, 8};
  ASSERT_TRUE(std::holds_alternative<std::vector<int>>(any));
  EXPECT_EQ(std::get_if<std::string>(&any), nullptr);
  const auto is_numbers = [](const auto& held) {
    return std::is_same_v<std::decay_t<decltype(held)>, std::vector<int>>;
  };
  EXPECT_TRUE(std::visit(is_numbers, any));
  any = 9;
  EXPECT_EQ(std::get<int>(any), 9);
}

// A type that converts to an alternative is none: a variant of attributes must not guess.
TEST(AnyOf, TakesNothingElse) {
  static_assert(std::is_convertible_v<std::string, Any>);
  static_assert(!std::is_convertible_v<const char*, Any>);
  static_assert(!std::is_convertible_v<double, Any>);
  static_assert(std::is_nothrow_move_constructible_v<Any>);  // or vectors would copy
}

TEST(AnyOf, CopiesAreTheirOwnAndMovesLeaveNothingBehind) {
  const auto number = std::make_shared<int>(7);
  Any any = number;
  EXPECT_EQ(number.use_count(), 2);
  {
    Any copy = any;
    EXPECT_EQ(number.use_count(), 3);
    *std::get<std::shared_ptr<int>>(copy) = 8;
    const Any moved = std::move(copy);
    EXPECT_EQ(number.use_count(), 3);
    EXPECT_EQ(*std::get<std::shared_ptr<int>>(moved), 8);
  }
  EXPECT_EQ(number.use_count(), 2);
  any = 1;
  EXPECT_EQ(number.use_count(), 1);
}

}  // namespace
}  // namespace kiln
