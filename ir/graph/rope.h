// Rotary position embedding, which the API has as one operation, spelled out. A row of x, at the
// place s along the dim before the last, is turned by the angles of its place:
//
//   x = [ rest | low | high ]      low and high are the halves of the last rope_dim elements
//   y = scale * [ rest | low * cos - high * sin | high * cos + low * sin ]
//
// where cos and sin are those of freqs[s, …, 0 to rope_dim / 2). Both halves have one angle, so
// that the gradient is the rotation by the negative one, and angles beyond the first half are not
// read: clients store them twice. dx of dy is the same with sin negated.
//
//   %angle = transpose(slice(%freqs))
//   %y = concat(slice(%x) * scale, low * cos - high * sin, high * cos + low * sin)
//
// Views, pointwise operations and a concatenation: one group of the pointwise engine.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

struct RopeParts {
  TensorId x = kAbsent, freqs = kAbsent, y = kAbsent;  // freqs[S or more, 1…, rope_dim or more]
  double scale = 1;
  int64_t rope_dim = 0;  // even, 2 to the last dim of x
  bool is_backward = false;
};
// Checks parts from a source that nobody has checked, so that SpellRope may be given them.
Status CheckRope(const Graph& graph, const RopeParts& parts);
void SpellRope(Graph& graph, const RopeParts& parts);

}  // namespace kiln::graph
