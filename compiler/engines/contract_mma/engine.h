// contract_mma: contractions of f16, bf16, fp8 and int8 operands on tensor cores through mma.sync,
// on every GPU from sm_80 on, for any geometry, alignment, prologue and epilogue. Beside it what a
// client has to ask for: contract_mma_tf32, which rounds f32 operands, and contract_mma_atomic,
// whose sums have no fixed order.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kContractMmaEngine, kContractMmaTf32Engine, kContractMmaAtomicEngine;

// Multiply-adds a cycle of one SM, for operands of 16 bits: mma.sync has the full rate on sm_80,
// and about 0.6 of what warpgroups reach on sm_90.
}  // namespace kiln::compiler
