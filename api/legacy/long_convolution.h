// Causal convolutions with long filters by transforms, and these by matrix products:
//
//   y = the first K places of each block of IDFT(DFT(w) DFT(block and the block before it))
//
// A transform of N = 2K places is a stage for each of its radices R (128 and less), N = R M:
//
//   z[k,m] = sum over n of e^(-2 pi i n k / R) x[n M + m]      a product with a matrix of [2R,2R],
//                                                             real and imaginary parts as rows
//   z[k,m] e^(-2 pi i k m / N)                                a map
//   the same of M places for each k                           the next stage
//
// Places come out in the order of the stages, which the inverse takes back, so that nothing is
// turned around. The first stage reads real rows, and of a padded block the half that is there; the
// last of the inverse makes the half that is wanted, real. A stage is 4 R multiplications for each
// of the N places (the real ones R), and reads and writes 8 bytes of it twice in f32. At K = 16384
// three stages of 32 make 300 multiplications a place where the sum has 8192 for each of half as
// many; large radices save memory traffic, small ones products.
//
// Errors are those of a sum in the compute type, of the norms of the row and the filter; what is no
// number reaches all places of its row.
#pragma once

#include "api/legacy/call_graph.h"

namespace kiln::api::legacy {

struct LongConvolution {
  int64_t batch = 1, dim = 1, length = 1, taps = 2;  // a multiple of the taps, a power of 2
  DType compute = DType::kF32;
};

// Of x[N,C,L] and w[C,1,K], whose first tap stands on the place itself.
graph::TensorId LongForward(CallGraph& g, const LongConvolution& p, graph::TensorId x,
                            graph::TensorId w);
struct LongGradients {
  graph::TensorId dx, dw;
};
LongGradients LongBackward(CallGraph& g, const LongConvolution& p, graph::TensorId x,
                           graph::TensorId w, graph::TensorId dy);

}  // namespace kiln::api::legacy
