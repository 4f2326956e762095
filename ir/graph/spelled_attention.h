// SettleSpelledAttention: attention that a client spells out by pointwise operations and reductions
// means the same as `sdpa_fwd` and `sdpa_bwd` (sdpa.h). The formulas as they are spelled say
// something else in three places, where NVIDIA's library has the meaning and not the formula:
//
//   a row that sees no key     exp(-inf - -inf) / 0 is NaN; its weights are 0:
//                                shift   = select(max == -inf, 0, max)      exp(score - shift)
//                                divisor = select(sum == 0, 1, sum)         exp / divisor
//                              Statistics stay max + log(sum), which is -inf.
//   gradients of such a row    exp(-inf - -inf) again; with
//                                shift   = select(stats == -inf, inf, stats)
//                              weights are 0, and so is all that they are multiplied by.
//   a row from seq_q on        has no sink, or its statistics would be the sink's:
//                                sink    = select(row < seq_q, sink, the mask's own fill)
//   gradients of a sink        cudnn-frontend spells the sum of exp(sink - stats) * rowsum(do * o);
//                              the derivative is its negative, which is written.
//
// Called by Legalize, which every graph from outside goes through, so that the interpreter, the
// passes and all engines have one graph. What it writes it does not find again.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

// The graph must hold (Verify). Returns whether it changed.
bool SettleSpelledAttention(Graph& graph);

}  // namespace kiln::graph
