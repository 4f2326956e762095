// Tile IR to CUDA C++: one self-contained text that compiles with plain nvcc and with NVRTC.
#pragma once

#include <cstdint>
#include <string>

#include "ir/tile/tile.h"

namespace kiln::cuda_codegen {

// The kernel's comment, the parts of the prelude it uses, and the kernel. `kernel` has passed
// tile::Verify. From sm_90 on a kernel may be launched while the one before it ends: one that
// `overlaps` waits for that one before it touches memory, and says first of all that the next may
// come. PTX ISA "griddepcontrol".
std::string EmitCuda(const tile::Kernel& kernel, bool overlaps = false);

// What the launch has to name as dynamic shared memory: 0 up to 48 KB, which are declared
// statically.
int64_t DynamicSharedBytes(const tile::Kernel& kernel);

}  // namespace kiln::cuda_codegen
