// Entry: what every exported function runs inside. The only place that stops exceptions, writes the
// API log, and records the sentence for cudnnGetLastErrorString. The arguments stand behind the
// body, for the log.
//
//   cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
//     return Entry("cudnnSetStream", [&] { return SetStream(handle, stream); }, handle, stream);
//   }
#pragma once

#include <pthread.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "api/lifecycle/fork_gate.h"
#include "api/lifecycle/logging.h"
#include "ir/base/status.h"

namespace kiln::api {

// The failure as the public status; keeps the sentence for this thread and logs it.
int Fail(const char* function, const Status& status);
// Fail without the log, whose lock may be held for ever.
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

// An argument's bytes, as the log takes them. An enumeration may hold none of its constants.
template <class T>
uint64_t ArgumentBits(const T& argument) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &argument, sizeof(argument));
  return bits;
}

// A call that may make objects has a place for one among its arguments.
template <class T>
inline constexpr bool kIsPlace =
    std::is_pointer_v<T> && std::is_pointer_v<std::remove_pointer_t<T>>;

template <class F, class... Arguments>
int RunEntry(const char* function, F&& body, const Arguments&... arguments) noexcept {
  const WithoutCancellation whole;
  try {
    const Inside inside;
    if (IsBrokenChild()) [[unlikely]]
      return FailWithoutLog(CheckFork());
    const bool logged = ApiLogEnabled();
    if (logged) [[unlikely]]
      LogCall(function, {ArgumentBits(arguments)...});
    Status status = body();
    if constexpr ((kIsPlace<Arguments> || ...)) {
      if (logged && status.ok()) [[unlikely]]
        LogMade(function, {ArgumentBits(arguments)...});
    }
    if (status.ok()) [[likely]]
      return 0;
    return Fail(function, status);
  } catch (...) {
    return Fail(function, CurrentExceptionAsStatus());
  }
}

}  // namespace kiln::api
