// simplify: removes everything that decomposition leaves and that costs and does nothing.
//
//   before  %i = iota axis=2      %j = iota axis=2       (one shape)
//           %a = map identity(%x)                        (same dtype, %a virtual)
//           %b = map mul(%a, %c)  %d = map mul(%x, %c)   (both virtual)
//           %w = resample_fwd(%x) compute=f32, virtual f32, for %y = map identity(%w) alone
//   after   one iota, no identity, one mul, %y = resample_fwd(%x) compute=f32
//
// Only exact rewrites: no algebra that could change a rounding, a NaN or an infinity. Stands before
// partition, so that common parts are computed by one group.
#pragma once

#include "compiler/pass.h"

namespace kiln::compiler {

Result<bool> Simplify(Module& module, const PassContext& context);

}  // namespace kiln::compiler
