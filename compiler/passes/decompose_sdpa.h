// Attention as primitives (ir/graph/sdpa.h has the formulas), for `decompose`:
//
//   %s = matmul(%q, transpose(%k));  %s = %s * %scale + %bias + %slope * (column - row)
//   %s = select(%visible, %s, -inf)                  a select a mask: padding, right, left, blocks
//   %w = exp(%s - %max) / %sum
//   %w = select(%visible, %w, 0)                     where a row may see nothing
//   %o = matmul(cast(%w), %v)                        rows from the length of q on are 0
//
// This is the chain that engines/attention.h recognises: a select on the weights is a factor of
// theirs, what rows have is computed from the maximum and the sum alone.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::compiler {

void DecomposeSdpaFwd(graph::Graph& g, const graph::Node& node);
void DecomposeSdpaBwd(graph::Graph& g, const graph::Node& node);
void DecomposePagedCacheLoad(graph::Graph& g, const graph::Node& node);

}  // namespace kiln::compiler
