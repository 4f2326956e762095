// Kernels of one thread whose every statement stores one random expression: for comparing what the
// emitted C++ computes with what the interpreter does. Only operations that the host rounds as a
// device does occur.
#pragma once

#include "ir/tile/tile.h"

namespace kiln::tile {

inline constexpr int kExpressionKernels = 40;
inline constexpr int kExpressionsEach = 25;

// kernel expressions_<seed>(out: ptr<f64>, i, j: i32, l: i64, a, b: f32, d: f64, c: bool)
Kernel ExpressionKernel(uint32_t seed);

}  // namespace kiln::tile
