// A pool of threads that share out index ranges. The caller takes part, so a pool of n threads has
// n - 1 workers; several callers may be inside ParallelFor at once, and workers serve them in order
// of arrival.
//
// Running a range allocates nothing: a job lives on its caller's stack. Used by CpuDevice::Launch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace kiln::runtime {

class ThreadPool {
 public:
  using Body = void (*)(void* context, int64_t begin, int64_t end);

  // The pool of that many threads, shared by all who ask for it: at most four for each core, and
  // fewer where the system gives no more.
  //
  // NOTE: the workers are detached and a pool is never destroyed: at process exit they may be
  // asleep on the condition variable or inside a kernel whose memory is about to go, and a join
  // there would hang or wait without need. The system ends them with the process.
  static ThreadPool& ForProcess(int threads);

  int threads() const { return threads_; }  // at least the caller's own

  // Calls body on parts of [begin, end), each at most `grain` long, from this thread and the
  // workers; returns when all parts are done. The bodies do not throw.
  void ParallelFor(int64_t begin, int64_t end, int64_t grain, Body body, void* context);

 private:
  struct Job {
    Body body;
    void* context;
    int64_t end;
    int64_t grain;
    std::atomic<int64_t> next;
    int helpers = 0;     // workers inside; guarded by mutex_
    bool listed = true;  // guarded by mutex_
    Job* following = nullptr;
  };

  explicit ThreadPool(int threads);
  ~ThreadPool() = delete;

  static void RunParts(Job& job);
  void WorkerLoop();
  void Enlist(Job& job);
  void Unlist(Job& job);  // with mutex_ held; nothing where it is out already

  int threads_ = 1;  // workers that the system gave, and the caller; workers do not read it
  // The number of jobs enlisted so far, which an idle worker watches for a moment before it sleeps.
  std::atomic<uint64_t> arrivals_{0};
  std::mutex mutex_;
  std::condition_variable work_, done_;
  Job* first_ = nullptr;
  Job* last_ = nullptr;
};

}  // namespace kiln::runtime
