// Folders: those of whom are trusted, and that an open folder stays the one that was checked.
#include "runtime/cache/folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cache/kernel_cache.h"
#include "runtime/cache/record_files.h"
#include "runtime/cache/trust.h"
#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::runtime {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kUs = 1000, kThem = 1001, kUnnamed = 65534;
constexpr gid_t kOurGroup = 1000, kTheirGroup = 50;

Identity Us() {
  return {.user = kUs,
          .is_unnamed = [](uid_t user) { return user == kUnnamed; },
          .is_private = [](gid_t group) { return group == kOurGroup; }};
}

TEST(TrustTest, IsWhatNobodyElseMayChange) {
  constexpr auto kOnTheWay = PathPart::kOnTheWay, kLast = PathPart::kLast;
  const struct {
    uid_t user;
    gid_t group;
    mode_t mode;
    PathPart part;
    const char* refusal;  // null where it is trusted
  } cases[] = {
      {kUs, kTheirGroup, S_IFDIR | 0700, kLast, nullptr},
      {kUs, kTheirGroup, S_IFDIR | 0755, kLast, nullptr},
      {0, 0, S_IFDIR | 0755, kLast, nullptr},
      {0, 0, S_IFDIR | 0755, kOnTheWay, nullptr},
      {kThem, kTheirGroup, S_IFDIR | 0700, kLast, "belongs to user 1001"},
      {kThem, kTheirGroup, S_IFDIR | 0755, kOnTheWay, "belongs to user 1001"},
      {kThem, kTheirGroup, S_IFDIR | 01777, kOnTheWay, "belongs to user 1001"},
      {kUs, kTheirGroup, S_IFDIR | 0770, kLast, "writable by group 50"},
      {kUs, kTheirGroup, S_IFDIR | 0775, kOnTheWay, "writable by group 50"},
      {kUs, kOurGroup, S_IFDIR | 0775, kLast, nullptr},
      {kUs, kOurGroup, S_IFDIR | 0775, kOnTheWay, nullptr},
      {0, kTheirGroup, S_IFDIR | 02775, kOnTheWay, "writable by group 50"},
      {kUs, kOurGroup, S_IFDIR | 0777, kLast, "writable by everyone"},
      {kUs, kOurGroup, S_IFDIR | 0702, kOnTheWay, "writable by everyone"},
      // The sticky bit keeps what is in a folder, and says nothing of what may be added.
      {0, 0, S_IFDIR | 01777, kOnTheWay, nullptr},
      {0, 0, S_IFDIR | 01777, kLast, "writable by everyone"},
      {kUs, kTheirGroup, S_IFDIR | 01775, kLast, "writable by group 50"},
      {kUs, kTheirGroup, S_IFLNK | 0777, kOnTheWay, nullptr},
      {0, kTheirGroup, S_IFLNK | 0777, kOnTheWay, nullptr},
      {kThem, kTheirGroup, S_IFLNK | 0777, kOnTheWay, "belongs to user 1001"},
      {kUnnamed, kTheirGroup, S_IFDIR | 0755, kOnTheWay, nullptr},
      {kUnnamed, kTheirGroup, S_IFDIR | 0755, kLast, "belongs to user 65534"},
      {kUnnamed, kTheirGroup, S_IFDIR | 0777, kOnTheWay, "writable by everyone"},
  };
  for (const auto& c : cases) {
    struct stat info = {};
    info.st_uid = c.user;
    info.st_gid = c.group;
    info.st_mode = c.mode;
    const Status status = CheckTrust(info, "/a/folder", c.part, Us());
    const std::string name = fmt::format("{}:{} {:o}", c.user, c.group, c.mode);
    EXPECT_EQ(status.ok(), c.refusal == nullptr) << name << " " << status.message();
    if (c.refusal == nullptr || status.ok()) continue;
    EXPECT_NE(status.message().find(c.refusal), std::string::npos) << name << status.message();
    EXPECT_EQ(status.message().find("/a/folder "), 0u) << status.message();
  }
}

