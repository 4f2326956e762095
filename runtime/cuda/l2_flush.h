// L2Flush: takes the GPU's L2 cache from what ran before. It reads, and so leaves no dirty line
// whose writing back would be charged to the launch that is timed next.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace kiln::runtime {

class L2Flush {
 public:
  // The source of the kernel that reads, for callers that compile it ahead of time.
  static KernelSource Source();
  // Compiles the kernel and allocates four times the size of the cache. `device` must outlive the
  // result.
  static Result<std::unique_ptr<L2Flush>> Make(Device& device);
  ~L2Flush();
  L2Flush(const L2Flush&) = delete;
  L2Flush& operator=(const L2Flush&) = delete;

  Status Run(Stream stream);

 private:
  explicit L2Flush(Device& device) : device_(device) {}

  Device& device_;
  std::shared_ptr<LoadedKernel> kernel_;
  void* memory_ = nullptr;
  int64_t vectors_ = 0;
};

}  // namespace kiln::runtime
