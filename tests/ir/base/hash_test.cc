// ir/base/hash.h: known XXH3 digests, and that the fields' borders count.
#include "ir/base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace kiln {
namespace {

TEST(HashBytes, IsXxh3OfTheCanonicalVectors) {
  // The empty input's digest is printed in the xxHash specification's test vectors.
  EXPECT_EQ(HashBytes("").Hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(HashBytes, SeesEveryByteOfShortAndLongInputs) {
  for (const size_t size : {1, 16, 17, 128, 240, 241, 4096}) {
    std::string bytes(size, 'a');
    std::set<Hash128> seen = {HashBytes(bytes)};
    for (size_t i = 0; i < size; ++i) {
      bytes[i] = 'b';
      EXPECT_TRUE(seen.insert(HashBytes(bytes)).second) << "size " << size << ", byte " << i;
      bytes[i] = 'a';
    }
  }
}

TEST(HashBytes, DoesNotStopAtZeroBytes) {
  EXPECT_NE(HashBytes(std::string_view("a\0b", 3)), HashBytes(std::string_view("a\0c", 3)));
}

TEST(FieldHasher, KeepsTheBordersBetweenFields) {
  EXPECT_NE(FieldHasher().Add("ab").Add("c").Finish(), FieldHasher().Add("a").Add("bc").Finish());
  EXPECT_NE(FieldHasher().Add("").Add("a").Finish(), FieldHasher().Add("a").Add("").Finish());
  EXPECT_NE(FieldHasher().Add("a").Finish(), FieldHasher().Add("a").Add("").Finish());
}

TEST(FieldHasher, TellsNumbersApart) {
  std::set<Hash128> seen;
  for (const int64_t value :
       {int64_t{0}, int64_t{1}, int64_t{-1}, INT64_MIN, INT64_MAX, int64_t{256}}) {
    EXPECT_TRUE(seen.insert(FieldHasher().Add(value).Finish()).second) << value;
  }
}

TEST(FieldHasher, IsAFunctionOfItsFields) {
  const auto digest = [] { return FieldHasher().Add("sm_90a").Add(int64_t{9}).Finish(); };
  EXPECT_EQ(digest(), digest());
}

TEST(Hash128, HexHas32DigitsHighFirst) {
  EXPECT_EQ((Hash128{.low = 0xf, .high = 1}.Hex()), "0000000000000001000000000000000f");
}

}  // namespace
}  // namespace kiln
