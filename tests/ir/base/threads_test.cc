// ir/base/threads.h: all work is done with the threads that there are, be there none.
#include "ir/base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

namespace kiln {
namespace {

class ThreadsTest : public ::testing::Test {
 protected:
  void TearDown() override { SetThreadsLeftForTest(-1); }

  // True if each of `count` pieces was done once.
  static bool DoesAll(size_t count, int64_t threads) {
    std::vector<std::atomic<int>> done(count);
    ForEachTogether(count, threads, [&](size_t i) { ++done[i]; });
    return std::ranges::all_of(done, [](const std::atomic<int>& n) { return n == 1; });
  }
};

TEST_F(ThreadsTest, AWishIsCapped) {
  EXPECT_GE(Cores(), 1);
  EXPECT_EQ(CappedThreads(1), 1);
  EXPECT_EQ(CappedThreads(0), 1);
  EXPECT_EQ(CappedThreads(-7), 1);
  EXPECT_EQ(CappedThreads(int64_t{1} << 40), 4 * Cores());
}

TEST_F(ThreadsTest, EachPieceIsDoneOnceWithAnyNumberOfThreads) {
  for (const int left : {-1, 0, 1, 2}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}}) {
      for (const int64_t threads : {int64_t{1}, int64_t{3}, int64_t{1'000'000}}) {
        SetThreadsLeftForTest(left);
        EXPECT_TRUE(DoesAll(count, threads)) << left << " left, " << count << " by " << threads;
      }
    }
  }
}

TEST_F(ThreadsTest, SeveralThreadsTakePart) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  ForEachTogether(40, 3, [&](size_t) {
    {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  EXPECT_EQ(seen.size(), 3u);
}

// On whichever thread: the caller gets the first, and no thread outlives the call.
TEST_F(ThreadsTest, WhatIsThrownReachesTheCaller) {
  for (const int left : {-1, 0}) {
    SetThreadsLeftForTest(left);
    std::atomic<int> done = 0;
    EXPECT_THROW(ForEachTogether(100, 4,
                                 [&](size_t i) {
                                   if (i % 10 == 3) throw std::runtime_error("a bug");
                                   ++done;
                                 }),
                 std::runtime_error);
    EXPECT_GE(done, 3);
  }
}

TEST_F(ThreadsTest, AResultComesWithAThreadAndWithout) {
  const std::thread::id here = std::this_thread::get_id();
  const auto where = [] { return std::this_thread::get_id(); };
  EXPECT_NE(Async(where).get(), here);
  SetThreadsLeftForTest(0);
  EXPECT_FALSE(TryThread([] {}).has_value());
  EXPECT_EQ(Async(where).get(), here);
}

// The limit binds no user 0, so that the child becomes another one.
TEST_F(ThreadsTest, WorksWhereTheSystemGivesNoThread) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (geteuid() == 0 && setuid(61'234) != 0) _exit(2);
    const rlimit none = {.rlim_cur = 1, .rlim_max = 1};
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || TryThread([] {}).has_value()) _exit(3);
    const bool right = DoesAll(100, 8) && Async([] { return 5; }).get() == 5;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace kiln
