// Compiling side by side: a plan of several kernels waits for the slowest of them, not for all one
// after the other. Called where plans are made and where tuning begins.
#pragma once

#include <span>

#include "runtime/device.h"

namespace kiln::runtime {

// Calls Device::Prepare for each source that is not ready, on up to as many threads as there are
// cores, or fewer where the system gives no more. A source that fails says so when it is loaded.
void PrepareTogether(Device& device, std::span<const KernelSource> sources);

}  // namespace kiln::runtime
