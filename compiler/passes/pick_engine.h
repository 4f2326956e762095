// pick-engine: each group gets an engine and its knobs.
//
//   before  group 0 contract: conv_fprop, mul, max
//   after   group 0 contract: conv_fprop, mul, max   engine contract_simt tile_m=64,tile_n=64
//                                                    declined: pointwise: the group has a
//                                                    contraction
//
// Every engine is asked, in the order of the registry; the cheapest by its own model wins, unless
// the context's advisor (tuning records) knows better. A caller's choice of engine and knobs speaks
// of the most expensive group, and fails in words if that engine declines. KILN_WHY=1 prints the
// refusals.
#pragma once

#include "compiler/pass.h"

namespace kiln::compiler {

Result<bool> PickEngine(Module& module, const PassContext& context);

}  // namespace kiln::compiler
