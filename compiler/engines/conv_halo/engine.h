// The conv_halo_sm90 engine: convolutions of stride 1 with few channels on Hopper's tensor cores,
// from tiles whose halo is loaded once. See conv_halo/plan.h for what becomes of an operation,
// codegen/cuda/device/{conv,wgrad}_halo_sm90.cuh for how it runs.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kConvHaloSm90Engine;

}  // namespace kiln::compiler
