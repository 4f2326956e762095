// Tile IR to CUDA C++: one self-contained text that compiles with plain nvcc and with NVRTC.
#pragma once

#include <cstdint>
#include <string>

#include "ir/tile/tile.h"

namespace kiln::cuda_codegen {

// A kernel's part in the overlap of neighbouring launches, sm_90 and later. A launch may begin
// while the one before it ends: then its kernel waits for that one before it touches memory, and
// the one before says as early as it can that the next may come. PTX ISA "griddepcontrol".
struct Neighbours {
  bool waits = false;     // for the launch before, whoever made it
  bool releases = false;  // the launch after
};

// Prints the kernel's comment, the parts of the prelude that it uses, and the kernel. `kernel` has
// passed tile::Verify.
std::string EmitCuda(const tile::Kernel& kernel, Neighbours neighbours = {});

// The bytes that the launch has to name as dynamic shared memory: 0 up to 48 KB, which are declared
// statically.
int64_t DynamicSharedBytes(const tile::Kernel& kernel);

}  // namespace kiln::cuda_codegen
