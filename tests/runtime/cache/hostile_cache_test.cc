// The kernel cache in hostile surroundings: file systems without locks, limits of the process,
// things in the place of files, writers that are killed, and many processes at one limit.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>

#include "ir/base/log.h"
#include "runtime/cache/file_lock.h"
#include "runtime/cache/kernel_cache.h"
#include "runtime/cache/record_files.h"
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

// The origin of the kernel in a new cache object, which is what another process sees.
Origin Lookup(const KernelCache::Options& options, const std::string& name,
              size_t payload_bytes = 1000) {
  KernelCache cache(options);
  const std::string payload(payload_bytes, 'p');
  const auto kernel =
      cache.Get(Request(name), [&]() -> Result<std::string> { return payload + name; });
  EXPECT_TRUE(kernel.ok()) << kernel.status().message();
  EXPECT_EQ(*kernel->payload, payload + name);
  return kernel->origin;
}

int64_t BytesOf(const KernelCache::Options& options) {
  int64_t bytes = 0;
  for (const CacheEntry& entry : KernelCache(options).List()) bytes += entry.bytes;
  return bytes;
}

// The exit status of a child that does `body`; -1 where a signal ended it.
int InAChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(120);
    ::_exit(body());
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class HostileCacheTest : public testing::Test {
 protected:
  void SetUp() override { ::alarm(300); }  // a FIFO that blocks
  void TearDown() override {
    SetFlockForTest(nullptr);
    SetLogTap({});
  }
  KernelCache::Options Options(int64_t limit = int64_t{1} << 30) const {
    return {.root = folder_.path() + "/cache", .disk_limit_bytes = limit};
  }
  fs::path Directory() const { return fs::path(Options().root) / "v1"; }
  fs::path Entry(const std::string& name) const {
    const std::string key = Request(name).Key().Hex();
    return Directory() / key.substr(0, 2) / key;
  }
  static void SetAge(const fs::path& path, int64_t seconds) {
    const timespec then = {.tv_sec = ::time(nullptr) - seconds, .tv_nsec = 0};
    const timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  TemporaryFolder folder_;
};

// --- locks that do not exist

std::atomic<int> flock_error;

int FailingFlock(int, int) {
  errno = flock_error;
  return -1;
}

TEST_F(HostileCacheTest, WithoutLocksNobodyWaitsAndPruningWorks) {
  int lines = 0;
  SetLogTap([&](Severity, std::string_view line) {
    lines += line.find("cannot be locked") != std::string_view::npos ? 1 : 0;
  });
  SetFlockForTest(&FailingFlock);
  const auto begin = std::chrono::steady_clock::now();
  for (const int error : {ENOLCK, EOPNOTSUPP, EINVAL, ENOSYS, EIO}) {
    flock_error = error;
    EXPECT_EQ(Lookup(Options(), "a"), Origin::kCompiled) << error;
    EXPECT_EQ(Lookup(Options(), "a"), Origin::kDisk) << error;
    EXPECT_TRUE(fs::is_empty(Directory() / "tmp")) << error;
    const PruneReport report = KernelCache(Options()).Prune(0);
    EXPECT_FALSE(report.busy) << error;
    EXPECT_EQ(report.removed_entries, 1) << error;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(lines, 1);
}

TEST_F(HostileCacheTest, WithoutLocksTheLimitHolds) {
  flock_error = ENOLCK;
  SetFlockForTest(&FailingFlock);
  for (int i = 0; i < 100; ++i) Lookup(Options(50'000), "k" + std::to_string(i), 2000);
  EXPECT_LE(BytesOf(Options()), 50'000);
  EXPECT_GE(BytesOf(Options()), 40'000);
}

std::atomic<int> interruptions;

int InterruptedFlock(int file, int operation) {
  if (interruptions-- > 0) {
    errno = EINTR;
    return -1;
  }
  return ::flock(file, operation);
}

TEST_F(HostileCacheTest, AnInterruptedLockIsTriedAgain) {
  Lookup(Options(), "a");
  const int file = ::open((Directory() / "lock").c_str(), O_RDWR | O_CREAT, 0600);
  SetFlockForTest(&InterruptedFlock);
  interruptions = 3;
  EXPECT_EQ(LockFile(file, std::chrono::milliseconds(0)), FileLock::kTaken);
  interruptions = 3;
  EXPECT_TRUE(KernelCache(Options()).Prune(0).busy);
  ::close(file);
}

// --- things in the place of files

void MakeFifo(const fs::path& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }
void MakeSparse(const fs::path& path) {
  std::ofstream{path};
  ASSERT_EQ(::truncate(path.c_str(), int64_t{4} << 40), 0);
}
void MakeFolder(const fs::path& path) { fs::create_directories(path / "within"); }
void MakeLink(const fs::path& path) { fs::create_symlink("/etc/passwd", path); }
void MakeLoop(const fs::path& path) { fs::create_symlink(path, path); }
void MakeFileForAll(const fs::path& path) {
  std::ofstream(path) << "anybody's";
  fs::permissions(path, fs::perms(0666));
}

using Maker = void (*)(const fs::path&);
constexpr Maker kMakers[] = {MakeFifo, MakeSparse, MakeFolder, MakeLink, MakeLoop, MakeFileForAll};

TEST_F(HostileCacheTest, WhatIsNoFileIsAMissAndIsRepaired) {
  for (const char* file : {"kernel.cu", "kernel.cubin", "manifest.txt"}) {
    for (size_t i = 0; i < std::size(kMakers); ++i) {
      Lookup(Options(), "a");
      fs::remove(Entry("a") / file);
      kMakers[i](Entry("a") / file);
      EXPECT_EQ(Lookup(Options(), "a"), Origin::kCompiled) << file << " as " << i;
      EXPECT_EQ(Lookup(Options(), "a"), Origin::kDisk) << file << " as " << i << " stayed";
    }
  }
}

TEST_F(HostileCacheTest, AFileThatOthersMayWriteIsNotRun) {
  for (const char* file : {"kernel.cu", "kernel.cubin", "manifest.txt"}) {
    Lookup(Options(), "a");
    fs::permissions(Entry("a") / file, fs::perms(0602));
    EXPECT_EQ(Lookup(Options(), "a"), Origin::kCompiled) << file;
    EXPECT_EQ(Lookup(Options(), "a"), Origin::kDisk) << file;
  }
}

TEST_F(HostileCacheTest, AFolderThatOthersMayWriteIsNotRun) {
  for (const fs::path& folder : {Entry("a"), Entry("a").parent_path(), Directory() / "tmp"}) {
    Lookup(Options(), "a");
    fs::permissions(folder, fs::perms(0777));
    const bool is_cached = folder == Directory() / "tmp";  // from which nothing is read
    EXPECT_EQ(Lookup(Options(), "a"), is_cached ? Origin::kDisk : Origin::kCompiled) << folder;
    EXPECT_EQ(Lookup(Options(), "a"), Origin::kDisk) << folder;
  }
  // Nothing is stored through it either.
  EXPECT_EQ(Lookup(Options(), "b"), Origin::kCompiled);
  EXPECT_EQ(Lookup(Options(), "b"), Origin::kCompiled);
}

// In the place of an entry, and of one of the folders that entries are spread over.
TEST_F(HostileCacheTest, WhatIsNoEntryIsAMissAndIsRepaired) {
  for (const bool is_shard : {false, true}) {
    for (size_t i = 0; i < std::size(kMakers); ++i) {
      const fs::path place = is_shard ? Entry("a").parent_path() : Entry("a");
      Lookup(Options(), "a");
      fs::remove_all(place);
      kMakers[i](place);
      EXPECT_EQ(Lookup(Options(), "a"), Origin::kCompiled) << is_shard << " as " << i;
      EXPECT_EQ(Lookup(Options(), "a"), Origin::kDisk) << is_shard << " as " << i << " stayed";
    }
  }
}

TEST_F(HostileCacheTest, VerifyRemovesAllThatIsDamaged) {
  for (const char* file : {"", "kernel.cu", "kernel.cubin", "manifest.txt"}) {
    for (size_t i = 0; i < std::size(kMakers); ++i) {
      Lookup(Options(), "a");
      Lookup(Options(), "sound");
      const fs::path place = *file == '\0' ? Entry("a") : Entry("a") / file;
      fs::remove_all(place);
      kMakers[i](place);
      const auto damaged = KernelCache(Options()).Verify();
      ASSERT_EQ(damaged.size(), 1u) << file << " as " << i;
      EXPECT_EQ(damaged[0].key, Request("a").Key().Hex());
      EXPECT_GT(damaged[0].damage.size(), 10u);
      EXPECT_FALSE(fs::exists(fs::symlink_status(Entry("a")))) << file << " as " << i;
      EXPECT_EQ(KernelCache(Options()).List().size(), 1u);
      EXPECT_TRUE(fs::is_empty(Directory() / "tmp"));
    }
  }
}

TEST_F(HostileCacheTest, RecordsAreReadFromFilesAlone) {
  for (const Maker maker : {&MakeFifo, &MakeSparse, &MakeFolder, &MakeLoop}) {
    const std::string file = folder_.path() + "/records.txt";
    fs::remove_all(file);
    maker(file);
    EXPECT_FALSE(ReadRecordLines(file).ok());
    if (maker != &MakeSparse) {
      EXPECT_FALSE(AppendRecordLine(file, "line").ok());
    }
  }
}

// --- many processes, and those that are killed

// All have stored their first before any stores its second, so that none finds the others' kernels.
TEST_F(HostileCacheTest, ALimitHoldsForManyProcesses) {
  constexpr int64_t kLimit = 1 << 20;
  constexpr int kProcesses = 16, kKernels = 30;  // each process alone is below the limit
  int first_done[2], go[2];
  ASSERT_EQ(::pipe(first_done), 0);
  ASSERT_EQ(::pipe(go), 0);
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      KernelCache cache(Options(kLimit));
      char byte = 0;
      ::close(go[1]);
      for (int i = 0; i < kKernels; ++i) {
        if (i == 1 && (::write(first_done[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 0))
          ::_exit(2);
        const auto made =
            cache.Get(Request(fmt::format("{} {}", p, i)),
                      []() -> Result<std::string> { return std::string(20'000, 'p'); });
        if (!made.ok()) ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  char byte = 0;
  for (int p = 0; p < kProcesses; ++p) EXPECT_EQ(::read(first_done[0], &byte, 1), 1);
  ::close(go[1]);
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_LE(BytesOf(Options()), kLimit);
  EXPECT_GE(BytesOf(Options()), kLimit / 2);
}

// Each process stores one kernel, so that none sees what the others store.
TEST_F(HostileCacheTest, ALimitHoldsForProcessesOfOneKernelEach) {
  for (int i = 0; i < 60; ++i) Lookup(Options(100'000), "k" + std::to_string(i), 5000);
  EXPECT_LE(BytesOf(Options()), 100'000);
  EXPECT_GE(BytesOf(Options()), 80'000);
}

TEST_F(HostileCacheTest, ADamagedSumIsCountedAnew) {
  const auto store = [&](int i) { Lookup(Options(50'000), "k" + std::to_string(i), 2000); };
  for (int i = 0; i < 10; ++i) store(i);
  for (size_t kind = 0; kind < std::size(kMakers) + 2; ++kind) {
    fs::remove_all(Directory() / "usage");
    if (kind < std::size(kMakers)) kMakers[kind](Directory() / "usage");
    if (kind == std::size(kMakers)) std::ofstream(Directory() / "usage") << "99999999999999999999";
    for (int i = 0; i < 60; ++i) store(static_cast<int>(100 * kind) + i);
    EXPECT_LE(BytesOf(Options()), 50'000) << kind;
    EXPECT_GE(BytesOf(Options()), 40'000) << kind;
  }
}

TEST_F(HostileCacheTest, NoLimitRemovesNothing) {
  for (int i = 0; i < 20; ++i) Lookup(Options(-1), "k" + std::to_string(i));
  EXPECT_EQ(KernelCache(Options()).List().size(), 20u);
  EXPECT_EQ(KernelCache(Options()).Prune(-1).removed_entries, 0);
  EXPECT_EQ(KernelCache(Options()).Prune(-1).kept_entries, 20);
}

TEST_F(HostileCacheTest, WhatAKilledWriterLeftIsCountedAndRemoved) {
  Lookup(Options(), "a");
  const auto leave = [&](const char* name) {
    const fs::path stage = Directory() / "tmp" / name;
    fs::create_directories(stage);
    fs::permissions(stage, fs::perms(0700));
    std::ofstream(stage / "kernel.cubin") << std::string(5000, 'p');
    SetAge(stage, 60);
    return stage;
  };
  const fs::path dead = leave("dead");
  const fs::path living = leave("living");
  const int lock = ::open(living.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  EXPECT_EQ(KernelCache(Options()).Prune(-1).removed_bytes, 5000);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(living));
  leave("dead");
  Lookup(Options(), "b");  // a process' first store looks, too
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(living));
  ::close(lock);
  Lookup(Options(), "c");
  EXPECT_TRUE(fs::is_empty(Directory() / "tmp"));
}

// --- limits of the process

TEST_F(HostileCacheTest, AFileSizeLimitEndsNoProgram) {
  Lookup(Options(), "before");
  const std::string records = folder_.path() + "/records.txt";
  EXPECT_EQ(InAChild([&] {
              const rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
              for (const char* name : {"large", "larger"})
                if (Lookup(Options(), name, 100'000) != Origin::kCompiled) return 3;
              const std::string line(10'000, 'x');
              if (AppendRecordLine(records, line).ok()) return 4;
              if (ReplaceFile(folder_.path() + "/graph.kiln", line).ok()) return 5;
              return Lookup(Options(), "small", 100) == Origin::kCompiled ? 0 : 6;
            }),
            0);
  EXPECT_TRUE(fs::is_empty(Directory() / "tmp"));
  EXPECT_FALSE(fs::exists(folder_.path() + "/graph.kiln"));
  EXPECT_EQ(Lookup(Options(), "small", 100), Origin::kDisk);
  EXPECT_EQ(Lookup(Options(), "large", 100'000), Origin::kCompiled);
}

// A home that may not be written, for a user whom permissions bind.
TEST(HostileHomeTest, AReadOnlyHomeIsCalledSo) {
  std::string home = "/tmp/kiln_home_XXXXXX";
  ASSERT_NE(::mkdtemp(home.data()), nullptr);
  ASSERT_EQ(::chmod(home.c_str(), 0555), 0);
  EXPECT_EQ(InAChild([&] {
              if (::geteuid() == 0 && ::setuid(61'236) != 0) return 2;
              const KernelCache cache({.root = home + "/.cache/kiln"});
              const std::string& text = cache.disk().status().message();
              const bool is_told =
                  text.find("cannot create " + home + "/.cache: Permission denied") == 0;
              if (!is_told) fmt::print(stderr, "{}\n", text);
              return is_told ? 0 : 1;
            }),
            0);
  fs::remove_all(home);
}

}  // namespace
}  // namespace kiln::runtime
