// schedule: each group becomes tile kernels and their launches, by its engine.
//
//   before  group 0 pointwise, engine pointwise:  %out_max = map max(%in0, 0)
//   after   kernel(in0: ptr<f16> const, count: i32, out_max: ptr<f16>) { for bx … for tx … copy …
//           store … copy }
//
// Groups that write nothing, because all extents they write are 0, have no kernels.
#pragma once

#include "compiler/pass.h"

namespace kiln::compiler {

Result<bool> Schedule(Module& module, const PassContext& context);

}  // namespace kiln::compiler
