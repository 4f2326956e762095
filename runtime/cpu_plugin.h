// Loading of the CPU plug-in: internal to device selection, open to its tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/base/result.h"
#include "runtime/device.h"

namespace kiln::runtime {

struct CpuPlugin {
  Device* device = nullptr;  // leaked on purpose
  std::string path;
};

// The paths to try, in order: KILN_CPU_PLUGIN alone where it is set; else beside our own library,
// in ../lib of it, in a Bazel tree, and by the loader.
std::vector<std::string> CpuPluginCandidates();
Result<CpuPlugin> OpenCpuPlugin(std::span<const std::string> candidates);
// The plug-in of this process, opened at the first call.
Result<CpuPlugin> ProcessCpuPlugin();

}  // namespace kiln::runtime
