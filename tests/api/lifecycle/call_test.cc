// Entry (api/lifecycle/call.h) under what a client does to the thread and the environment that it
// runs in.
#include "api/lifecycle/call.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace kiln::api {
namespace {

// The environment is read at the first call.
[[maybe_unused]] const int kIsSet =
    setenv("KILN_LOG", "warn", 1) + setenv("KILN_CPU_THREADS", "many", 1) +
    setenv("KILN_TEST_BUILD", "7", 1) + setenv("KILN_TEST_DEVICE", "cpu", 1);

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(CallTest, VariablesWithoutEffectAreWarnedOfOnce) {
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(RunEntry("cudnnTest", [] { return Status(); }), 0);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(Count(text, "KILN_CPU_THREADS='many' is ignored"), 1u) << text;
  EXPECT_EQ(Count(text, "KILN_TEST_BUILD is no variable of Kiln"), 1u) << text;
  EXPECT_EQ(Count(text, "the nearest is KILN_DEVICE"), 1u) << text;
}

struct Victim {
  std::mutex mutex;
  std::atomic<bool> is_inside = false, is_done = false;

  static void* Run(void* data) {
    auto& victim = *static_cast<Victim*>(data);
    RunEntry("cudnnTest", [&] {
      const std::lock_guard lock(victim.mutex);
      victim.is_inside = true;
      for (int i = 0; i < 20; ++i) usleep(10'000);  // where a cancellation would strike
      victim.is_done = true;
      return Status();
    });
    while (true) pthread_testcancel();
  }
};

// The call ends, its locks are free, and the thread ends after it.
TEST(CallTest, ACancelledThreadEndsBehindItsCall) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    Victim victim;
    pthread_t thread;
    if (pthread_create(&thread, nullptr, &Victim::Run, &victim) != 0) _exit(2);
    while (!victim.is_inside) std::this_thread::yield();
    void* result = nullptr;
    if (pthread_cancel(thread) != 0 || pthread_join(thread, &result) != 0) _exit(3);
    _exit(result == PTHREAD_CANCELED && victim.is_done && victim.mutex.try_lock() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(CallTest, TheClientsCancelStateIsAsItWas) {
  for (const int state : {PTHREAD_CANCEL_ENABLE, PTHREAD_CANCEL_DISABLE}) {
    int inside = -1, after = -1;
    pthread_setcancelstate(state, nullptr);
    RunEntry("cudnnTest", [&] {
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &inside);
      return Status();
    });
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &after);
    EXPECT_EQ(inside, PTHREAD_CANCEL_DISABLE);
    EXPECT_EQ(after, state);
  }
}

}  // namespace
}  // namespace kiln::api
