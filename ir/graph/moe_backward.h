// The gradient of the weights of a grouped matmul (ops_moe.cc), spelled out:
//
//   dweight[e] = sum over the rows r of expert e of token[0, r, :]^T * doutput[0, r, :]
//
// Rows are in the routed order; group g of expert g % experts has those from first_token_offset[g]
// on, up to the next group's first. An expert without rows gets zeros.
//
//   %own[E, T, 1]  = whether row t is one of expert e
//   %dweight       = matmul(select(%own, transpose(%token), 0), select(%own, %doutput, 0))
//
// A selection of both, not a product with 0: what rows of other experts hold, NaN or infinity,
// leaves no trace.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

struct MoeBackwardParts {
  TensorId token = kAbsent, doutput = kAbsent,
           first_token_offset = kAbsent;  // [1,T,K] [1,T,N] [G,1,1]
  TensorId dweight = kAbsent;             // [E,K,N]
  DType compute{};
};
// Checks parts from a source that nobody has checked, so that SpellMoeBackward may be given them.
Status CheckMoeBackward(const Graph& graph, const MoeBackwardParts& parts);
void SpellMoeBackward(Graph& graph, const MoeBackwardParts& parts);

}  // namespace kiln::graph
