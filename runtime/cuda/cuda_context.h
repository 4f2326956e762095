// Contexts of the driver API: choosing one, and making it current for a scope.
#pragma once

#include <cstdint>
#include <mutex>

#include "runtime/cuda/driver.h"

namespace kiln::runtime {

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

// The contexts of one GPU.
class ContextPicker {
 public:
  ContextPicker(const Driver& driver, CuDevice device) : driver_(driver), device_(device) {}

  // The current context if it is of this GPU, else the primary one, which is retained at the first
  // need.
  Result<CuContext> Pick();
  // Tells contexts apart even where a new one has an old one's address.
  uint64_t IdOf(CuContext context) const;

 private:
  const Driver& driver_;
  const CuDevice device_;
  std::mutex mutex_;
  CuContext primary_ = nullptr;
};

}  // namespace kiln::runtime
