#include "ir/base/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include "ir/base/log.h"

namespace kiln {
namespace {

constexpr int64_t kThreadsPerCore = 4;

std::atomic<int> left_for_test{-1};
std::atomic<bool> told{false};

}  // namespace

int Cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

int CappedThreads(int64_t wish) {
  return static_cast<int>(std::clamp<int64_t>(wish, 1, kThreadsPerCore * Cores()));
}

bool MayTryThread() {
  int left = left_for_test.load();
  while (left > 0 && !left_for_test.compare_exchange_weak(left, left - 1)) {
  }
  return left != 0;
}

void LogNoThread() {
  if (told.exchange(true)) return;
  LOG(kWarn, "the system gives no more threads (see ulimit -u): work goes on with those it gave");
}

std::optional<std::thread> TryThread(std::function<void()> work) {
  if (!MayTryThread()) return std::nullopt;
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

void ForEachTogether(size_t count, int64_t threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> begun = 0;
  std::mutex mutex;
  std::exception_ptr thrown;  // guarded by mutex
  const auto take = [&] {
    try {
      for (size_t i = begun++; i < count; i = begun++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  const size_t most = std::min(count, static_cast<size_t>(CappedThreads(threads)));
  others.reserve(most);
  while (others.size() + 1 < most) {
    std::optional<std::thread> other = TryThread(take);
    if (!other) {
      LogNoThread();
      break;
    }
    others.push_back(*std::move(other));
  }
  take();
  for (std::thread& other : others) other.join();
  if (thrown) std::rethrow_exception(thrown);
}

void SetThreadsLeftForTest(int threads) { left_for_test.store(threads); }

}  // namespace kiln
