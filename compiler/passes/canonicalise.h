// canonicalise: one spelling for each graph. Topological order, shapes filled in, nodes without use
// removed.
//
//   before  %t = pointwise(%c) mode=exp        (virtual, never read)
//           %c = conv_fprop(%x, %w)            (reader first: the API's ops come in any order)
//           %y = pointwise(%c) mode=relu_fwd
//   after   %c = conv_fprop(%x, %w)
//           %y = pointwise(%c) mode=relu_fwd
//
// Stands first: every later pass relies on the order and pays for each node.
#pragma once

#include "compiler/pass.h"

namespace kiln::compiler {

Result<bool> Canonicalise(Module& module, const PassContext& context);

}  // namespace kiln::compiler
