// Context handling for the CUDA device. See cuda_context.h.
#include "runtime/cuda/cuda_context.h"

namespace kiln::runtime {

__attribute__((tls_model("initial-exec"))) constinit thread_local bool thread_had_context = false;

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

ContextRef ContextPicker::Ref(CuContext context) const {
  if (context == nullptr) return {};
  if (!has_ids()) return {.handle = context, .id = reinterpret_cast<uintptr_t>(context)};
  unsigned long long id = 0;
  const bool lives = driver_.CtxGetId(context, &id) == kCuSuccess;
  return {.handle = context, .id = lives ? id : 0};
}

bool ContextPicker::IsOfThisGpu(CuContext context) const {
  const ContextScope scope(driver_, context);
  CuDevice device = -1;
  return scope.result() == kCuSuccess && driver_.CtxGetDevice(&device) == kCuSuccess &&
         device == device_;
}

Result<ContextRef> ContextPicker::Primary() {
  const std::lock_guard lock(mutex_);
  const ContextRef known = Ref(primary_);
  if (has_ids() && known.id != 0) return known;
  // Without ids nothing says whether it was reset; one more reference does no harm.
  RETURN_IF_ERROR(driver_.Check(driver_.DevicePrimaryCtxRetain(&primary_, device_),
                                "cuDevicePrimaryCtxRetain"));
  return Ref(primary_);
}

std::optional<ContextRef> ContextPicker::Of(CuStream stream) const {
  CuContext own = nullptr;
  if (stream == nullptr || driver_.StreamGetCtx == nullptr ||
      driver_.StreamGetCtx(stream, &own) != kCuSuccess)
    return std::nullopt;
  const ContextRef context = Ref(own);
  if (context.id == 0 || !IsOfThisGpu(own)) return std::nullopt;
  return context;
}

Result<ContextRef> ContextPicker::Pick(CuStream stream) {
  RETURN_IF_ERROR(CheckNotForked());
  CuContext current = nullptr;
  RETURN_IF_ERROR(driver_.Check(driver_.CtxGetCurrent(&current), "cuCtxGetCurrent"));
  ContextRef picked = Ref(current);
  CuDevice device = -1;
  if (picked.id != 0 && driver_.CtxGetDevice(&device) == kCuSuccess && device == device_) {
    picked_id_.store(picked.id, std::memory_order_relaxed);
    return picked;
  }
  if (const std::optional<ContextRef> own = Of(stream)) return *own;
  return Primary();
}

}  // namespace kiln::runtime
