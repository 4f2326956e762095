// Threads that may not be had: a process limit (ulimit -u, a container's pids) makes std::thread
// throw. Every place that starts threads asks here, goes on with those that it got, and with the
// calling thread alone where it got none. Used by the CPU's pool, the background, and whatever
// compiles side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace kiln {

// The number of cores of the machine, at least one.
int Cores();
// The number of threads to start for a wish: at least one and at most four for each core.
int CappedThreads(int64_t wish);

// Starts a thread; nothing where the system has none left. The caller then calls LogNoThread, which
// says so once, while it holds no lock: a log's reader may be the client's function.
std::optional<std::thread> TryThread(std::function<void()> work);
void LogNoThread();

// False where the test's threads are used up (SetThreadsLeftForTest).
bool MayTryThread();

// The result of `work`, which begins at once in a thread of its own or, where there is none, when
// the result is asked for.
template <class Work>
auto Async(Work work) -> std::future<decltype(work())> {
  if (MayTryThread()) {
    try {
      return std::async(std::launch::async, work);
    } catch (const std::system_error&) {  // no thread left
    }
  }
  LogNoThread();
  return std::async(std::launch::deferred, std::move(work));
}

// Calls work(0) ... work(count - 1), each once, on this thread and up to `threads` - 1 others;
// returns when all are done. The first exception of `work` is thrown here; its thread takes no
// further pieces.
void ForEachTogether(size_t count, int64_t threads, const std::function<void(size_t)>& work);

// Limits the threads that a test can still have; negative for what the system gives.
void SetThreadsLeftForTest(int threads);

}  // namespace kiln
