// ForkGate: a process that forks while one of its threads is inside the library would leave the
// child with locks that nobody releases and compilations that nobody ends. So fork waits until no
// other thread is inside: each call says so in a word of its thread, which costs two stores and a
// load, and the memory barrier that this wants is the forking thread's (membarrier).
//
//   call    say so, look whether a fork waits: then leave, wait, and say so again
//   fork    say that it waits, barrier, wait for all to leave, fork, let them in, in both processes
//
// A thread that forks from inside (a callback) waits for the others alone. Where they do not come
// out in time, fork goes on, and the child's calls fail in words instead of hanging. Called by
// RunEntry (call.h).
#pragma once

#include <atomic>

#include "ir/base/status.h"

namespace kiln::api {

namespace internal {
struct ThreadPlace {
  std::atomic<int> depth{0};  // calls within calls; written by its thread alone
  std::atomic<bool> taken{true};
  ThreadPlace* next = nullptr;
};
// Null before the thread's first call. Its offset is known when the library is loaded.
__attribute__((
    tls_model("initial-exec"))) extern constinit thread_local ThreadPlace* this_threads_place;
extern std::atomic<int> forks_waiting;
extern std::atomic<bool> needs_fence;  // where the kernel has no membarrier, and at the beginning

ThreadPlace* TakePlace();
void WaitForForks(ThreadPlace& place);
}  // namespace internal

class Inside {
 public:
  Inside() {
    place_ = internal::this_threads_place;
    if (place_ == nullptr) [[unlikely]]
      place_ = internal::TakePlace();
    const int depth = place_->depth.load(std::memory_order_relaxed);
    place_->depth.store(depth + 1, std::memory_order_relaxed);
    if (internal::needs_fence.load(std::memory_order_relaxed)) [[unlikely]]
      std::atomic_thread_fence(std::memory_order_seq_cst);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (internal::forks_waiting.load(std::memory_order_acquire) != 0 && depth == 0) [[unlikely]]
      internal::WaitForForks(*place_);
  }
  ~Inside() {
    place_->depth.store(place_->depth.load(std::memory_order_relaxed) - 1,
                        std::memory_order_release);
  }
  Inside(const Inside&) = delete;

 private:
  internal::ThreadPlace* place_;
};

// Error: this is a child whose parent could not wait; says why nothing can be done in it.
Status CheckFork();
namespace internal {
extern std::atomic<bool> child_is_broken;
}
inline bool IsBrokenChild() { return internal::child_is_broken.load(std::memory_order_relaxed); }

// Tests only: how long fork waits for threads to come out.
void SetForkPatienceForTest(int milliseconds);

}  // namespace kiln::api
