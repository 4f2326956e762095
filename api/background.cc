#include "api/background.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "api/fork_gate.h"

namespace kiln::api {

Background& Background::OfProcess() {
  // Not leaked: its end is what waits for the threads before their code is gone.
  static Background background(std::max(2u, std::thread::hardware_concurrency()) - 1);
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
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (ends_ || waiting_.size() >= kMostWaiting) return;
  waiting_.push_back(std::move(work));
  if (running_ == most_threads_) return;
  if (running_ == 0) {
    // They have ended, or are about to without this lock.
    for (std::thread& thread : *threads_) thread.join();
    threads_->clear();
  }
  threads_->emplace_back([this] { Work(); });
  ++running_;
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
