// ir/base/write_guard.h: writes that the system answers with a signal fail, and nothing more.
#include "ir/base/write_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>

#include "ir/base/log.h"

namespace kiln {
namespace {

constexpr size_t kLimit = 4096;

// A new file that takes kLimit bytes; the process' limit is lowered.
int OpenLimitedFile() {
  std::string path = std::string(getenv("TEST_TMPDIR")) + "/limited_XXXXXX";
  const int file = mkstemp(path.data());
  unlink(path.c_str());
  const rlimit limit = {.rlim_cur = kLimit, .rlim_max = kLimit};
  return setrlimit(RLIMIT_FSIZE, &limit) == 0 ? file : -1;
}

// The wait status of a child that exits with 0 where `body` holds.
int InAChild(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(WriteGuardTest, AFullFileIsAnError) {
  const std::string text(2 * kLimit, 'x');
  EXPECT_EQ(InAChild([&] {
              const int file = OpenLimitedFile();
              for (int i = 0; i < 3; ++i) {
                const WriteGuard guard;
                const ssize_t written = write(file, text.data(), text.size());
                if (i == 0 ? written != ssize_t{kLimit} : written != -1 || errno != EFBIG)
                  return false;
              }
              return true;
            }),
            0);
}

TEST(WriteGuardTest, APipeThatNobodyReadsIsAnError) {
  EXPECT_EQ(InAChild([] {
              int ends[2];
              if (pipe(ends) != 0) return false;
              close(ends[0]);
              const WriteGuard guard;
              return write(ends[1], "x", 1) == -1 && errno == EPIPE;
            }),
            0);
}

// The client's own arrangements are as they were: its mask, its pending signals, its death.
TEST(WriteGuardTest, LeavesTheClientsSignalsAlone) {
  EXPECT_EQ(InAChild([] {
              sigset_t mask;
              {
                const WriteGuard guard;
              }
              pthread_sigmask(SIG_SETMASK, nullptr, &mask);
              if (sigismember(&mask, SIGXFSZ) != 0 || sigismember(&mask, SIGPIPE) != 0)
                return false;
              sigset_t pipe_only, pending;
              sigemptyset(&pipe_only);
              sigaddset(&pipe_only, SIGPIPE);
              pthread_sigmask(SIG_BLOCK, &pipe_only, nullptr);
              pthread_kill(pthread_self(), SIGPIPE);
              {
                const WriteGuard guard;
              }
              pthread_sigmask(SIG_SETMASK, nullptr, &mask);
              sigpending(&pending);
              return sigismember(&mask, SIGPIPE) == 1 && sigismember(&pending, SIGPIPE) == 1;
            }),
            0);
  const int status = InAChild([] {
    const int file = OpenLimitedFile();
    {
      const WriteGuard guard;
    }
    const std::string text(kLimit, 'x');
    return write(file, text.data(), kLimit) == ssize_t{kLimit} && write(file, "x", 1) == 1;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << status;
}

TEST(WriteGuardTest, TheLogMayBeAFullFileOrABrokenPipe) {
  EXPECT_EQ(InAChild([] {
              dup2(OpenLimitedFile(), STDERR_FILENO);
              for (int i = 0; i < 10; ++i) LOG(kError, "{}", std::string(kLimit, 'x'));
              int ends[2];
              if (pipe(ends) != 0) return false;
              close(ends[0]);
              dup2(ends[1], STDERR_FILENO);
              LOG(kError, "nobody reads this");
              return true;
            }),
            0);
}

}  // namespace
}  // namespace kiln
