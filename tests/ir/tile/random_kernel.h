// Random tile kernels that pass the verifier: every statement, binding, type and operation occurs.
// For tests of the text, the emitter and the interpreter.
#pragma once

#include <cstdint>

#include "ir/tile/tile.h"

namespace kiln::tile {

// A random kernel, the same for the same seed.
Kernel RandomKernel(uint32_t seed);

}  // namespace kiln::tile
