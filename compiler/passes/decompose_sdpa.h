// Attention as primitives (ir/graph/sdpa.h has the formulas), for `decompose`:
//
//   %s = matmul(%q, transpose(%k));  %s = %s * %scale + %bias + %slope * (column - row)
//   %s = select(%visible, %s, -inf)                  a select a mask: padding, right, left, blocks
//   %shift = select(%max == -inf, 0, %max)           a row that sees no key has weights 0
//   %e = exp(%s - %shift);  %sum = reduce(%e)
//   %w = %e / select(%sum == 0, 1, %sum)
//   %o = matmul(cast(%w), %v)
//
// This is the chain that compiler/patterns/attention.h recognises: what rows have is computed from
// the maximum and the sum alone.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::compiler {

void DecomposeSdpaFwd(graph::Graph& g, const graph::Node& node);
void DecomposeSdpaBwd(graph::Graph& g, const graph::Node& node);
void DecomposePagedCacheLoad(graph::Graph& g, const graph::Node& node);

}  // namespace kiln::compiler
