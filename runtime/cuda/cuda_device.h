// The CUDA device: kernels are compiled through the cache, loaded into the caller's context, and
// launched on the caller's stream. Called by the session (api) through runtime::Device, by the CLI
// and by tests.
//
// Contexts: the caller's current context where it has one on this GPU, else the GPU's primary
// context, which is what the CUDA runtime uses. A kernel belongs to the context it was loaded into
// and is launched there.
//
// Modules are never unloaded: a captured graph may hold a kernel long after its plan is gone, and
// at exit the driver may be gone before us. There are as many as there are kernel structures, not
// shapes.
#pragma once

#include <memory>

#include "runtime/cuda/cuda_compiler.h"
#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace kiln::runtime {

// The GPU of the calling thread's current context, else GPU 0.
Result<std::unique_ptr<Device>> OpenCudaDevice();
Result<std::unique_ptr<Device>> OpenCudaDevice(const Driver& driver, int ordinal,
                                               CudaCompiler& compiler);

// The ordinal of the GPU of the calling thread's current context; 0 where it has none.
Result<int> CurrentCudaOrdinal(const Driver& driver);

// The driver's description of a GPU as a Target. Creates no context.
Result<Target> CudaTarget(const Driver& driver, int ordinal);

}  // namespace kiln::runtime
