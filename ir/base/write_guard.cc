#include "ir/base/write_guard.h"

#include <cerrno>
#include <ctime>

namespace kiln {
namespace {

constexpr int kSignals[] = {SIGXFSZ, SIGPIPE};

}  // namespace

// The system sends both signals to the writing thread, so that its mask holds them back.
WriteGuard::WriteGuard() {
  sigset_t pending;
  sigemptyset(&raised_);
  sigemptyset(&pending);
  sigpending(&pending);
  sigset_t both;
  sigemptyset(&both);
  for (const int signal : kSignals) {
    sigaddset(&both, signal);
    if (sigismember(&pending, signal) == 0) sigaddset(&raised_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &both, &mask_before_);
}

// A signal that was raised meanwhile is taken before the mask would let it through.
WriteGuard::~WriteGuard() {
  const int error = errno;
  const timespec at_once = {};
  while (sigtimedwait(&raised_, nullptr, &at_once) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  errno = error;
}

}  // namespace kiln
