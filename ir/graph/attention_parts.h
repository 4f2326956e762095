// Parts of attention that the API has as one operation, and cudnn-frontend had spelled out before
// (softmax, the mask of a diagonal band): written into a graph as it spelled them, so that the
// interpreter, SettleSpelledAttention and the engines' patterns know one form.
//
//   softmax(x, sink) -> y, stats, max, sum of exponentials; along the last dim
//     max  = max(largest x of the row, sink)
//     sum  = sum of exp(x - max) + exp(sink - max)
//     y    = exp(x - max) / sum
//     stats = max + log(sum), with `log2` times log2(e)
//
//   band mask(x, fill) -> y: x where a comparison of places holds, else fill; i and j are the
//   places along the last two dims, len_q and len_kv those of the batch, 0 where they are absent:
//     without a left bound   compare(i + len_kv - len_q + shift, j)
//     with one               compare(j + left - len_kv + len_q, i)
//
// Called where graphs come in: the operations of the backend API (api/backend/softmax.h) and
// cudnn-frontend's JSON.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

struct SoftmaxParts {
  TensorId x = kAbsent, sink = kAbsent;
  TensorId y = kAbsent, stats = kAbsent, max = kAbsent, sum = kAbsent;  // all but y may be absent
  bool log2 = false;
};
void SpellSoftmax(Graph& graph, const SoftmaxParts& parts);

struct BandMaskParts {
  TensorId x = kAbsent, fill = kAbsent;  // without a fill: -inf
  TensorId len_q = kAbsent, len_kv = kAbsent, left = kAbsent, shift = kAbsent;
  TensorId y = kAbsent;
  PointwiseMode comparison{};
};
void SpellBandMask(Graph& graph, const BandMaskParts& parts);

// Attention forward, as cudnn-frontend's composite node spells it, in two parts, between which a
// client may have operations of its own on the score:
//
//   score  = q k * scale * descale_q * descale_k          k[B,Hk,D,Skv]
//   weight = softmax(HideBlocks(HidePadding(score))) * keep's bits / keep
//   o      = (weight * scale_s, rounded as q) v * descale_s * descale_v * scale_o
//
// amax_s and amax_o are absolute maxima of the weights and of o before scale_o.
struct AttentionParts {
  TensorId q = kAbsent, k = kAbsent, v = kAbsent, scale = kAbsent, len_q = kAbsent,
           len_kv = kAbsent, block_mask = kAbsent;
  SoftmaxParts softmax = {};  // all but x and y
  TensorId seed = kAbsent, offset = kAbsent, dump = kAbsent;
  double keep = 1;  // the probability that a weight is not dropped
  TensorId descale_q = kAbsent, descale_k = kAbsent, descale_v = kAbsent, descale_s = kAbsent,
           scale_s = kAbsent, scale_o = kAbsent, amax_s = kAbsent, amax_o = kAbsent;
  TensorId o = kAbsent;
};
TensorId SpellScores(Graph& graph, const AttentionParts& parts);
// The score, with -inf where the place along the last dim but one is not below len_q, or along the
// last one not below len_kv. A length that is absent hides nothing.
TensorId HidePadding(Graph& graph, TensorId score, TensorId len_q, TensorId len_kv);
// A boolean of the extents `scores`: true where the block mask (sdpa.h) has the bit of the score's
// block.
TensorId SpellSeenBlocks(Graph& graph, TensorId block_mask, const Dims& scores);
// The score, with -inf in blocks that are not seen. Without a mask all blocks are seen.
TensorId HideBlocks(Graph& graph, TensorId score, TensorId block_mask);
void SpellWeighted(Graph& graph, const AttentionParts& parts, TensorId score);

// A logical reshape keeps the order of elements, the last dim first, wherever x and y have theirs
// in memory.
Status CheckLogicalReshape(const Graph& graph, TensorId x, TensorId y);
void SpellLogicalReshape(Graph& graph, TensorId x, TensorId y);

// cumulative[B+1,1,...] -> the lengths[B,1,...] between its elements.
TensorId SpellLengths(Graph& graph, TensorId cumulative);
// x * factor.
TensorId SpellMultiple(Graph& graph, TensorId x, int64_t factor);

}  // namespace kiln::graph
