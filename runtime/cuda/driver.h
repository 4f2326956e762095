// The CUDA driver as a table of functions, loaded by dlopen of libcuda.so.1. The types and numbers
// are the public ones of the driver API, under names of ours: no CUDA header is needed to build,
// and no CUDA library to link. A missing driver is a Status that says what was looked for and what
// to install.
//
// Used by cuda_device.cc, by tuning's measurements and by `kiln doctor`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ir/base/result.h"

namespace kiln::runtime {

using CuResult = int;  // 0 is success
using CuDevice = int;
using CuAddress = unsigned long long;
using CuContext = struct CuContextOpaque*;
using CuModule = struct CuModuleOpaque*;
using CuFunction = struct CuFunctionOpaque*;
using CuEvent = struct CuEventOpaque*;
using CuGraph = struct CuGraphOpaque*;
using CuGraphNode = struct CuGraphNodeOpaque*;
using CuStream = void*;

// Results that change what we say or do; the rest is reported by the driver's own name.
inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuErrorOutOfMemory = 2;
inline constexpr CuResult kCuErrorStubLibrary = 34;
inline constexpr CuResult kCuErrorNoDevice = 100;
inline constexpr CuResult kCuErrorInvalidContext = 201;
inline constexpr CuResult kCuErrorNoBinaryForGpu = 209;
inline constexpr CuResult kCuErrorInvalidHandle = 400;
inline constexpr CuResult kCuErrorContextIsDestroyed = 709;
inline constexpr CuResult kCuErrorNotSupported = 801;
inline constexpr CuResult kCuErrorSystemDriverMismatch = 803;
inline constexpr CuResult kCuErrorStreamCaptureUnsupported = 900;

struct CuDeviceAttribute {
  static constexpr int kMaxThreadsPerBlock = 1;
  static constexpr int kClockRate = 13;  // kHz, as the memory's
  static constexpr int kMultiprocessorCount = 16;
  static constexpr int kMemoryClockRate = 36;
  static constexpr int kMemoryBusWidth = 37;  // bits
  static constexpr int kL2CacheSize = 38;
  static constexpr int kComputeCapabilityMajor = 75;
  static constexpr int kComputeCapabilityMinor = 76;
  static constexpr int kMaxRegistersPerMultiprocessor = 82;
  static constexpr int kMaxSharedMemoryPerBlockOptin = 97;
};

struct CuFunctionAttribute {
  static constexpr int kSharedSizeBytes = 1;
  static constexpr int kMaxDynamicSharedSizeBytes = 8;
  static constexpr int kNonPortableClusterSizeAllowed = 14;
};

inline constexpr int kCuCaptureModeRelaxed = 2;

// CUlaunchAttribute and CUlaunchConfig of the driver API. A kernel node's attributes have the same
// ids and values.
struct CuLaunchAttribute {
  static constexpr int kCooperative = 2;
  static constexpr int kProgrammaticStreamSerialization = 6;
  int id;
  alignas(8) int value[16];
};
struct CuLaunchConfig {
  unsigned grid[3], block[3], dynamic_shared_bytes;
  CuStream stream;
  CuLaunchAttribute* attributes;
  unsigned attribute_count;
};

// CUDA_KERNEL_NODE_PARAMS_v2.
struct CuKernelNodeParams {
  CuFunction function;
  unsigned grid[3], block[3], dynamic_shared_bytes;
  void** args;
  void** extra;
  void* kernel;  // in place of a function that is null
  CuContext context;
};

struct Driver {
#define DRIVER_FUNCTION(Name, symbol, need, parameters) CuResult(*Name) parameters = nullptr;
#include "runtime/cuda/driver_functions.def"
#undef DRIVER_FUNCTION

  std::string path;  // of the file that was loaded
  int version = 0;   // 13000 is CUDA 13.0

  // Ok, or an error such as "cuModuleLoadData: CUDA_ERROR_... (text)".
  Status Check(CuResult result, const char* function) const;
  std::string Describe(CuResult result) const;
};

// Loads and initialises the driver: `path` alone where it is not empty, else by SONAME, else where
// WSL and containers put it. Never unloaded.
Result<std::unique_ptr<Driver>> OpenDriver(const std::string& path);

// True in a process that was forked off one that had opened the driver. CheckNotForked says so in a
// sentence.
bool IsForked();
Status CheckNotForked();

// The driver of this process (KILN_LIBCUDA), loaded at the first call.
Result<const Driver*> ProcessDriver();

}  // namespace kiln::runtime
