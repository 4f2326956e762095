// Contexts of the driver API: choosing one, making it current for a scope, and telling one from
// another that came after it. A context dies with cudaDeviceReset or cuCtxDestroy, and the next may
// have its address, so that a context is known by its id (cuCtxGetId, CUDA 12), which the driver
// gives to no other. Drivers without ids tell contexts apart by address alone: there a launch that
// fails for a stale handle loads its kernel anew (cuda_device.cc).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "runtime/cuda/driver.h"

namespace kiln::runtime {

// A context, as long as it lives. NOTE: nothing but its id may be asked of one that may be dead;
// pushing a destroyed context ends the process.
struct ContextRef {
  CuContext handle = nullptr;
  uint64_t id = 0;  // 0: none; the address where the driver has no ids

  bool operator==(const ContextRef&) const = default;
};

// Makes `context` current until the scope ends; costs one query where it is current already.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CuContext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  CuResult result() const { return result_; }

 private:
  const Driver& driver_;
  CuResult result_ = kCuSuccess;
  bool pushed_ = false;
};

// Lets this thread load modules while a stream, of this thread or another, is being captured.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() { driver_.ThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kCuCaptureModeRelaxed;
};

// True if this thread's current context had an id when it was asked last.
__attribute__((tls_model("initial-exec"))) extern constinit thread_local bool thread_had_context;

// The contexts of one GPU.
class ContextPicker {
 public:
  ContextPicker(const Driver& driver, CuDevice device) : driver_(driver), device_(device) {}

  bool has_ids() const { return driver_.CtxGetId != nullptr; }

  // The id of the thread's current context, of whatever GPU; 0 where there is none or it is dead.
  // One call of the driver. A thread that had no context is asked for one first: the driver calls
  // it an error to want the id of none, and tools that watch for errors (compute-sanitizer) report
  // it.
  uint64_t CurrentId() const {
    unsigned long long id = 0;
    if (thread_had_context && has_ids()) [[likely]]
      return driver_.CtxGetId(nullptr, &id) == kCuSuccess ? id : thread_had_context = false;
    CuContext current = nullptr;
    if (driver_.CtxGetCurrent(&current) != kCuSuccess) return 0;
    const uint64_t found = Ref(current).id;
    thread_had_context = found != 0;
    return found;
  }
  // True if the current context is the one that was picked last.
  bool IsPickedCurrent() const {
    const uint64_t id = CurrentId();
    return id != 0 && id == picked_id_.load(std::memory_order_relaxed);
  }

  // The current context if it lives and is of this GPU; else that of `stream`, if there is one;
  // else the primary one, which is retained at the first need, and again after a reset.
  Result<ContextRef> Pick(CuStream stream = nullptr);
  // The context of a stream that is not the default one, if it is of this GPU; else nothing.
  std::optional<ContextRef> Of(CuStream stream) const;
  bool IsAlive(const ContextRef& context) const { return Ref(context.handle) == context; }

 private:
  // A reference to `context`, with an id of 0 where the context is dead.
  ContextRef Ref(CuContext context) const;
  bool IsOfThisGpu(CuContext context) const;
  Result<ContextRef> Primary();

  const Driver& driver_;
  const CuDevice device_;
  std::atomic<uint64_t> picked_id_ = 0;
  std::mutex mutex_;
  CuContext primary_ = nullptr;
};

}  // namespace kiln::runtime
