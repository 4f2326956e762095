// Fprop of conv_first_layer: see the source.
#pragma once

#include "compiler/engines/conv_first_layer/tiles.h"

namespace kiln::compiler {

// Lowers fprop; `pixels` are the outputs that a warp makes at a time.
Lowered LowerFirstLayerFprop(const Group& group, const Target& target, const ConvShape& shape,
                             const FirstLayerPlan& plan, int pixels);

}  // namespace kiln::compiler
