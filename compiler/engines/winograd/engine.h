// The winograd engines: 3x3 convolutions of stride 1 in f32 by Winograd's products. See
// winograd/plan.h for the algorithm, winograd/transforms.h for the kernels around the product.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

// The product on FMA units, any GPU.
extern const Engine kWinogradEngine;
// The same as three products of TF32 numbers for one, on Hopper.
extern const Engine kWinogradSm90Engine;

}  // namespace kiln::compiler
