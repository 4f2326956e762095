// The conv_first_layer engine: convolutions of few input channels. See conv_first_layer/engine.cc.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kConvFirstLayerEngine;

}  // namespace kiln::compiler
