// The conv_direct engine: convolutions with few channels a group. See conv_direct/engine.cc.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kConvDirectEngine;

}  // namespace kiln::compiler
