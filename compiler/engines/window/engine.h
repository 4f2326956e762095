// window: groups around a resampling (pooling, interpolation, and their gradients). A thread makes
// one output, or a few neighbouring channels of it where they are contiguous, with any maps before
// and after. Gradients gather from the outputs that read an element, in a fixed order. Takes every
// such group: any layout, 1 to 3 spatial dims.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kWindowEngine;

}  // namespace kiln::compiler
