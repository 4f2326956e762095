// The gradients of attention, spelled as cudnn-frontend's composite node spells them, in two parts
// as its forward twin is (attention_parts.h), so that the interpreter, SettleSpelledAttention and
// the engines' patterns know one form:
//
//   score  = q k * scale                                       k[B,Hk,D,Skv], v[B,Hv,D,Skv]
//   weight = exp(what follows from score - stats, -inf where a place is not below the lengths)
//   mean   = rowsum(dy * o) * keep
//   dv     = (weight * bits / keep)' dy
//   slope  = (dy v * bits - mean) * weight / keep
//   dbias  = sum of slopes, back to where a bias was added
//   ds     = slope, back through what stands between score and softmax, * scale
//   dk     = ds' q           dq = ds k'
//   dsink  = sum of exp(sink - stats) * rowsum(dy * o)
//
// The last is spelled with the sign that NVIDIA's library has and settled as the derivative.
// Results of k and v are summed over the heads that share them.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::graph {

struct AttentionGradParts {
  TensorId q = kAbsent, k = kAbsent, v = kAbsent, o = kAbsent, dy = kAbsent, stats = kAbsent;
  TensorId scale = kAbsent, len_q = kAbsent, len_kv = kAbsent, sink = kAbsent;
  TensorId seed = kAbsent, offset = kAbsent;
  double keep = 1;  // the probability that a weight is not dropped
  TensorId dq = kAbsent, dk = kAbsent, dv = kAbsent, dsink = kAbsent;
};
TensorId SpellGradScores(Graph& graph, const AttentionGradParts& parts);
// Spells dv and dsink from the score as the softmax reads it, and returns the slope.
TensorId SpellSlope(Graph& graph, const AttentionGradParts& parts, TensorId score);
// Spells dk and dq from the gradient of SpellGradScores' result.
void SpellOperandGradients(Graph& graph, const AttentionGradParts& parts, TensorId slope);
// Sums slopes over the dims that the result does not have.
void SpellBiasGradient(Graph& graph, TensorId slope, TensorId dbias);

}  // namespace kiln::graph
