// AttentionGrad: the chain of nodes that computes attention's gradients, found by structure in a
// graph of primitives.
//
//   product = matmul(q, k)                 k is [.., depth, keys]
//   exp     = exp(maps of product, less the row's statistics)      masks before or after it
//   weight  = exp, selected or 0
//   inner   = matmul(dy, v)                v is [.., depth, keys]
//   slope   = weight * (inner - mean)      of the row; selected or 0 where weight is 0 anyway
//   dq      = matmul(slope * scale, k')    scale: the same for all places of a head
//   dk      = matmul((slope * scale)', q), dv = matmul(weight', dy)
//                                          where heads share k and v: summed over them
//
// Statistics and mean are operands: they come from memory, or float. Casts and transpositions may
// stand anywhere. Nothing of it but dq, dk and dv is read from outside.
#pragma once

#include <optional>
#include <vector>

#include "compiler/engines/attention.h"

namespace kiln::compiler {

struct AttentionGrad {
  graph::TensorId q = -1, k = -1, dy = -1, v = -1;  // operands of product and inner
  graph::TensorId product = -1, inner = -1, exp = -1, weight = -1;
  graph::TensorId shifted = -1;           // the difference with the statistics
  graph::TensorId stats = -1, mean = -1;  // of rows
  std::vector<graph::TensorId> scales = {};
  graph::TensorId dq = -1, dk = -1, dv = -1;  // what is stored
  graph::TensorId dq_too = -1;                // dq stored once more, as another type; or kAbsent
  std::vector<ScoreMask> masks =
      {};  // all, the last first; those after the exponential have no fill
  std::vector<graph::NodeId> members = {};  // ascending
};

// All of a graph. They share no node. The graph of a group has operands by tensor, no longer by
// uid: of one, it is known that its products read the same operands.
std::vector<AttentionGrad> FindAttentionGrad(const graph::Graph& graph, bool is_group = false);

// The factor of all scores, where nothing but it, the statistics and masks with known bounds stand
// between product and exponential.
std::optional<ScoreFactor> FactorOf(const graph::Graph& graph, const AttentionGrad& grad);

}  // namespace kiln::compiler
