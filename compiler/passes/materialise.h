// materialise: operands and results of contractions are stored on their way where that is cheaper.
//
//   before  group 0 contract:  %r = max(%x, 0)   %y = conv_fprop(%r, %w)     NCHW
//   after   group 0 pointwise: %r = max(%x, 0)                               written NHWC
//           group 1 pointwise: %w' = %w                                      NHWC
//           group 2 contract:  %y' = conv_fprop(%r, %w')                     NHWC
//           group 3 pointwise: %y = %y'                                      NCHW
//
// The fastest engines read operands by wide copies or tensor maps: as they lie in memory, without a
// prologue, channels (or one axis of a matrix) contiguous and the other strides whole 16 bytes.
// Others read element by element, and each element as often as tiles need it. A pass over the data
// costs its bytes once each way. Both are modelled: each subset of the operands and results that
// lie badly is tried, and the cheapest kept, if it is cheaper by a margin.
//
// Padding stays exact: what a prologue makes of a value never reaches the padding, which is zero.
// The choice follows from graph and target, and from whether the chosen engine rounds its inputs
// (those want other layouts); not from records or knobs, which speak of the contraction that this
// leaves. Not on the CPU, whose engines read any layout,
// and not under KILN_LAUNCH=minimal. Stands after partition, which makes the groups, and before
// pick-engine.
#pragma once

#include "compiler/pass.h"

namespace kiln::compiler {

Result<bool> Materialise(Module& module, const PassContext& context);

}  // namespace kiln::compiler
