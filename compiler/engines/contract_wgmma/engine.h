// The wgmma_sm90 engine: contractions on Hopper's tensor cores, loaded by tensor maps. See
// contract_wgmma/plan.h for what becomes of an operation,
// codegen/cuda/device/contract/contract_sm90.cuh for how it runs.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kWgmmaSm90Engine;
// f32 operands, rounded to TF32: only for clients that ask, or that let heuristics offer it.
extern const Engine kWgmmaSm90Tf32Engine;
// f32 operands that keep their bits, as sums of two TF32 numbers.
extern const Engine kWgmmaSm903xTf32Engine;

}  // namespace kiln::compiler
