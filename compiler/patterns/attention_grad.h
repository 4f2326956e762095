// AttentionGrad: the chain of nodes that computes attention's gradients, found by structure in a
// graph of primitives.
//
//   product = matmul(q, k)                 k is [.., depth, keys]
//   exp     = exp(maps of product, less the row's statistics)      masks before it
//   weight  = exp * anything, selected or 0                        masks after it, dropout
//   inner   = matmul(dy, v)                v is [.., depth, keys]
//   slope   = maps of exp, of product, and of (maps of inner) - mean, the row's
//   dq      = matmul(slope * scale, k')    scale: the same for all places of a head
//   dk      = matmul((slope * scale)', q), dv = matmul(weight', dy)
//                                          where heads share k and v: summed over them
//
// Where weight and slope are 0 by lengths or bounds they are so for all three results, whose rows
// and operands clients limit as well.
//
// A sum of slopes over heads and batches, the gradient of a bias, may be stored as well.
// Sums over rows that read the statistics, as the gradient of a sink, belong to it.
//
// With operands of 8 bits weight and slope are rounded to as many behind the multiplication by
// numbers in memory, and so are the results, whose products are multiplied by others; the largest
// absolute values of slopes and of results before the last of these numbers may be stored.
//
// Statistics and mean are operands: they come from memory, or float. Casts and transpositions may
// stand anywhere. Nothing of it but the results is read from outside.
#pragma once

#include <optional>
#include <vector>

#include "compiler/patterns/attention.h"

namespace kiln::compiler {

// The end of a result with operands of 8 bits: what follows a product of `from`, place by place,
// and the largest absolute value of one of these values, if somebody stores it.
struct GradFinish {
  graph::TensorId from = -1;
  std::optional<LargestOf> largest = {};
};

struct AttentionGrad {
  graph::TensorId q = -1, k = -1, dy = -1, v = -1;  // operands of product and inner
  graph::TensorId product = -1, inner = -1, exp = -1, weight = -1, slope = -1;
  bool is_plain = false;                  // slope = exp * (inner - mean)
  graph::TensorId shifted = -1;           // the difference with the statistics
  graph::TensorId stats = -1, mean = -1;  // of rows
  graph::TensorId kept = -1;              // 1 or 0 at each place, made of it; or kAbsent
  std::vector<graph::TensorId> scales = {};
  // The stored results; dq may be scattered as well.
  graph::TensorId dq = -1, dk = -1, dv = -1;
  graph::TensorId dq_too = -1;  // dq stored once more, as another type; or kAbsent
  // The gradient of a bias, stored, and what it sums over heads and batches; or kAbsent.
  graph::TensorId dbias = -1, bias_slope = -1;
  std::vector<graph::NodeId> scatters = {};  // that store these, as ragged tensors
  // Stored sums of maps of rows, which read the statistics as well: the gradients of a sink.
  std::vector<graph::TensorId> sums = {};
  // Operands of 8 bits: weight and slope are what is rounded, so that numbers are multiplied before
  // that, and results have more behind them than `scales`.
  GradFinish of_dq = {}, of_dk = {}, of_dv = {};
  std::optional<LargestOf> largest_slope = {};
  std::vector<LargestOf> Largest() const;  // all of them
  std::vector<ScoreMask> masks = {};       // before the exponential, the last first
  // Places where exp counts as 0, without a fill: bounds, all of which are known.
  std::vector<ScoreMask> zeroes = {};
  // Selections that change nothing where the zeroes are; and of the product, nothing where the
  // masks and zeroes hide nothing.
  std::vector<ScoreMask> spares = {};
  std::optional<ScoreMask> product_mask = {};
  std::vector<graph::NodeId> members = {};  // ascending
};

// All gradients of attention in a graph. They share no node. The graph of a group has operands by
// tensor, no longer by uid: of one, it is known that its products read the same operands.
std::vector<AttentionGrad> FindAttentionGrad(const graph::Graph& graph, bool is_group = false);

// The factor of all scores, where nothing but it, the statistics and masks with known bounds stand
// between product and exponential.
std::optional<ScoreFactor> FactorOf(const graph::Graph& graph, const AttentionGrad& grad);
// The scatter that stores a result, or null: it is stored in its own place.
const graph::Node* ScatterOf(const graph::Graph& graph, const AttentionGrad& grad,
                             graph::TensorId result);
// The masks and zeroes, by which blocks are skipped.
std::vector<ScoreMask> MasksOf(const AttentionGrad& grad);

}  // namespace kiln::compiler
