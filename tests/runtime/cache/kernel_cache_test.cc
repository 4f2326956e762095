// The kernel cache under everything that happens to a shared directory: damage, truncation, races
// between threads and between processes, no permission, no space to be had, and pruning.
#include "runtime/cache/kernel_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "runtime/cache/file_io.h"
#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::runtime {
namespace {

namespace fs = std::filesystem;
using Origin = CachedKernel::Origin;

CacheRequest Request(const std::string& name) {
  CacheRequest request;
  request.fields = {{"arch", "sm_90a"}, {"entry", name}};
  request.source = "source of " + name;
  return request;
}

std::string PayloadOf(const std::string& name) { return std::string(1000, 'p') + name; }

class KernelCacheTest : public testing::Test {
 protected:
  KernelCache::Options Options() const { return {.root = folder_.path() + "/cache"}; }

  // One lookup in a new cache object, which is what another process sees.
  Origin Lookup(const std::string& name) {
    KernelCache cache(Options());
    return Lookup(cache, name);
  }

  Origin Lookup(KernelCache& cache, const std::string& name) {
    auto kernel = cache.Get(Request(name), [&]() -> Result<std::string> {
      ++compiles_;
      return PayloadOf(name);
    });
    EXPECT_TRUE(kernel.ok()) << kernel.status().message();
    EXPECT_EQ(*kernel->payload, PayloadOf(name));
    return kernel->origin;
  }

  fs::path Entry(const std::string& name) const {
    std::string key = Request(name).Key().Hex();
    return fs::path(Options().root) / "v1" / key.substr(0, 2) / key;
  }

  void SetLastUse(const std::string& name, int64_t seconds) {
    timespec times[2] = {{.tv_sec = seconds, .tv_nsec = 0}, {.tv_sec = seconds, .tv_nsec = 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (Entry(name) / "manifest.txt").c_str(), times, 0), 0);
  }

