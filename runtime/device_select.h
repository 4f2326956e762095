// The choice of a process' device: KILN_DEVICE=auto|cuda|cpu. The CPU device is a plug-in, since it
// carries LLVM, which the GPU libraries must not. Called by cudnnCreate (api), the CLI and tests.
#pragma once

#include <string>
#include <vector>

#include "ir/base/result.h"
#include "runtime/device.h"

namespace kiln::runtime {

// The device to use from this thread. On CUDA it is the one of the thread's current context, so it
// may differ between threads of a process. Devices live as long as the process.
Result<Device*> DefaultDevice();

// The device of one kind, whatever KILN_DEVICE says.
Result<Device*> CudaDeviceOfThread();
Result<Device*> CpuDeviceOfProcess();

// The plug-in's one exported symbol, kCpuPluginSymbol. Returns null and a sentence in `error` where
// it cannot; the device is the caller's, and the plug-in is never unloaded.
using CpuDeviceCreateFunction = Device* (*)(char* error, size_t error_size);
inline constexpr const char* kCpuPluginSymbol = "KilnCpuDeviceCreate";

struct DoctorLine {
  enum class State : uint8_t { kGood, kNote, kMissing };
  State state;
  std::string subject;  // "CUDA driver", "NVRTC", "kernel cache" …
  std::string detail;   // what was found, or why it is missing and what to do
};

// The lines that `kiln doctor` prints. Everything is tried, and nothing fails.
std::vector<DoctorLine> Doctor();

}  // namespace kiln::runtime
