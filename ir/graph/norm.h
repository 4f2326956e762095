// Operands of `norm_forward`, `norm_backward` and `bn_bwd_weights`, and the extents over which
// their statistics run. The importers, the API, `decompose` and the ops' own functions share it.
#pragma once

#include <optional>

#include "ir/graph/graph.h"

namespace kiln::graph {

// The inputs of norm_forward, of which any but x may be absent. mean and inv_variance are read in
// inference only; inputs from kPeers on are the buffers of all GPUs that have a part of the batch
// (batch norm; see peers.h).
enum class NormForwardIn : size_t {
  kX,
  kMean,
  kInvVariance,
  kScale,
  kBias,
  kEpsilon,
  kFactor,
  kRunningMean,
  kRunningVar,
  kPeers
};
enum class NormForwardOut : size_t { kY, kMean, kInvVariance, kNextMean, kNextVar };

// The inputs of norm_backward. scale, epsilon and peers may be absent; epsilon is not read.
enum class NormBackwardIn : size_t { kX, kDy, kMean, kInvVariance, kScale, kEpsilon, kPeers };
enum class NormBackwardOut : size_t { kDx, kDscale, kDbias };

// The inputs of bn_bwd_weights. scale may be absent where only dscale and dbias are asked for; any
// result may be absent.
enum class BnBwdWeightsIn : size_t { kX, kDy, kMean, kInvStd, kScale };
enum class BnBwdWeightsOut : size_t { kDscale, kDbias, kEqDyScale, kEqXScale, kEqBias };

// The operand of a node, or kAbsent.
template <class E>
TensorId In(const Node& node, E operand) {
  const auto i = static_cast<size_t>(operand);
  return i < node.inputs.size() ? node.inputs[i] : kAbsent;
}
template <class E>
TensorId Out(const Node& node, E result) {
  const auto i = static_cast<size_t>(result);
  return i < node.outputs.size() ? node.outputs[i] : kAbsent;
}

// Moves mean and inv_variance from the results to the operands: how an importer that reads them
// under one name makes a norm_forward of the inference phase.
void MoveStatisticsToInputs(Node& node);

// x as its statistics see it: `x` are its extents, of a group norm with the channels split in
// [groups, channels of a group]; `stats` has the same rank, 1 where the statistics reduce. In
// row-major order the elements are those of x and of the statistics' tensors, whose own extents are
// `stats_dims`.
struct NormView {
  Dims x, stats, stats_dims;
};

// The extents of x and of the statistics for a norm_forward, norm_backward or bn_bwd_weights node:
//
//   batch             [1, C, 1…]
//   instance          [N, C, 1…]
//   group             [N, G, 1…], G from the statistics' tensors, which must be there
//   layer, RMS, ada   the statistics' tensors say; where there are none: 1 where scale or bias has
//                     an extent, else x's (ada layer norm keeps dim 0); without these all but dim 0
//
// None where x has too few dims or the groups are not known; Verify has the sentence.
std::optional<NormView> NormViewOf(const Graph& graph, const Node& node);

}  // namespace kiln::graph