  TemporaryFolder folder_{"/tmp"};  // where another user can read, too
  std::atomic<int> compiles_ = 0;
};

TEST_F(KernelCacheTest, CompilesOnceThenMemoryThenDisk) {
  KernelCache cache(Options());
  EXPECT_EQ(Lookup(cache, "a"), Origin::kCompiled);
  EXPECT_EQ(Lookup(cache, "a"), Origin::kMemory);
  EXPECT_EQ(Lookup("a"), Origin::kDisk);
  EXPECT_EQ(compiles_, 1);
}

TEST_F(KernelCacheTest, FilesArePrivateAndReadable) {
  Lookup("a");
  struct stat info;
  ASSERT_EQ(::stat(fs::path(Options().root).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat(Entry("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(*ReadFile(Entry("a") / "kernel.cu"), "source of a");
  EXPECT_EQ(*ReadFile(Entry("a") / "kernel.cubin"), PayloadOf("a"));
  EXPECT_TRUE(fs::is_empty(fs::path(Options().root) / "v1" / "tmp"));
}

TEST_F(KernelCacheTest, FindCompilesNothing) {
  KernelCache cache(Options());
  EXPECT_FALSE(cache.Find(Request("a")).has_value());
  Lookup("a");
  auto found = cache.Find(Request("a"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->origin, Origin::kDisk);
  EXPECT_EQ(cache.Find(Request("a"))->origin, Origin::kMemory);
  EXPECT_EQ(compiles_, 1);
}

// The compile ends when Find has answered: one that waits for it would wait for ever.
TEST_F(KernelCacheTest, FindDoesNotWaitForWhoCompiles) {
  KernelCache cache(Options());
  std::promise<void> begun, answered;
  std::jthread compiles([&] {
    const auto kernel = cache.Get(Request("a"), [&]() -> Result<std::string> {
      begun.set_value();
      const auto end = answered.get_future().wait_for(std::chrono::seconds(60));
      EXPECT_EQ(end, std::future_status::ready) << "Find waited";
      return PayloadOf("a");
    });
    EXPECT_TRUE(kernel.ok());
  });
  begun.get_future().wait();
  EXPECT_FALSE(cache.Find(Request("a")).has_value());
  answered.set_value();
  compiles.join();
  EXPECT_TRUE(cache.Find(Request("a")).has_value());
}

TEST_F(KernelCacheTest, EveryTruncationIsAMissAndIsRepaired) {
  for (const char* file : {"kernel.cu", "kernel.cubin", "manifest.txt"}) {
    Lookup("a");
    const auto size = static_cast<size_t>(fs::file_size(Entry("a") / file));
    for (size_t keep : {size_t{0}, size_t{1}, size / 2, size - 1}) {
      fs::resize_file(Entry("a") / file, keep);
      EXPECT_EQ(Lookup("a"), Origin::kCompiled) << file << " cut to " << keep;
      EXPECT_EQ(Lookup("a"), Origin::kDisk) << file << " was not repaired";
    }
  }
}

TEST_F(KernelCacheTest, AChangedByteIsAMissAndIsRepaired) {
  for (const char* file : {"kernel.cu", "kernel.cubin", "manifest.txt"}) {
    Lookup("a");
    std::string content = *ReadFile(Entry("a") / file);
    content[content.size() / 2] ^= 4;
    std::ofstream(Entry("a") / file, std::ios::binary) << content;
    EXPECT_EQ(Lookup("a"), Origin::kCompiled) << file;
    EXPECT_EQ(Lookup("a"), Origin::kDisk) << file;
  }
}

TEST_F(KernelCacheTest, AMissingFileIsAMissAndIsRepaired) {
  for (const char* file : {"kernel.cu", "kernel.cubin", "manifest.txt"}) {
    Lookup("a");
    fs::remove(Entry("a") / file);
    EXPECT_EQ(Lookup("a"), Origin::kCompiled) << file;
    EXPECT_EQ(Lookup("a"), Origin::kDisk) << file;
  }
}

TEST_F(KernelCacheTest, ASoundEntryOfOtherFieldsIsNeitherUsedNorRemoved) {
  Lookup("b");
  fs::create_directories(Entry("a").parent_path());
  fs::copy(Entry("b"), Entry("a"));  // as if both had one hash
  EXPECT_EQ(Lookup("a"), Origin::kCompiled);
  EXPECT_EQ(*ReadFile(Entry("a") / "kernel.cu"), "source of b");
  EXPECT_EQ(Lookup("a"), Origin::kCompiled);
}

TEST_F(KernelCacheTest, AFailedCompileIsForgotten) {
  KernelCache cache(Options());
  auto failed = cache.Get(Request("a"), []() -> Result<std::string> {
    return Status::Error(Code::kCompilationFailed, "line {}: no", 3);
  });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().message(), "line 3: no");
  EXPECT_EQ(Lookup(cache, "a"), Origin::kCompiled);
}

TEST_F(KernelCacheTest, AThrowingCompileReachesEveryWaiter) {
  KernelCache cache(Options());
  std::atomic<int> thrown = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      try {
        (void)cache.Get(Request("a"), []() -> Result<std::string> {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          throw CheckFailure("a bug of ours");
        });
      } catch (const CheckFailure&) {
        ++thrown;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(thrown, 8);
  EXPECT_EQ(Lookup(cache, "a"), Origin::kCompiled);
}

TEST_F(KernelCacheTest, ManyThreadsCompileOnce) {
  KernelCache cache(Options());
  std::atomic<int> compiled = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 10; ++k) {
        std::string name = fmt::format("k{}", k);
        auto kernel = cache.Get(Request(name), [&]() -> Result<std::string> {
          ++compiled;
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          return PayloadOf(name);
        });
        ASSERT_TRUE(kernel.ok());
        EXPECT_EQ(*kernel->payload, PayloadOf(name));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(compiled, 10);
}

// Each child looks up every kernel many times in caches of its own, while it also damages and
// prunes: the answer must always be right.
int AbuseInAChild(const KernelCache::Options& options, int seed) {
  for (int round = 0; round < 40; ++round) {
    KernelCache cache(options);
    std::string name = fmt::format("k{}", (seed + round) % 5);
    auto kernel =
        cache.Get(Request(name), [&]() -> Result<std::string> { return PayloadOf(name); });
    if (!kernel.ok() || *kernel->payload != PayloadOf(name)) return 1;
    if (round % 7 == seed % 7) cache.Prune(2000);
    if (round % 5 == seed % 5) {
      std::string key = Request(name).Key().Hex();
      std::string file =
          fmt::format("{}/v1/{}/{}/kernel.cubin", options.root, key.substr(0, 2), key);
      if (::truncate(file.c_str(), 10) != 0 && errno != ENOENT) return 2;
    }
  }
  return 0;
}

TEST_F(KernelCacheTest, ManyProcessesShareOneDirectory) {
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(AbuseInAChild(Options(), i));
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  KernelCache cache(Options());
  cache.Verify();
  for (const CacheEntry& entry : cache.List()) EXPECT_EQ(entry.damage, "");
  EXPECT_TRUE(fs::is_empty(fs::path(Options().root) / "v1" / "tmp"));
}

TEST_F(KernelCacheTest, LosingTheRaceToStoreIsSuccess) {
  KernelCache slow(Options());
  auto options = Options();
  options.patience = std::chrono::milliseconds(10);
  KernelCache impatient(options);
  auto kernel = slow.Get(Request("a"), [&]() -> Result<std::string> {
    EXPECT_EQ(Lookup(impatient, "a"), Origin::kCompiled);  // another process stores first
    return PayloadOf("a");
  });
  ASSERT_TRUE(kernel.ok());
  EXPECT_EQ(Lookup("a"), Origin::kDisk);
  EXPECT_TRUE(fs::is_empty(fs::path(Options().root) / "v1" / "tmp"));
}

TEST_F(KernelCacheTest, AnUnusableRootIsMemoryOnly) {
  std::ofstream(folder_.path() + "/file") << "not a folder";
  for (const std::string& root :
       {std::string(), folder_.path() + "/file", std::string("/proc/none/cache")}) {
    KernelCache cache({.root = root});
    EXPECT_FALSE(cache.disk().usable()) << root;
    EXPECT_NE(cache.disk().status().message(), "");
    compiles_ = 0;
    EXPECT_EQ(Lookup(cache, "a"), Origin::kCompiled);
    EXPECT_EQ(Lookup(cache, "a"), Origin::kMemory);
    EXPECT_EQ(compiles_, 1);
    EXPECT_TRUE(cache.List().empty());
  }
}

// As root, permissions bind nobody, so the child drops to another user where it can.
TEST_F(KernelCacheTest, AReadOnlyDirectoryStillServes) {
  Lookup("a");
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  for (const auto& file : fs::recursive_directory_iterator(Options().root)) {
    fs::permissions(file.path(), file.is_directory() ? fs::perms(0555) : fs::perms(0444));
  }
  fs::permissions(Options().root, fs::perms(0555));
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::geteuid() == 0 && (::chmod("/tmp", 01777), ::setuid(65534)) != 0) ::_exit(3);
    if (::access(Options().root.c_str(), R_OK | X_OK) != 0) ::_exit(4);  // a private parent folder
    KernelCache cache(Options());
    auto never = []() -> Result<std::string> { return Status::Error(Code::kInternal, "compiled"); };
    auto stored = cache.Get(Request("a"), never);
    auto made = cache.Get(Request("b"), []() -> Result<std::string> { return PayloadOf("b"); });
    bool right = stored.ok() && stored->origin == Origin::kDisk && made.ok();
    ::_exit(right && !cache.disk().CheckWritable().ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  for (const auto& file : fs::recursive_directory_iterator(Options().root)) {
    if (file.is_directory()) fs::permissions(file.path(), fs::perms(0700));
  }
  fs::permissions(Options().root, fs::perms(0700));
  if (WEXITSTATUS(status) >= 3)
    GTEST_SKIP() << "no other user can be taken here: " << WEXITSTATUS(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(fs::exists(Entry("b")));
}

TEST_F(KernelCacheTest, ADirectoryThatEveryoneMayWriteIsNotTrusted) {
  Lookup("a");
  fs::permissions(fs::path(Options().root) / "v1", fs::perms(0777));
  KernelCache cache(Options());
  EXPECT_FALSE(cache.disk().usable());
  EXPECT_NE(cache.disk().status().message().find("writable by everyone"), std::string::npos);
  EXPECT_EQ(Lookup(cache, "a"), Origin::kCompiled);
}

TEST_F(KernelCacheTest, PruneRemovesWhatWasUsedLongestAgo) {
  for (int i = 0; i < 10; ++i) Lookup(fmt::format("k{}", i));
  const int64_t now = ::time(nullptr);
  for (int i = 0; i < 10; ++i) SetLastUse(fmt::format("k{}", i), now - 10000 + i * 100);
  EXPECT_EQ(Lookup("k0"), Origin::kDisk);  // a hit renews the oldest
  KernelCache cache(Options());
  int64_t total = 0;
  for (const CacheEntry& entry : cache.List()) total += entry.bytes;
  PruneReport report = cache.Prune(total / 2);
  EXPECT_EQ(report.removed_entries, 5);
  EXPECT_EQ(report.kept_entries, 5);
  EXPECT_LE(report.kept_bytes, total / 2);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(fs::exists(Entry(fmt::format("k{}", i))), i == 0 || i > 5) << i;
  }
}

TEST_F(KernelCacheTest, AStoreBeyondTheLimitPrunes) {
  KernelCache cache({.root = Options().root, .disk_limit_bytes = 10000});
  for (int i = 0; i < 40; ++i) {
    Lookup(cache, fmt::format("k{}", i));
    SetLastUse(fmt::format("k{}", i), ::time(nullptr) - 1000 + i);
  }
  int64_t total = 0;
  auto entries = cache.List();
  for (const CacheEntry& entry : entries) total += entry.bytes;
  EXPECT_LT(total, 15000);
  EXPECT_GE(entries.size(), 4u);
  EXPECT_TRUE(fs::exists(Entry("k39")));
  EXPECT_FALSE(fs::exists(Entry("k0")));
}

// A process looks at some of so many entries, as it stores its first.
TEST_F(KernelCacheTest, ManyEntriesAreEstimated) {
  constexpr size_t kEntries = 1500;
  KernelCache writer(Options());
  for (size_t i = 0; i < kEntries; ++i) Lookup(writer, fmt::format("k{}", i));
  int64_t total = 0;
  for (const CacheEntry& entry : writer.List()) total += entry.bytes;
  KernelCache roomy({.root = Options().root, .disk_limit_bytes = total * 5 / 4});
  Lookup(roomy, "one more");
  EXPECT_EQ(writer.List().size(), kEntries + 1);
  KernelCache tight({.root = Options().root, .disk_limit_bytes = total * 4 / 5});
  Lookup(tight, "another");
  const auto left = static_cast<double>(writer.List().size());
  EXPECT_NEAR(left / kEntries, 0.72, 0.02);  // a tenth below the limit
}

TEST_F(KernelCacheTest, PruningWaitsForNobody) {
  Lookup("a");
  int lock = ::open((Options().root + "/v1/lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  KernelCache cache(Options());
  EXPECT_TRUE(cache.Prune(0).busy);
  EXPECT_TRUE(fs::exists(Entry("a")));
  ::close(lock);
  EXPECT_EQ(cache.Prune(0).removed_entries, 1);
  EXPECT_FALSE(fs::exists(Entry("a")));
}

// Two cache objects stand for two processes: locks belong to open files.
TEST_F(KernelCacheTest, WhoCompilesIsWaitedForByOtherProcesses) {
  std::atomic<bool> is_compiling = false;
  std::thread first([&] {
    KernelCache cache(Options());
    const auto kernel = cache.Get(Request("a"), [&]() -> Result<std::string> {
      is_compiling = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return PayloadOf("a");
    });
    EXPECT_TRUE(kernel.ok());
  });
  while (!is_compiling) std::this_thread::yield();
  EXPECT_EQ(Lookup("a"), Origin::kDisk);
  EXPECT_EQ(Lookup("b"), Origin::kCompiled);
  first.join();
  EXPECT_EQ(compiles_, 1);
  EXPECT_TRUE(fs::is_empty(fs::path(Options().root) / "v1" / "tmp"));
}

TEST_F(KernelCacheTest, PatienceEnds) {
  Lookup("b");  // makes the folders
  const std::string turn =
      fmt::format("{}/v1/tmp/{}.turn", Options().root, Request("a").Key().Hex());
  const int lock = ::open(turn.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  auto options = Options();
  options.patience = std::chrono::milliseconds(30);
  KernelCache cache(options);
  EXPECT_EQ(Lookup(cache, "a"), Origin::kCompiled);
  EXPECT_TRUE(fs::exists(turn));  // is not ours to remove
  ::close(lock);
}

TEST_F(KernelCacheTest, ATurnThatNobodyHoldsIsFree) {
  Lookup("b");
  const std::string turn =
      fmt::format("{}/v1/tmp/{}.turn", Options().root, Request("a").Key().Hex());
  std::ofstream(turn) << "left by a crash";
  EXPECT_EQ(Lookup("a"), Origin::kCompiled);
  EXPECT_FALSE(fs::exists(turn));
}

TEST_F(KernelCacheTest, AFailedCompileGivesTheTurnBack) {
  KernelCache cache(Options());
  const auto failed = cache.Get(
      Request("a"), []() -> Result<std::string> { return Status::Error(Code::kInternal, "no"); });
  EXPECT_FALSE(failed.ok());
  auto options = Options();
  options.patience = std::chrono::milliseconds(0);
  KernelCache other(options);
  EXPECT_EQ(Lookup(other, "a"), Origin::kCompiled);
}

TEST_F(KernelCacheTest, PruningSweepsWhatACrashLeft) {
  Lookup("a");
  fs::path stage = fs::path(Options().root) / "v1" / "tmp" / "crash1";
  fs::create_directories(stage);
  std::ofstream(stage / "kernel.cu") << "half";
  KernelCache cache(Options());
  cache.Prune(1 << 20);
  EXPECT_TRUE(fs::exists(stage));  // may be at work
  timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, stage.c_str(), old, 0), 0);
  cache.Prune(1 << 20);
  EXPECT_FALSE(fs::exists(stage));
  EXPECT_TRUE(fs::exists(Entry("a")));
}

TEST_F(KernelCacheTest, VerifyNamesAndRemovesTheDamaged) {
  Lookup("a");
  Lookup("b");
  fs::resize_file(Entry("b") / "kernel.cubin", 7);
  KernelCache cache(Options());
  EXPECT_EQ(cache.List().size(), 2u);
  auto damaged = cache.Verify();
  ASSERT_EQ(damaged.size(), 1u);
  EXPECT_EQ(damaged[0].key, Request("b").Key().Hex());
  EXPECT_NE(damaged[0].damage.find("kernel.cubin"), std::string::npos);
  ASSERT_EQ(cache.List().size(), 1u);
  EXPECT_EQ(cache.List()[0].fields, Request("a").fields);
}

TEST_F(KernelCacheTest, MemoryIsLimited) {
  KernelCache cache({.root = "", .memory_limit_bytes = 5000});
  for (int i = 0; i < 20; ++i) Lookup(cache, fmt::format("k{}", i));
  EXPECT_EQ(Lookup(cache, "k19"), Origin::kMemory);
  EXPECT_EQ(Lookup(cache, "k0"), Origin::kCompiled);
}

}  // namespace
}  // namespace kiln::runtime
