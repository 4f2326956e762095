// Prune: takes everything off a kernel's body that nothing reads: lets, and registers that are only
// written. Lowering binds values before it knows who asks for them (both halves of a division,
// inputs that only the epilogue needs); left in, they would be loads that cost time where the
// device compiler cannot prove them dead, and warnings.
#pragma once

#include "ir/tile/tile.h"

namespace kiln::compiler {

void Prune(tile::Block& body);

}  // namespace kiln::compiler
