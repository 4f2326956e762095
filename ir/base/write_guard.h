// WriteGuard: writing to a file beyond `ulimit -f`, or to a pipe that nobody reads, raises a signal
// that ends the process, which is the client's. While a guard lives, the calling thread's writes
// fail with EFBIG and EPIPE instead. Held around every write of the library; four system calls.
#pragma once

#include <signal.h>

namespace kiln {

class WriteGuard {
 public:
  WriteGuard();
  ~WriteGuard();
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

 private:
  sigset_t mask_before_;
  sigset_t raised_;  // those of the two that were not pending before
};

}  // namespace kiln
