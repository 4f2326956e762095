#include "runtime/cache/file_lock.h"

#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "ir/base/log.h"

namespace kiln::runtime {
namespace {

using FlockFunction = int (*)(int, int);

std::atomic<FlockFunction> flock_function{&::flock};

void LogUnsupported(int error) {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  LOG(kWarn,
      "kernel cache: files cannot be locked here ({}): processes that start together may compile "
      "the same kernels",
      std::strerror(error));
}

FileLock TryLock(int file) {
  while (flock_function.load()(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return FileLock::kBusy;
    // EBADF is NFS' answer where the file is not open for writing, as a folder cannot be.
    if (errno != EBADF) LogUnsupported(errno);
    return FileLock::kUnsupported;
  }
  return FileLock::kTaken;
}

}  // namespace

// Asked again and again, since a lock that is waited for cannot be given up in time.
FileLock LockFile(int file, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + patience;
  for (std::chrono::milliseconds pause{1};;) {
    const FileLock lock = TryLock(file);
    if (lock != FileLock::kBusy || Clock::now() >= end) return lock;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds{20});
  }
}

void UnlockFile(int file) { flock_function.load()(file, LOCK_UN); }

void SetFlockForTest(int (*flock)(int file, int operation)) {
  flock_function.store(flock != nullptr ? flock : &::flock);
}

}  // namespace kiln::runtime
