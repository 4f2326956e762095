// UnrolledLoop: a loop over few places that is unrolled, and none over one place.
#pragma once

#include <functional>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

// emit(out, i) for each i below count, as a loop that is unrolled.
void UnrolledLoop(KernelBuilder& b, tile::Block& out, const char* name, int64_t count,
                  const std::function<void(tile::Block&, tile::Expr)>& emit);

}  // namespace kiln::compiler
