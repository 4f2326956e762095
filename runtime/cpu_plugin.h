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

// KILN_CPU_PLUGIN alone; else beside our own library, in ../lib of it, in a Bazel tree, by the
// loader.
std::vector<std::string> CpuPluginCandidates();
Result<CpuPlugin> OpenCpuPlugin(std::span<const std::string> candidates);
// Opened at the first call.
Result<CpuPlugin> ProcessCpuPlugin();

}  // namespace kiln::runtime
