// Two NVRTCs in one process. NVRTC's front end, a fifth of what a kernel costs, lets one thread in
// at a time: on an H200's host of 16 cores 15 threads compile 40 kernels a second, hardly more than
// 4 do. What is locked are variables of the library, so a second copy of it has a front end of its
// own: 87 a second. A third adds nothing (80).
//
// The loader takes a file that it has mapped for the same library, so the copy is one of the file's
// bytes in memory (109 MB, 55 ms). The thread that finds enough others compiling makes it; until
// then, where it cannot be made, and with KILN_NVRTC_COPIES=1 all use the first.
#pragma once

#include <atomic>
#include <memory>

#include "runtime/cuda/nvrtc.h"

namespace kiln::runtime {

class NvrtcPair {
 public:
  NvrtcPair(const Nvrtc& first, int most_copies) : first_(first), made_(most_copies < 2) {}

  // Compiles like Nvrtc::Compile, by the copy that has less to do.
  Result<NvrtcResult> Compile(const KernelSource& source, NvrtcOutput output);

  bool has_second() const { return second_ != nullptr; }

 private:
  const Nvrtc* Second();

  const Nvrtc& first_;
  std::unique_ptr<const Nvrtc> owned_;
  std::atomic<const Nvrtc*> second_ = nullptr;     // owned_, once it is there
  std::atomic<bool> made_;                         // or being made, or not to be
  std::atomic<int> of_first_ = 0, of_second_ = 0;  // compiles under way
};

// The pair over ProcessNvrtc, one for the process.
Result<NvrtcPair*> ProcessNvrtcPair();

}  // namespace kiln::runtime
