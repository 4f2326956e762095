// The folder of a program, and what /proc/self/maps says of an address.
#include "runtime/cache/own_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace kiln::runtime {
namespace {

TEST(OwnFolder, IsTheProgramsOwn) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(OwnFolder(), program.parent_path());
}

TEST(FileMappedAt, IsFoundByAddress) {
  constexpr const char* kMaps =
      "55d0c0000000-55d0c0021000 r--p 00000000 fd:01 1234                     /opt/kiln/bin/kiln\n"
      "55d0c0021000-55d0c0030000 r-xp 00021000 fd:01 1234                     /opt/kiln/bin/kiln\n"
      "55d0c1000000-55d0c1001000 rw-p 00000000 00:00 0                        [heap]\n"
      "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n"
      "7f0000001000-7f0000002000 r-xp 00000000 fd:01 7    /a b/lib.so (deleted)\n"
      "7f0000002000-7f0000003000 r-xp 00000000 fd:01 7    /two\\012lines/lib.so\n"
      "7f0000003000-7f0000004000 r-xp 00000000 fd:01 7    /last";
  EXPECT_EQ(FileMappedAt(kMaps, 0x55d0c0020fff), "/opt/kiln/bin/kiln");
  EXPECT_EQ(FileMappedAt(kMaps, 0x55d0c0021000), "/opt/kiln/bin/kiln");
  EXPECT_EQ(FileMappedAt(kMaps, 0x55d0c0030000), "") << "between two";
  EXPECT_EQ(FileMappedAt(kMaps, 0x55d0c1000000), "") << "no file";
  EXPECT_EQ(FileMappedAt(kMaps, 0x7f0000000000), "") << "no name";
  EXPECT_EQ(FileMappedAt(kMaps, 0x7f0000001234), "/a b/lib.so");
  EXPECT_EQ(FileMappedAt(kMaps, 0x7f0000002000), "/two\nlines/lib.so");
  EXPECT_EQ(FileMappedAt(kMaps, 0x7f0000003fff), "/last");
  EXPECT_EQ(FileMappedAt("", 1), "");
  EXPECT_EQ(FileMappedAt("no maps\n12-\n-34\n", 0x12), "");
}

}  // namespace
}  // namespace kiln::runtime
