// cuDNN's own logging: CUDNN_LOGLEVEL_DBG (0 off, 1 errors, 2 warnings, 3 calls) with
// CUDNN_LOGDEST_DBG (stdout, stderr or a file), the variables of 8 (CUDNN_LOGINFO_DBG,
// CUDNN_LOGWARN_DBG, CUDNN_LOGERR_DBG = 1), and cudnnSetCallback. In files a message
// begins with `I! CuDNN (v92801) `, further lines of it with `i! `, and time and thread end it.
// Lines of our own log (ir/base/log.h) at info and above reach the same places.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>

#include "ir/base/status.h"

namespace kiln::api {

namespace internal {
extern std::atomic<int> call_log_state;  // -1: the environment was not read yet; else 0 or 1
bool InitLogging();
}  // namespace internal

// True if successful calls are logged too. One relaxed load.
inline bool ApiLogEnabled() {
  int state = internal::call_log_state.load(std::memory_order_relaxed);
  return state > 0 || (state < 0 && internal::InitLogging());
}
// The call and its arguments (call_log.h), which are given by their bytes, each in the low bytes of
// its number.
void LogCall(const char* function, std::initializer_list<uint64_t> arguments);
// The objects that a call which succeeded has made, for those that read what was logged later.
void LogMade(const char* function, std::initializer_list<uint64_t> arguments);
// cuDNN's log has every failure with its reason; where nobody asked for that one, Kiln's has the
// first of each kind (refusals.h).
void LogFailure(const char* function, const Status& status);

// A cudnnCallback_t of either generation; they differ in name only.
using AnyFunction = void (*)();

// A null function goes back to CUDNN_LOGDEST_DBG. `mask`: 1 << severity for each wanted severity.
Status SetCallback(unsigned mask, void* user_data, AnyFunction function);
Status GetCallback(unsigned* mask, void** user_data, AnyFunction* function);

}  // namespace kiln::api
