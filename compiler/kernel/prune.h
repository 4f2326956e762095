// Prune: takes off a kernel's body what nothing reads: lets, and registers that are only written.
// Lowering binds values before it knows who asks for them (both halves of a division, inputs that
// only the epilogue needs); what is left over would be loads that cost time where the device
// compiler cannot prove them dead, and warnings.
#pragma once

#include "ir/tile/tile.h"

namespace kiln::compiler {

void Prune(tile::Block& body);

}  // namespace kiln::compiler
