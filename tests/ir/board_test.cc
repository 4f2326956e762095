// ir/board.h: rows are in order and plausible, each architecture has its usual board, and targets
// come of both.
#include "ir/board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "ir/target.h"

namespace kiln {
namespace {

TEST(Board, RowsAreThoseOfBoards) {
  std::set<std::string_view> names;
  for (const Board& board : Boards()) {
    EXPECT_TRUE(names.insert(board.name).second) << board.name << " stands twice";
    EXPECT_GE(board.multiprocessors, 40) << board.name;
    EXPECT_LE(board.multiprocessors, 200) << board.name;
    EXPECT_GE(board.clock, 1e9) << board.name;
    EXPECT_LE(board.clock, 3e9) << board.name;
    EXPECT_GE(board.bytes_per_second, 0.3e12) << board.name;
    EXPECT_LE(board.bytes_per_second, 8e12) << board.name;
    EXPECT_GE(board.l2_bytes, 4 << 20) << board.name;
    EXPECT_EQ(BoardNamed(board.name, board.sm_version), &board);
    EXPECT_EQ(BoardNamed(board.name, board.sm_version + 1), nullptr) << board.name;
  }
}

TEST(Board, TheUsualOneIsTheFirstOfItsArchitecture) {
  const std::pair<int, const char*> kUsual[] = {
      {70, "Tesla V100-SXM2-16GB"},
      {75, "Tesla T4"},
      {80, "NVIDIA A100-SXM4-80GB"},
      {86, "NVIDIA GeForce RTX 3090"},
      {89, "NVIDIA GeForce RTX 4090"},
      {90, "NVIDIA H100 80GB HBM3"},
      {100, "NVIDIA B200"},
      {103, "NVIDIA B300 SXM6 AC"},
      {120, "NVIDIA GeForce RTX 5090"},
      {87, "NVIDIA GeForce RTX 3090"},
      {110, "NVIDIA B300 SXM6 AC"},
      {999, "NVIDIA GeForce RTX 5090"},
      {0, "Tesla V100-SXM2-16GB"},
  };
  for (const auto& [version, name] : kUsual) EXPECT_EQ(UsualBoard(version).name, name) << version;
}

TEST(Board, NamesAreThoseOfTheDriver) {
  for (const char* name : {"", "H200", "nvidia h200", "NVIDIA H200 ", "NVIDIA H20"})
    EXPECT_EQ(BoardNamed(name, 90), nullptr) << name;
}

TEST(Board, ATargetIsMadeOfEach) {
  for (const Board& board : Boards()) {
    const Result<Target> target = TargetFromBoard(board.name);
    ASSERT_TRUE(target.ok()) << target.status().message();
    EXPECT_EQ(target->name, board.name);
    EXPECT_EQ(target->sm_version, board.sm_version);
    EXPECT_EQ(target->multiprocessors, board.multiprocessors);
    EXPECT_EQ(target->l2_bytes, board.l2_bytes);
    EXPECT_EQ(target->arch.ends_with("a"), board.sm_version >= 90) << target->arch;
    EXPECT_EQ(target->shared_bytes_per_block, TargetFromArch(target->arch)->shared_bytes_per_block);
    EXPECT_EQ(target->clock_hz, 0) << "no driver was asked";
  }
  const Result<Target> none = TargetFromBoard("NVIDIA H2000");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kInvalidValue);
  EXPECT_THAT(none.status().message(), testing::HasSubstr("NVIDIA H2000"));
}

}  // namespace
}  // namespace kiln
