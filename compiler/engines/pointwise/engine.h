// pointwise: one thread per vector of output elements. Takes every group without contraction and
// reduction: any rank, any strides, views and broadcasts folded into the addresses, several
// outputs.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kPointwiseEngine;

}  // namespace kiln::compiler
