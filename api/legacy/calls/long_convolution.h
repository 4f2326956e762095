// Causal convolutions with long filters by transforms, and these by matrix products:
//
//   y = the first K places of each block of IDFT(DFT(w) DFT(block and the block before it))
//
// A transform of N = 2K places is a stage for each of its radices R, N = R M:
//
//   z[k,m] = sum over n of e^(-2 pi i n k / R) x[n M + m]      a product with a matrix of [2R,2R],
//                                                             real and imaginary parts as rows
//   z[k,m] e^(-2 pi i k m / N)                                a map
//   the same of M places for each k                           the next stage
//
// Places come out in the order of the stages, which the inverse takes back, so that nothing is
// turned around. The first stage reads of a padded block the half that is there; the last of the
// inverse makes the half that is wanted. Two blocks of a row are the real and the imaginary parts
// of one transform, where their number is even; else the parts that are 0 or not wanted are left
// out.
//
// A stage is 4 R multiplications for each of the N places, and reads and writes 8 bytes of it twice
// in f32; large radices save memory traffic, small ones products. At K = 16384, a block of its own,
// the two transforms of a result take three stages of 32 each and some 1100 multiplications for
// each of the K places, where the sum has K.
//
// Errors are those of a sum in the compute type, of the norms of the row and the filter; what is no
// number reaches all places of its block, of the one beside it and of those that follow these.
#pragma once

#include "api/legacy/plans/call_graph.h"

namespace kiln::api::legacy {

struct LongConvolution {
  int64_t batch = 1, dim = 1, length = 1, taps = 2;  // a multiple of the taps, a power of 2
  DType compute = DType::kF32;
  int64_t largest_radix = 32;  // a power of 2
};

// The convolution of x[N,C,L] and w[C,1,K], whose first tap stands on the place itself.
graph::TensorId LongForward(CallGraph& g, const LongConvolution& p, graph::TensorId x,
                            graph::TensorId w);
struct LongGradients {
  graph::TensorId dx, dw;
};
LongGradients LongBackward(CallGraph& g, const LongConvolution& p, graph::TensorId x,
                           graph::TensorId w, graph::TensorId dy);

}  // namespace kiln::api::legacy
