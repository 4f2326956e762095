#include "api/prefetch/background.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "api/lifecycle/fork_gate.h"
#include "ir/base/threads.h"

namespace kiln::api {

Background& Background::OfProcess() {
  // Not leaked: its end is what waits for the threads before their code is gone.
  static Background background(static_cast<size_t>(std::max(2, Cores()) - 1));
  return background;
}

Background::Background(size_t threads)
    : most_threads_(threads),
      process_(getpid()),
      threads_(std::make_unique<std::vector<std::thread>>()) {}

Background::~Background() {
  if (getpid() != process_) {
    (void)threads_.release();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    waiting_.clear();
  }
  for (std::thread& thread : *threads_) thread.join();
}

void Background::Add(std::function<void()> work) {
  if (getpid() != process_ || Enlist(std::move(work), false)) return;
  LogNoThread();
}

void Background::AddFirst(std::function<void()> work) {
  if (getpid() != process_ || Enlist(std::move(work), true)) return;
  LogNoThread();
}

bool Background::Enlist(std::function<void()> work, bool is_first) {
  const std::lock_guard lock(mutex_);
  if (ends_ || waiting_.size() >= kMostWaiting) return true;
  waiting_.insert(is_first ? waiting_.begin() : waiting_.end(), std::move(work));
  if (running_ == most_threads_) return true;
  if (running_ == 0) {
    // They have ended, or are about to without this lock.
    for (std::thread& thread : *threads_) thread.join();
    threads_->clear();
  }
  std::optional<std::thread> thread = TryThread([this] { Work(); });
  if (thread) {
    threads_->push_back(*std::move(thread));
    ++running_;
  } else if (running_ == 0) {
    waiting_.clear();  // nobody needs it, and the caller's time is not for it
  }
  return thread.has_value();
}

void Background::Work() {
  while (true) {
    const Inside inside;  // forks wait until this piece of work is done, and the lock is free
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        --running_;
        done_.notify_all();
        return;
      }
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

void Background::Wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return running_ == 0; });
}

}  // namespace kiln::api
