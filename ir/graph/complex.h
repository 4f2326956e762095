// Complex tensors as real ones. No interpreter, pass or kernel knows complex numbers: graphs lose
// them when they come in (Legalize, and the API's import).
//
//   tensor %x uid=1 c64 [4,6] strides=[6,1]      →  tensor %x uid=1 f32 [4,6,2] strides=[12,2,1]
//   %y = pointwise(%x, %b) mode=mul                 %x_re, %x_im = the two slices of %x
//                                                   %re = x_re * b_re - x_im * b_im
//                                                   %im = x_re * b_im + x_im * b_re
//                                                   %y = concat(%re, %im) along the last dim
//
// In memory the parts of a number follow each other, the real one first. A virtual tensor is two. A
// real operand is a complex one without an imaginary part, a real result is the real part; factors
// (alpha, beta) are real. Convolutions, in all directions, and products conjugate nothing.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

// Complex tensors may stand at views and concatenation, matmul and convolutions; pointwise
// identity, add, sub, mul, div, add_square, neg, reciprocal, abs, exp, equal, not equal, select and
// gen_index; reductions that add, average or multiply, and norm1, norm2 and amax of magnitudes;
// numbers without an order have no min and max. Other operations are refused by a sentence, and so
// is a complex number passed by value, which is two. Does nothing to graphs without complex
// numbers. Extents must be known.
Status SplitComplex(Graph& graph);

}  // namespace kiln::graph
