// Answers of the driver about an H200, for drivers that tests bring.
#pragma once

#include "runtime/cuda/driver.h"

namespace kiln::runtime {

// -1: not asked for by Kiln.
inline int AttributeOfH200(int attribute) {
  switch (attribute) {
    case CuDeviceAttribute::kComputeCapabilityMajor:
      return 9;
    case CuDeviceAttribute::kComputeCapabilityMinor:
      return 0;
    case CuDeviceAttribute::kMultiprocessorCount:
      return 132;
    case CuDeviceAttribute::kMaxThreadsPerBlock:
      return 1024;
    case CuDeviceAttribute::kMaxSharedMemoryPerBlockOptin:
      return 232448;
    case CuDeviceAttribute::kMaxRegistersPerMultiprocessor:
      return 65536;
    case CuDeviceAttribute::kL2CacheSize:
      return 62914560;
    case CuDeviceAttribute::kClockRate:
      return 1980000;
    case CuDeviceAttribute::kMemoryClockRate:
      return 3201000;
    case CuDeviceAttribute::kMemoryBusWidth:
      return 6144;
  }
  return -1;
}

}  // namespace kiln::runtime
