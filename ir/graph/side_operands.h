// Side operands (scales, biases, statistics) that a client declared with other extents than the
// operation has for them, but with the same elements in the same order: [64] or [1,1,64,1] for
// [1,64,1,1]; or with more of them, of which the first are meant. cuDNN looks at their memory
// alone; here each gets the extents that its operation has. The sums of gen_stats may also be
// fewer: like NVIDIA's engines it writes those of all channels.
//
//   tensor %scale uid=2 f32 [64]                    tensor %scale uid=2 f32 [1,64,1,1]
//   %y = norm_forward(%x, …, %scale, …)       →     %y = norm_forward(%x, …, %scale, …)
//
// One that other nodes use, too, keeps its extents, and a reshape stands between. Whatever else has
// other elements is left for the verifier's sentence. tests/api/backend/side_operands.tsv has what
// NVIDIA's library takes.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

// The graph must be normalised; its extents need not be inferred yet.
void FitSideOperands(Graph& graph);

}  // namespace kiln::graph