TEST(TrustTest, AGroupThatNobodyNamesIsNotOurs) {
  EXPECT_FALSE(OwnIdentity().is_private(61'237));
  EXPECT_EQ(OwnIdentity().user, ::geteuid());
}

class FolderTest : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return folder_.path() + "/" + name; }
  // The sentence of a refusal; empty where the folder opens.
  static std::string Refusal(const std::string& path) {
    return Folder::Open(path, Missing::kIsMade).status().message();
  }
  TemporaryFolder folder_;
};

TEST_F(FolderTest, IsMadePrivate) {
  ASSERT_EQ(Refusal(At("a/b//./c/../d/")), "");
  for (const char* name : {"a", "a/b", "a/b/c", "a/b/d"})
    EXPECT_EQ(fs::status(At(name)).permissions(), fs::perms(0700)) << name;
  EXPECT_FALSE(Folder::Open(At("none"), Missing::kFails).ok());
}

TEST_F(FolderTest, EachComponentIsChecked) {
  for (const char* open : {"a", "a/b", "a/b/c"}) {
    ASSERT_EQ(Refusal(At("a/b/c")), "");
    fs::permissions(At(open), fs::perms(0777));
    const std::string text = Refusal(At("a/b/c"));
    EXPECT_EQ(text.find(At(open) + " is writable by everyone"), 0u) << text;
    fs::permissions(At(open), fs::perms(01777));
    EXPECT_EQ(Refusal(At("a/b/c")).empty(), std::string(open) != "a/b/c") << open;
    fs::permissions(At(open), fs::perms(0700));
  }
}

TEST_F(FolderTest, LinksLeadWhereTheyAreTrusted) {
  ASSERT_EQ(Refusal(At("real/deep")), "");
  fs::create_symlink(At("real"), At("absolute"));
  fs::create_symlink("real/deep/..", At("relative"));
  fs::create_symlink("loop", At("loop"));
  for (const char* link : {"absolute", "relative"}) {
    const auto folder = Folder::Open(At(link) + "/deep/new", Missing::kIsMade);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    EXPECT_EQ(fs::canonical(folder->path()), fs::canonical(At("real/deep/new")));
  }
  EXPECT_NE(Refusal(At("loop/x")).find("too many links"), std::string::npos);
  fs::permissions(At("real"), fs::perms(0777));
  EXPECT_NE(Refusal(At("absolute/deep")).find("writable by everyone"), std::string::npos);
  // Links in a folder are not followed.
  const auto folder = Folder::Open(folder_.path(), Missing::kFails);
  ASSERT_TRUE(folder.ok());
  EXPECT_FALSE(folder->Sub("absolute", Missing::kIsMade).ok());
  std::ofstream(At("file")) << "text";
  fs::create_symlink("file", At("alias"));
  EXPECT_EQ(*folder->Read("file"), "text");
  EXPECT_FALSE(folder->Read("alias").ok());
  EXPECT_FALSE(folder->OpenFile("alias").ok());
}

TEST_F(FolderTest, WhatIsNoFolderIsSaid) {
  std::ofstream(At("file")) << "text";
  EXPECT_EQ(Refusal(At("file/x")), At("file") + ": not a folder");
  EXPECT_EQ(Folder::Open(At("none/x"), Missing::kFails).status().message(),
            At("none") + ": no such folder");
}

// Somebody who may rename the folders on the way has done so after they were checked.
TEST_F(FolderTest, AnOpenFolderStaysTheOneThatWasChecked) {
  const auto folder = Folder::Open(At("a/v1"), Missing::kIsMade);
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(Folder::Open(At("theirs/v1/sub"), Missing::kIsMade).ok());
  fs::rename(At("a"), At("moved"));
  fs::create_symlink(At("theirs"), At("a"));
  ASSERT_TRUE(folder->Write("file", "ours").ok());
  ASSERT_TRUE(folder->Sub("sub", Missing::kIsMade)->Write("file", "ours").ok());
  EXPECT_TRUE(fs::exists(At("moved/v1/sub/file")));
  EXPECT_FALSE(fs::exists(At("theirs/v1/file")));
  EXPECT_FALSE(fs::exists(At("theirs/v1/sub/file")));
  EXPECT_EQ(*folder->Read("file"), "ours");
}

