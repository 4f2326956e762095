// decompose: composite operations become primitives.
//
//   before  %y = pointwise(%x, %b) mode=add_square
//           %s, %q = gen_stats(%x)
//           %c = conv_fprop(%x, %w, %y0) alpha=2 beta=1
//   after   %t = map mul(%b, %b)            %y = map add(%x, %t)
//           %s = reduce add(%x)             %u = map mul(%x, %x)     %q = reduce add(%u)
//           %v = conv_fprop(%x, %w)         %w1 = map mul(%v, 2)     %c = map add(%w1, %y0)
//
// Every pointwise mode is one recipe in pointwise_recipes.cc. Intermediates have the node's compute
// type, so nothing is rounded that the composite would not round; the last primitive writes the
// composite's own output. Stands after canonicalise, which has removed dead nodes, and before all
// passes that look for structure.
#pragma once

#include "compiler/pass.h"

namespace kiln::compiler {

Result<bool> Decompose(Module& module, const PassContext& context);

}  // namespace kiln::compiler
