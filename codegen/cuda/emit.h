// Tile IR to CUDA C++: one self-contained text that compiles with plain nvcc and with NVRTC.
#pragma once

#include <cstdint>
#include <string>

#include "ir/tile/tile.h"

namespace kiln::cuda_codegen {

// The kernel's comment, the parts of the prelude it uses, and the kernel. `kernel` has passed
// tile::Verify.
std::string EmitCuda(const tile::Kernel& kernel);

// What the launch has to name as dynamic shared memory: 0 up to 48 KB, which are declared
// statically.
int64_t DynamicSharedBytes(const tile::Kernel& kernel);

}  // namespace kiln::cuda_codegen
