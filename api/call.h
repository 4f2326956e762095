// Entry: what every exported function runs inside. The only place that stops exceptions, writes the
// API log, and records the sentence for cudnnGetLastErrorString.
//
//   cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
//     return Entry("cudnnSetStream", [&] { return SetStream(handle, stream); });
//   }
#pragma once

#include <pthread.h>

#include "api/fork_gate.h"
#include "api/logging.h"
#include "ir/base/status.h"

namespace kiln::api {

// The failure as the public status; keeps the sentence for this thread and logs it.
int Fail(const char* function, const Status& status);
// The same without the log, whose lock may be held for ever.
int FailWithoutLog(const Status& status);
// The exception that is being handled, as a Status.
Status CurrentExceptionAsStatus();

// A thread that is cancelled (pthread_cancel) inside the library is cancelled after the call: the
// unwinding of a cancellation cannot pass an entry, and what it left behind would be locked.
class WithoutCancellation {
 public:
  WithoutCancellation() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~WithoutCancellation() { ::pthread_setcancelstate(before_, nullptr); }
  WithoutCancellation(const WithoutCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

template <class F>
int RunEntry(const char* function, F&& body) noexcept {
  const WithoutCancellation whole;
  try {
    const Inside inside;
    if (IsBrokenChild()) [[unlikely]]
      return FailWithoutLog(CheckFork());
    if (ApiLogEnabled()) [[unlikely]]
      LogCall(function);
    Status status = body();
    if (status.ok()) [[likely]]
      return 0;
    return Fail(function, status);
  } catch (...) {
    return Fail(function, CurrentExceptionAsStatus());
  }
}

}  // namespace kiln::api
