// contract_mma: contractions of f16 and bf16 operands on tensor cores through mma.sync, on every
// GPU from sm_80 on, for any geometry, alignment, prologue and epilogue.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kContractMmaEngine;

}  // namespace kiln::compiler