TEST_F(FolderTest, RemovesWhatIsThereAndNothingElse) {
  const auto folder = Folder::Open(folder_.path(), Missing::kFails);
  ASSERT_TRUE(folder.ok());
  fs::create_directories(At("outside"));
  std::ofstream(At("outside/file")) << "text";
  fs::create_directories(At("gone/a/b"));
  std::ofstream(At("gone/a/file")) << "text";
  fs::create_directory_symlink(At("outside"), At("gone/a/link"));
  folder->Remove("gone");
  folder->Remove("nothing");
  EXPECT_EQ(folder->Names(), std::vector<std::string>{"outside"});
  EXPECT_TRUE(fs::exists(At("outside/file")));
}

// --- the cache that lies there

TEST_F(FolderTest, ARefusedCacheIsToldOnceAndKernelsAreStillMade) {
  const auto get = [&](KernelCache& cache) {
    CacheRequest request;
    request.source = "source";
    return cache.Get(request, []() -> Result<std::string> { return std::string("payload"); });
  };
  ASSERT_EQ(Refusal(At("shared/cache/v1")), "");
  fs::permissions(At("shared"), fs::perms(0777));
  std::vector<std::string> lines;
  SetLogTap([&](Severity severity, std::string_view line) {
    if (severity <= Severity::kWarn) lines.emplace_back(line);
  });
  KernelCache refused({.root = At("shared/cache")});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(get(refused).ok());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find(At("shared") + " is writable by everyone"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(At("shared/cache/v1")));
  // Opened to others while it is in use.
  lines.clear();
  fs::permissions(At("shared"), fs::perms(0700));
  KernelCache cache({.root = At("shared/cache"), .memory_limit_bytes = 0});
  fs::permissions(At("shared"), fs::perms(0777));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(get(cache).ok());
  EXPECT_TRUE(fs::is_empty(At("shared/cache/v1")));
  SetLogTap({});
  ASSERT_GE(lines.size(), 1u);
  for (const std::string& line : lines)
    EXPECT_NE(line.find("writable by everyone"), std::string::npos) << line;
  EXPECT_LE(lines.size(), 2u);
}

TEST_F(FolderTest, WithRaisedPrivilegesNoVariableNamesAFolder) {
  for (const char* name :
       {"KILN_CACHE_DIR", "KILN_RECORDS_DIR", "KILN_RECORDS", "XDG_CACHE_HOME", "HOME"})
    ::setenv(name, At("theirs").c_str(), 1);
  ResetEnvForTest();
  EXPECT_EQ(KernelCache::OptionsFromEnv().root, At("theirs"));
  EXPECT_EQ(UserRecordFolder(), At("theirs"));
  SetPrivilegedForTest(true);
  EXPECT_EQ(KernelCache::OptionsFromEnv().root, "");
  EXPECT_EQ(UserRecordFolder(), "");
  for (const std::string& path : ShippedRecordPaths()) EXPECT_NE(path, At("theirs"));
  std::vector<std::string> lines;
  SetLogTap([&](Severity severity, std::string_view line) {
    if (severity <= Severity::kWarn) lines.emplace_back(line);
  });
  const KernelCache cache(KernelCache::OptionsFromEnv());
  SetLogTap({});
  SetPrivilegedForTest(false);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("more rights than whoever started it"), std::string::npos);
  EXPECT_FALSE(fs::exists(At("theirs")));
  for (const char* name : {"KILN_CACHE_DIR", "KILN_RECORDS_DIR", "KILN_RECORDS", "XDG_CACHE_HOME"})
    ::unsetenv(name);
  ResetEnvForTest();
}

}  // namespace
}  // namespace kiln::runtime
