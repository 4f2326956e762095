#include "api/lifecycle/fork_gate.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace kiln::api {
namespace internal {

__attribute__((tls_model("initial-exec"))) constinit thread_local ThreadPlace* this_threads_place =
    nullptr;
std::atomic<int> forks_waiting{0};
std::atomic<bool> needs_fence{true};
std::atomic<bool> child_is_broken{false};

}  // namespace internal

namespace {

using internal::ThreadPlace;
using std::chrono::milliseconds;

constexpr auto kNap = std::chrono::microseconds(50);
// A search for the fastest configuration takes a few seconds.
std::atomic<int> patience_milliseconds{10000};

std::atomic<ThreadPlace*> places{nullptr};  // only grows; a place is taken again

// Gives a thread's place back when the thread ends.
struct Holder {
  ThreadPlace* place = nullptr;
  ~Holder() {
    internal::this_threads_place = nullptr;
    if (place != nullptr) place->taken.store(false, std::memory_order_release);
  }
};
thread_local Holder holder;

long Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

bool IsInside(const ThreadPlace* except) {
  for (ThreadPlace* p = places.load(); p != nullptr; p = p->next)
    if (p != except && p->depth.load(std::memory_order_acquire) != 0) return true;
  return false;
}

// The forking thread remembers between the handlers that it did not wait to the end.
thread_local bool gave_up = false;

void BeforeFork() {
  internal::forks_waiting.fetch_add(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);  // an error before anybody was inside
  const auto deadline =
      std::chrono::steady_clock::now() + milliseconds(patience_milliseconds.load());
  const ThreadPlace* const own = internal::this_threads_place;
  while (IsInside(own) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kNap);
  gave_up = IsInside(own);
}

void AfterForkInParent() { internal::forks_waiting.fetch_sub(1); }

// The child has of the parent's threads only this one.
void AfterForkInChild() {
  for (ThreadPlace* p = places.load(); p != nullptr; p = p->next) {
    if (p == internal::this_threads_place) continue;
    p->depth.store(0);
    p->taken.store(false);
  }
  if (gave_up) internal::child_is_broken.store(true);
  internal::forks_waiting.store(0);
}

// When the library is loaded, since a fork may be under way when a thread makes its first call: its
// handlers would come too late. Nothing else happens then.
[[gnu::constructor]] void HearOfForks() {
  pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
}

// Two threads may do so at once. Until it is done, each call has a fence of its own.
void RegisterForBarriers() {
  if (internal::needs_fence.load() && Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0)
    internal::needs_fence.store(false);
}

}  // namespace

ThreadPlace* internal::TakePlace() {
  RegisterForBarriers();
  ThreadPlace* place = places.load();
  for (; place != nullptr; place = place->next) {
    bool taken = false;
    if (place->taken.compare_exchange_strong(taken, true)) break;
  }
  if (place == nullptr) {
    place = new ThreadPlace;  // leaked: a fork may look at it at any time
    place->next = places.load();
    while (!places.compare_exchange_weak(place->next, place)) {
    }
  }
  // NOTE: after the holder's end (calls from other destructors of the thread) the place stays
  // taken.
  holder.place = place;
  this_threads_place = place;
  return place;
}

void internal::WaitForForks(ThreadPlace& place) {
  while (forks_waiting.load() != 0) {
    place.depth.store(0, std::memory_order_release);
    while (forks_waiting.load() != 0) std::this_thread::sleep_for(kNap);
    place.depth.store(1, std::memory_order_seq_cst);
  }
}

Status CheckFork() {
  if (!IsBrokenChild()) return {};
  return Status::Text(Code::kNotInitialized,
                      "this process was forked while another thread was inside the library, which "
                      "did not come out in time; it can do nothing here");
}

void SetForkPatienceForTest(int milliseconds) { patience_milliseconds.store(milliseconds); }

}  // namespace kiln::api
