// Attention of a case in the words that clients without an operation for it use.
#pragma once

#include "tests/support/cases.h"

namespace kiln::testing {

// The case with each sdpa_fwd and sdpa_bwd that has more than the C interface's operation takes
// (bounds, bias, slopes, a sink) as products, reductions and pointwise operations, as
// cudnn-frontend writes them; new tensors stand behind the old ones.
Case SpelledOut(const Case& c);

}  // namespace kiln::testing
