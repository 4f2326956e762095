// contract_simt: every contraction with any prologue and epilogue, any dtype, any geometry, on
// ordinary FMA units. The engine that takes what the tensor-core engines decline.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kContractSimtEngine;

}  // namespace kiln::compiler
