// Work in the background: all of it, the rest dropped at the end, and forks.
#include "api/prefetch/background.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>

#include "ir/base/threads.h"

namespace kiln::api {
namespace {

TEST(BackgroundTest, EverythingIsDoneInOrderOfOneThread) {
  Background background(1);
  std::vector<int> done;
  for (int i = 0; i < 100; ++i) background.Add([&done, i] { done.push_back(i); });
  background.Wait();
  ASSERT_EQ(done.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(done));
}

TEST(BackgroundTest, WhatComesFirstIsDoneBeforeWhatWaits) {
  Background background(1);
  std::promise<void> go;
  std::vector<int> done;
  background.Add([&] { go.get_future().wait(); });
  for (int i = 0; i < 3; ++i) background.Add([&done, i] { done.push_back(i); });
  background.AddFirst([&done] { done.push_back(-1); });
  go.set_value();
  background.Wait();
  EXPECT_EQ(done, (std::vector<int>{-1, 0, 1, 2}));
}

TEST(BackgroundTest, ManyThreadsAndWorkThatAddsWork) {
  Background background(4);
  std::atomic<int> done = 0;
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 50; ++i) background.Add([&] { background.Add([&] { ++done; }); });
    background.Wait();
    EXPECT_EQ(done, 50 * round);
  }
}

TEST(BackgroundTest, TheEndWaitsForWhatHasBegunAndDropsTheRest) {
  std::atomic<int> begun = 0, done = 0;
  {
    Background background(1);
    for (int i = 0; i < 10; ++i) {
      background.Add([&] {
        ++begun;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ++done;
      });
    }
    while (begun == 0) std::this_thread::yield();
  }
  EXPECT_EQ(done, begun);
  EXPECT_LT(done, 10);
}

// Background wishes for four threads and has one; where it has none nothing is done, and later work
// has its chance again.
TEST(BackgroundTest, GoesOnWithTheThreadsThatThereAre) {
  Background background(4);
  std::atomic<int> done = 0;
  SetThreadsLeftForTest(1);
  // The one thread would end whenever nothing waits, and no second could be had.
  std::promise<void> all_added;
  background.Add([added = all_added.get_future().share()] { added.wait(); });
  for (int i = 0; i < 50; ++i) background.Add([&done] { ++done; });
  all_added.set_value();
  background.Wait();
  EXPECT_EQ(done, 50);
  SetThreadsLeftForTest(0);
  for (int i = 0; i < 50; ++i) background.Add([&done] { ++done; });
  background.Wait();
  EXPECT_EQ(done, 50);
  SetThreadsLeftForTest(-1);
  background.Add([&done] { ++done; });
  background.Wait();
  EXPECT_EQ(done, 51);
}

// A fork waits for what is being done, so that the child has no lock that another thread holds;
// there nothing is done, and nothing waited for.
TEST(BackgroundTest, AChildOfForkHasNoneOfIt) {
  auto* const background = new Background(2);
  std::atomic<int> inside = 0, begun = 0;
  for (int i = 0; i < 20; ++i) {
    background->Add([&] {
      ++begun;
      ++inside;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      --inside;
    });
  }
  while (begun < 2) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    if (inside != 0) _exit(1);
    const int before = begun;
    background->Add([&] { ++begun; });
    delete background;
    _exit(begun == before ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  background->Wait();
  EXPECT_EQ(begun, 20);
  delete background;
}

}  // namespace
}  // namespace kiln::api
