// Repair of sums that are not finite in conv_direct's tensor core kernel (conv_direct/mma.cc). B is
// block-diagonal, and a channel that is not finite times its zeros is NaN in its neighbours. So a
// lane that sees such a sum makes its outputs again, one by one and from their own channels alone.
#pragma once

#include "compiler/engines/conv_direct/mma_panel.h"

namespace kiln::compiler {

// Writes one output at `at`, by a plain walk over its taps and channels, whose operands are read as
// `type`, through the group's maps to memory.
void MakeOutputAlone(KernelBuilder& b, const ConvShape& shape, DType type, tile::Block& body,
                     const Index& at);

}  // namespace kiln::compiler
