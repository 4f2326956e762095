// Searches that clients_test.py cannot ask for with names of cuDNN alone: the system's cache and
// folders, against the loader of this process, and caches that are damaged.
#include "cli/loader.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <stdlib.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <iterator>

namespace kiln::cli {
namespace {

// Every system has it, in a folder that needs no entry anywhere.
constexpr const char* kSystems = "libm.so.6";

std::string Resolved(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) != nullptr ? resolved : "";
}

std::string LoadedHere(const char* name) {
  void* const library = ::dlopen(name, RTLD_LAZY);
  const link_map* map = nullptr;
  if (library == nullptr || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
  return Resolved(map->l_name);
}

LoaderSettings Plain() {
  LoaderSettings settings = LoaderSettings::OfEnvironment();
  settings.preload.clear();
  settings.library_path.clear();
  return settings;
}

TEST(FindLibrary, TheSystemsOwn) {
  LoaderSettings settings = Plain();
  const std::string want = LoadedHere(kSystems);
  ASSERT_NE(want, "");
  EXPECT_EQ(Resolved(FindLibrary(settings, {}, kSystems).path), want);
  settings.cache_file = "/none";
  const FoundLibrary found = FindLibrary(settings, {}, kSystems);
  EXPECT_EQ(found.rule, LoaderRule::kFolders);
  EXPECT_EQ(Resolved(found.path), want);
  EXPECT_EQ(FindLibrary(settings, {}, "libnone.so.6").rule, LoaderRule::kNone);
}

// An object that was linked with -z nodefaultlib gets nothing of the system's folders, whether they
// or the cache name it.
TEST(FindLibrary, WithoutTheSystemsFolders) {
  LoaderSettings settings = Plain();
  LoadedObject asking = {.path = "/none/asking.so", .file = {.has_no_default_folders = true}};
  EXPECT_EQ(FindLibrary(settings, {&asking, 1}, kSystems).rule, LoaderRule::kNone);
  settings.cache_file = "/none";
  EXPECT_EQ(FindLibrary(settings, {&asking, 1}, kSystems).rule, LoaderRule::kNone);
  asking.file.has_no_default_folders = false;
  EXPECT_EQ(FindLibrary(settings, {&asking, 1}, kSystems).rule, LoaderRule::kFolders);
}

TEST(FindLibrary, ThePreloadFile) {
  LoaderSettings settings = Plain();
  settings.preload_file = ::testing::TempDir() + "/preload";
  std::ofstream(settings.preload_file) << "/none.so\n" << LoadedHere(kSystems) << " \n";
  EXPECT_EQ(FindLibrary(settings, {}, kSystems).rule, LoaderRule::kPreload);
  EXPECT_NE(FindLibrary(settings, {}, "libc.so.6").rule, LoaderRule::kPreload);
}

TEST(FindLibrary, DamagedCaches) {
  LoaderSettings settings = Plain();
  std::ifstream file(settings.cache_file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  settings.cache_file = ::testing::TempDir() + "/cache";
  settings.folders.clear();
  const auto read = [&](const std::string& bytes) {
    std::ofstream(settings.cache_file, std::ios::binary | std::ios::trunc) << bytes;
    const FoundLibrary found = FindLibrary(settings, {}, kSystems);
    EXPECT_TRUE(found.rule == LoaderRule::kCache || found.rule == LoaderRule::kNone);
  };
  read("");
  for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 200)
    read(whole.substr(0, size));
  // A header that promises more rows than there are, and rows whose texts are elsewhere.
  for (size_t at = 0; at < std::min<size_t>(whole.size(), 96); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(0xff);
    read(bytes);
  }
}

}  // namespace
}  // namespace kiln::cli
