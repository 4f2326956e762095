// Context handling for the CUDA device. See cuda_context.h.
#include "runtime/cuda/cuda_context.h"

namespace kiln::runtime {

ContextScope::ContextScope(const Driver& driver, CuContext context) : driver_(driver) {
  CuContext current = nullptr;
  result_ = driver_.CtxGetCurrent(&current);
  if (result_ != kCuSuccess || current == context) return;
  result_ = driver_.CtxPushCurrent(context);
  pushed_ = result_ == kCuSuccess;
}

ContextScope::~ContextScope() {
  CuContext popped = nullptr;
  if (pushed_) driver_.CtxPopCurrent(&popped);
}

Result<CuContext> ContextPicker::Pick() {
  RETURN_IF_ERROR(CheckNotForked());
  CuContext current = nullptr;
  RETURN_IF_ERROR(driver_.Check(driver_.CtxGetCurrent(&current), "cuCtxGetCurrent"));
  CuDevice device = -1;
  if (current != nullptr && driver_.CtxGetDevice(&device) == kCuSuccess && device == device_)
    return current;
  std::lock_guard lock(mutex_);
  if (primary_ == nullptr) {
    CuContext primary = nullptr;
    RETURN_IF_ERROR(driver_.Check(driver_.DevicePrimaryCtxRetain(&primary, device_),
                                  "cuDevicePrimaryCtxRetain"));
    primary_ = primary;
  }
  return primary_;
}

uint64_t ContextPicker::IdOf(CuContext context) const {
  unsigned long long id = 0;
  if (driver_.CtxGetId != nullptr && driver_.CtxGetId(context, &id) == kCuSuccess) return id;
  return reinterpret_cast<uintptr_t>(context);
}

}  // namespace kiln::runtime
