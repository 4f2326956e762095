// The pool: every index once, whoever calls and however often, and alone after a fork.
#include "runtime/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "ir/base/threads.h"

namespace kiln::runtime {
namespace {

struct Marks {
  explicit Marks(int64_t count) : counts(count) {}
  std::vector<std::atomic<int>> counts;

  static void Run(void* context, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) static_cast<Marks*>(context)->counts[i].fetch_add(1);
  }
  bool AllOnce() const {
    return std::ranges::all_of(counts, [](const std::atomic<int>& c) { return c.load() == 1; });
  }
};

// First, before there are pools. A process limit of 1 binds no user 0, so that the child becomes
// another one.
TEST(ThreadPool, WorksWhereTheSystemGivesNoThread) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (geteuid() == 0 && setuid(61'235) != 0) _exit(2);
    const rlimit none = {.rlim_cur = 1, .rlim_max = 1};
    if (setrlimit(RLIMIT_NPROC, &none) != 0) _exit(3);
    ThreadPool& pool = ThreadPool::ForProcess(16);
    Marks marks(1000);
    pool.ParallelFor(0, 1000, 1, &Marks::Run, &marks);
    _exit(marks.AllOnce() && pool.threads() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(ThreadPool, EveryIndexRunsOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool& pool = ThreadPool::ForProcess(threads);
    for (const int64_t count : {1, 2, 7, 100, 10007}) {
      for (const int64_t grain : {1, 3, 64, 100000}) {
        Marks marks(count);
        pool.ParallelFor(0, count, grain, &Marks::Run, &marks);
        ASSERT_TRUE(marks.AllOnce()) << threads << " threads, " << count << " by " << grain;
      }
    }
  }
}

TEST(ThreadPool, AnEmptyRangeRunsNothing) {
  ThreadPool::ForProcess(2).ParallelFor(3, 3, 1, [](void*, int64_t, int64_t) { FAIL(); }, nullptr);
}

TEST(ThreadPool, WorkersTakePart) {
  ThreadPool& pool = ThreadPool::ForProcess(3);
  struct Seen {
    std::mutex mutex;
    std::set<std::thread::id> threads;
  } seen;
  const auto body = [](void* context, int64_t, int64_t) {
    {
      auto& s = *static_cast<Seen*>(context);
      const std::lock_guard lock(s.mutex);
      s.threads.insert(std::this_thread::get_id());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  pool.ParallelFor(0, 30, 1, body, &seen);
  EXPECT_EQ(seen.threads.size(), 3u);
}

TEST(ThreadPool, CallersFromManyThreadsShareTheWorkers) {
  ThreadPool& pool = ThreadPool::ForProcess(4);
  std::vector<std::thread> callers;
  std::atomic<int> failures{0};
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        Marks marks(97 + round);
        pool.ParallelFor(0, 97 + round, 5, &Marks::Run, &marks);
        if (!marks.AllOnce()) failures.fetch_add(1);
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(failures.load(), 0);
}

// A body may itself share out work (a client's callback that launches): it must not deadlock.
TEST(ThreadPool, NestedRangesFinish) {
  static ThreadPool& pool = ThreadPool::ForProcess(3);
  Marks marks(64 * 32);
  pool.ParallelFor(
      0, 64, 1,
      [](void* context, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          pool.ParallelFor(i * 32, (i + 1) * 32, 4, &Marks::Run, context);
      },
      &marks);
  EXPECT_TRUE(marks.AllOnce());
}

// Pools of threads that nobody else asks for, since they are shared.
TEST(ThreadPool, GoesOnWithTheThreadsThatThereAre) {
  for (const int left : {0, 1}) {
    SetThreadsLeftForTest(left);
    ThreadPool& pool = ThreadPool::ForProcess(6 + left);
    SetThreadsLeftForTest(-1);
    EXPECT_EQ(pool.threads(), 1 + left);
    Marks marks(10007);
    pool.ParallelFor(0, 10007, 3, &Marks::Run, &marks);
    EXPECT_TRUE(marks.AllOnce()) << left;
  }
}

TEST(ThreadPool, AMillionThreadsAreFourForEachCore) {
  ThreadPool& pool = ThreadPool::ForProcess(1'000'000);
  EXPECT_EQ(pool.threads(), 4 * Cores());
  EXPECT_EQ(&pool, &ThreadPool::ForProcess(4 * Cores()));
  Marks marks(10007);
  pool.ParallelFor(0, 10007, 3, &Marks::Run, &marks);
  EXPECT_TRUE(marks.AllOnce());
}

TEST(ThreadPool, AForkedChildRunsAlone) {
  ThreadPool& pool = ThreadPool::ForProcess(4);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    Marks marks(1000);
    pool.ParallelFor(0, 1000, 1, &Marks::Run, &marks);
    _exit(marks.AllOnce() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace kiln::runtime
