// The panel of w for the first layer's dgrad, made once a block in the order of fragments:
//
//   panel[column of the window][16 filters][row of the window][set of 8 slots][lane][4]
//
// Taps that an output of a place does not have are zeros.
#pragma once

#include <string>

#include "compiler/engines/conv_first_layer/dgrad_context.h"

namespace kiln::compiler {

void FillDgradPanel(const DgradContext& x, const DgradLane& lane, tile::Block& body,
                    const std::string& panel);

}  // namespace kiln::compiler
