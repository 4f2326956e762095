// Background: work that nobody waits for, on threads that are there while there is some. What has
// not begun is dropped when the process exits or the library is unloaded; what has begun is waited
// for. A fork waits for what has begun as it does for calls, and the child begins with nothing.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace kiln::api {

class Background {
 public:
  // The process's own, with a thread for each core but the client's. It is made when what the work
  // uses has its handlers for exit already: they run in the opposite order.
  static Background& OfProcess();

  explicit Background(size_t threads);
  ~Background();
  Background(const Background&) = delete;

  // Work is done in the order in which it comes. It is dropped where kMostWaiting pieces wait
  // already, and in children of fork, and where the system gives not one thread. What it touches
  // must stay to the end of the process.
  void Add(std::function<void()> work);
  // Adds work before all that waits: somebody may ask for its result soon.
  void AddFirst(std::function<void()> work);

  // Tests only: until all is done.
  void Wait();

 private:
  static constexpr size_t kMostWaiting = 4096;

  bool Enlist(std::function<void()> work, bool is_first);  // false where no thread could be had
  void Work();

  const size_t most_threads_;
  const pid_t process_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable done_;
  std::deque<std::function<void()>> waiting_;
  bool ends_ = false;
  size_t running_ = 0;
  // A child of fork has no such threads, and their objects cannot be destroyed there.
  std::unique_ptr<std::vector<std::thread>> threads_;
};

}  // namespace kiln::api
