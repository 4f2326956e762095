// ir/shape.h: dense strides in every order, and how far a strided tensor reaches.
#include "ir/shape.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace kiln {
namespace {

TEST(NumElements, IsTheProduct) {
  EXPECT_EQ(NumElements(Dims{8, 64, 56, 56}), 8 * 64 * 56 * 56);
  EXPECT_EQ(NumElements(Dims{}), 1);
  EXPECT_EQ(NumElements(Dims{8, 0, 56}), 0);
  EXPECT_EQ(NumElements(Dims{1 << 20, 1 << 20}), int64_t{1} << 40);
}

TEST(PackedStrides, RunsFastestInTheLastDimension) {
  EXPECT_EQ(PackedStrides(Dims{2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(PackedStrides(Dims{5}), Dims{1});
  EXPECT_EQ(PackedStrides(Dims{}), Dims{});
  EXPECT_EQ(PackedStrides(Dims{2, 0, 4}), (Dims{4, 4, 1})) << "an empty extent counts as one";
}

TEST(PackedStridesLike, KeepsChannelsLast) {
  EXPECT_EQ(PackedStridesLike(Dims{8, 32, 28, 28}, Dims{200704, 1, 3584, 64}),
            (Dims{28 * 28 * 32, 1, 28 * 32, 32}));
}

TEST(PackedStridesLike, DropsPadding) {
  EXPECT_EQ(PackedStridesLike(Dims{2, 3, 4}, Dims{100, 10, 1}), (Dims{12, 4, 1}));
}

TEST(PackedStridesLike, TiesAreRowMajor) {
  // Extent 1 in the middle: its stride equals its neighbour's.
  EXPECT_EQ(PackedStridesLike(Dims{4, 1, 5}, Dims{5, 5, 1}), (Dims{5, 5, 1}));
  EXPECT_EQ(PackedStridesLike(Dims{2, 3}, Dims{1, 1}), (Dims{3, 1}));
}

TEST(PackedStridesLike, ZeroStridesFallBackToRowMajor) {
  EXPECT_EQ(PackedStridesLike(Dims{2, 3, 4}, Dims{0, 0, 0}), (Dims{12, 4, 1}));
  EXPECT_EQ(PackedStridesLike(Dims{2, 3, 4}, Dims{0, 0, 1}), (Dims{12, 4, 1}));
  EXPECT_EQ(PackedStridesLike(Dims{2, 3, 4}, Dims{1, 2, 0}), (Dims{4, 8, 1}));
}

// Whatever the order, the strides are a bijection onto 0 … n-1.
TEST(PackedStridesLike, IsDenseInEveryOrder) {
  const Dims dims = {2, 3, 4, 5};
  Dims order = {0, 1, 2, 3};
  do {
    Dims like(4);
    for (int64_t i = 0; i < 4; ++i)
      like[static_cast<size_t>(order[static_cast<size_t>(i)])] = 1000 >> i;
    const Dims strides = PackedStridesLike(dims, like);
    std::set<int64_t> offsets;
    for (int64_t n = 0; n < NumElements(dims); ++n) {
      int64_t rest = n;
      int64_t offset = 0;
      for (size_t d = 4; d-- > 0; rest /= dims[d]) offset += rest % dims[d] * strides[d];
      EXPECT_TRUE(offsets.insert(offset).second);
    }
    EXPECT_EQ(*offsets.rbegin(), NumElements(dims) - 1);
    EXPECT_EQ(strides[static_cast<size_t>(order[3])], 1) << "the smallest stride stays the fastest";
  } while (std::ranges::next_permutation(order).found);
}

TEST(SpanElements, ReachesTheLastAddressedElement) {
  EXPECT_EQ(SpanElements(Dims{2, 3, 4}, Dims{12, 4, 1}), 24);
  EXPECT_EQ(SpanElements(Dims{2, 3}, Dims{10, 1}), 13);
  EXPECT_EQ(SpanElements(Dims{2, 3}, Dims{0, 1}), 3) << "a broadcast dimension adds nothing";
  EXPECT_EQ(SpanElements(Dims{2, 0}, Dims{10, 1}), 0);
  EXPECT_EQ(SpanElements(Dims{}, Dims{}), 1);
}

TEST(PackedRunOf, FillsBytesAlongTheFewestDims) {
  const auto run = [](const Dims& dims, const Dims& strides, int per_byte = 2) {
    const auto found = PackedRunOf(dims, strides, per_byte);
    return found ? fmt::format("[{}] [{}] {}", fmt::join(found->outer, ","),
                               fmt::join(found->inner, ","), found->extent)
                 : "none";
  };
  EXPECT_EQ(run({4, 6}, {6, 1}), "[0] [1] 6");
  EXPECT_EQ(run({4, 6}, {1, 4}), "[1] [0] 4");
  EXPECT_EQ(run({4, 5}, {5, 1}), "[] [0,1] 20");
  EXPECT_EQ(run({2, 3, 5}, {16, 5, 1}), "[0] [1,2] 15");
  EXPECT_EQ(run({4, 5}, {6, 1}), "[0] [1] 5") << "half a byte is left over in each row";
  EXPECT_EQ(run({4, 5}, {20, 4}), "[0,1] [] 1") << "a byte for each";
  EXPECT_EQ(run({4, 5}, {0, 1}), "[0] [1] 5");
  EXPECT_EQ(run({1, 5, 1}, {7, 1, 3}), "[0,2] [1] 5") << "strides of one element say nothing";
  EXPECT_EQ(run({4, 5}, {7, 1}), "none");
  EXPECT_EQ(run({4, 5}, {15, 3}), "none");
  EXPECT_EQ(run({2, 12, 5}, {60, 1, 12}, 8), "[] [0,2,1] 120") << "channels last";
  EXPECT_EQ(run({2, 8, 5}, {40, 1, 8}, 8), "[0,2] [1] 8");
  EXPECT_EQ(run({4, 5}, {8, 1}, 8), "[0] [1] 5") << "three bits are left over in each row";
  EXPECT_EQ(run({4, 5}, {6, 1}, 8), "none");
}

TEST(Arithmetic, RoundsUp) {
  EXPECT_EQ(CeilDiv(10, 5), 2);
  EXPECT_EQ(CeilDiv(11, 5), 3);
  EXPECT_EQ(CeilDiv(0, 5), 0);
  EXPECT_EQ(AlignUp(257, 256), 512);
  EXPECT_EQ(AlignUp(256, 256), 256);
}

TEST(DimsText, JoinsWithX) {
  EXPECT_EQ(DimsText(Dims{8, 64, 56, 56}), "8x64x56x56");
  EXPECT_EQ(DimsText(Dims{7}), "7");
  EXPECT_EQ(DimsText(Dims{}), "scalar");
}

}  // namespace
}  // namespace kiln
