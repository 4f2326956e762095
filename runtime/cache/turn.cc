#include "runtime/cache/turn.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace kiln::runtime {

Turn::Turn(std::string path, std::chrono::milliseconds patience) : path_(std::move(path)) {
  if (path_.empty()) return;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + patience;
  const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return;
  // Asked again and again, since a lock that is waited for cannot be given up in time.
  for (std::chrono::milliseconds pause{1}; ::flock(descriptor, LOCK_EX | LOCK_NB) != 0;) {
    if (Clock::now() >= end) {
      ::close(descriptor);
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds{20});
  }
  descriptor_ = descriptor;
}

// Those who wait have the file open already and get its lock; whoever comes later makes a new one.
// The lock is given back in words, since a child of fork may have the descriptor, too.
Turn::~Turn() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());
  ::flock(descriptor_, LOCK_UN);
  ::close(descriptor_);
}

}  // namespace kiln::runtime
