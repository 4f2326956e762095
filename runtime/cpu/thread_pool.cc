// The pool: a list of jobs under one mutex; the parts of a job are claimed with one atomic addition
// each.
#include "runtime/cpu/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "ir/base/threads.h"

namespace kiln::runtime {
namespace {

// Set in a child process after fork: no worker of its parent's pools exists there.
std::atomic<bool> forked{false};

// The time that an idle worker looks for the next job before it sleeps. Launches of one graph
// follow one another within microseconds, and waking a sleeper costs more than that.
constexpr auto kSpinTime = std::chrono::microseconds(30);

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool& ThreadPool::ForProcess(int threads) {
  static std::mutex mutex;
  static auto* pools = new std::map<int, ThreadPool*>();
  const std::lock_guard lock(mutex);
  if (pools->empty()) pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  ThreadPool*& pool = (*pools)[CappedThreads(threads)];
  if (!pool) pool = new ThreadPool(CappedThreads(threads));
  return *pool;
}

ThreadPool::ThreadPool(int threads) {
  int started = 1;
  for (; started < threads; ++started) {
    std::optional<std::thread> worker = TryThread([this] { WorkerLoop(); });
    if (!worker) {
      LogNoThread();
      break;
    }
    worker->detach();
  }
  threads_ = started;
}

void ThreadPool::ParallelFor(int64_t begin, int64_t end, int64_t grain, Body body, void* context) {
  if (begin >= end) return;
  grain = std::max<int64_t>(grain, 1);
  if (threads_ == 1 || end - begin <= grain || forked.load(std::memory_order_relaxed)) {
    return body(context, begin, end);
  }
  Job job{.body = body, .context = context, .end = end, .grain = grain, .next = begin};
  Enlist(job);
  RunParts(job);
  std::unique_lock lock(mutex_);
  Unlist(job);
  done_.wait(lock, [&] { return job.helpers == 0; });
}

void ThreadPool::RunParts(Job& job) {
  for (;;) {
    const int64_t begin = job.next.fetch_add(job.grain, std::memory_order_relaxed);
    if (begin >= job.end) return;
    job.body(job.context, begin, std::min(begin + job.grain, job.end));
  }
}

void ThreadPool::Enlist(Job& job) {
  {
    const std::lock_guard lock(mutex_);
    (last_ ? last_->following : first_) = &job;
    last_ = &job;
    arrivals_.fetch_add(1, std::memory_order_release);
  }
  const int64_t parts =
      (job.end - job.next.load(std::memory_order_relaxed) + job.grain - 1) / job.grain;
  if (parts > threads_ / 2) {
    work_.notify_all();
  } else {
    for (int64_t i = 1; i < parts; ++i) work_.notify_one();
  }
}

void ThreadPool::Unlist(Job& job) {
  if (!job.listed) return;
  job.listed = false;
  Job* before = nullptr;
  for (Job* j = first_; j != &job; j = j->following) before = j;
  (before ? before->following : first_) = job.following;
  if (last_ == &job) last_ = before;
}

void ThreadPool::WorkerLoop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!first_) {
      const uint64_t seen = arrivals_.load(std::memory_order_relaxed);
      lock.unlock();
      const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
      while (arrivals_.load(std::memory_order_acquire) == seen &&
             std::chrono::steady_clock::now() < deadline)
        Pause();
      lock.lock();
      work_.wait(lock, [&] { return first_ != nullptr; });
    }
    Job& job = *first_;
    ++job.helpers;
    lock.unlock();
    RunParts(job);
    lock.lock();
    Unlist(job);
    if (--job.helpers == 0) done_.notify_all();
  }
}

}  // namespace kiln::runtime
