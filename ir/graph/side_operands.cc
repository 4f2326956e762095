#include "ir/graph/side_operands.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ir/graph/norm.h"
#include "ir/graph/sdpa.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

Dims WithoutOnes(const Dims& dims) {
  Dims rest;
  for (const int64_t extent : dims)
    if (extent != 1) rest.push_back(extent);
  return rest;
}

// The strides with which the tensor's memory has the extents `wanted`; none where its elements are
// others, or in another order.
std::optional<Dims> StridesFor(const Tensor& tensor, const Dims& wanted) {
  if (!CheckExtents(tensor.dims, {}).ok() || !CheckExtents(wanted, {}).ok()) return std::nullopt;
  const Dims own = WithoutOnes(tensor.dims), other = WithoutOnes(wanted);
  const bool has_strides = tensor.strides.size() == tensor.dims.size();
  if (own == other) {
    Dims strides(wanted.size(), 1);
    for (size_t d = 0, from = 0; d < wanted.size() && has_strides; ++d) {
      if (wanted[d] == 1) continue;
      while (tensor.dims[from] == 1) ++from;
      strides[d] = tensor.strides[from++];
    }
    return has_strides ? strides : PackedStrides(wanted);
  }
  if (own.size() > 1 || NumElements(own) != NumElements(wanted)) return std::nullopt;
  int64_t step = 1;
  for (size_t d = 0; d < tensor.dims.size() && has_strides; ++d)
    if (tensor.dims[d] != 1) step = tensor.strides[d];
  Dims strides = PackedStrides(wanted);
  for (int64_t& stride : strides) stride *= step;
  return strides;
}

// The strides of the first elements of memory that is declared as another number of them along one
// dim, as a tensor whose extents `wanted` are 1 but for one; none for other tensors.
std::optional<Dims> StridesOfFirst(const Tensor& tensor, const Dims& wanted, bool may_be_fewer) {
  if (!CheckExtents(tensor.dims, {}).ok() || tensor.strides.size() != tensor.dims.size())
    return std::nullopt;
  const Dims own = WithoutOnes(tensor.dims), other = WithoutOnes(wanted);
  if (tensor.is_virtual || own.size() != 1 || other.size() != 1) return std::nullopt;
  if (own[0] < other[0] && !may_be_fewer) return std::nullopt;
  const auto along = std::ranges::find_if(tensor.dims, [](int64_t extent) { return extent != 1; });
  Dims strides(wanted.size(), 1);
  for (size_t d = 0; d < wanted.size(); ++d)
    if (wanted[d] != 1)
      strides[d] = tensor.strides[static_cast<size_t>(along - tensor.dims.begin())];
  return strides;
}

class Fitting {
 public:
  explicit Fitting(Graph& graph) : g_(graph), uses_(graph.tensors.size(), 0) {
    for (const Node& node : g_.nodes)
      for (const auto* ids : {&node.inputs, &node.outputs})
        for (const TensorId id : *ids)
          if (id != kAbsent) ++uses_[static_cast<size_t>(id)];
  }

  void Run() {
    for (Node node : std::exchange(g_.nodes, {})) {
      behind_.clear();
      Fit(node);
      g_.AddNode(std::move(node));
      for (Node& reshape : behind_) g_.AddNode(std::move(reshape));
    }
  }

 private:
  using Places = std::vector<size_t>;

  void Fit(Node& node) {
    may_be_fewer_ = node.op == GraphOp::kGenStats;
    switch (node.op) {
      case GraphOp::kGenStats:
        return FitChannels(node, {}, {0, 1});
      case GraphOp::kBnFinalize:
        return FitScalars(node, {6, 7, 8});
      case GraphOp::kSdpaFwd:
        return FitScalars(node, {sdpa_fwd::kScale});
      case GraphOp::kSdpaBwd:
        return FitScalars(node, {sdpa_bwd::kScale});
      case GraphOp::kBnBwdWeights:
        return FitChannels(node, {2, 3, 4}, {0, 1, 2, 3, 4});
      case GraphOp::kNormForward:
        FitScalars(node, {5, 6});
        return FitNorm(node, node.As<NormForwardAttrs>().mode, {1, 2, 7, 8}, {1, 2, 3, 4}, {3, 4},
                       {});
      case GraphOp::kNormBackward:
        FitScalars(node, {5});
        return FitNorm(node, node.As<NormBackwardAttrs>().mode, {2, 3}, {}, {4}, {1, 2});
      default:
        return;
    }
  }

  const Dims* DimsOfX(const Node& node) const {
    if (node.inputs.empty() || node.inputs[0] == kAbsent) return nullptr;
    const Dims& x = g_[node.inputs[0]].dims;
    return x.size() < 2 ? nullptr : &x;
  }

  static Dims ChannelDims(const Dims& x, bool of_images) {
    Dims dims(x.size(), 1);
    dims[1] = x[1];
    if (of_images) dims[0] = x[0];
    return dims;
  }

  // A number that is passed by value is one, whatever extents it was given.
  void FitScalars(const Node& node, const Places& inputs) {
    for (const size_t place : inputs) {
      if (place >= node.inputs.size() || node.inputs[place] == kAbsent) continue;
      Tensor& tensor = g_[node.inputs[place]];
      if (!tensor.by_value) continue;
      std::ranges::fill(tensor.dims, 1);
      std::ranges::fill(tensor.strides, 1);
    }
  }

  void FitChannels(Node& node, const Places& inputs, const Places& outputs) {
    const Dims* x = DimsOfX(node);
    if (x == nullptr) return;
    const Dims wanted = ChannelDims(*x, false);
    FitAll(node.inputs, inputs, wanted, false);
    FitAll(node.outputs, outputs, wanted, true);
  }

  // Batch and instance norms have statistics of channels, and a weight for each. Those of layer and
  // RMS norms are where the weights have no extent, and the weights say which dims are normalised,
  // unless the statistics were declared with extents that say so themselves.
  void FitNorm(Node& node, NormMode mode, const Places& stats_in, const Places& stats_out,
               const Places& weights_in, const Places& weights_out) {
    const Dims* of_x = DimsOfX(node);
    if (of_x == nullptr) return;
    const Dims x = *of_x;
    if (mode == NormMode::kBatch || mode == NormMode::kInstance) {
      const Dims weights = ChannelDims(x, false),
                 stats = ChannelDims(x, mode == NormMode::kInstance);
      FitAll(node.inputs, weights_in, weights, false);
      FitAll(node.outputs, weights_out, weights, true);
      FitAll(node.inputs, stats_in, stats, false);
      FitAll(node.outputs, stats_out, stats, true);
    } else if (mode == NormMode::kLayer || mode == NormMode::kRms) {
      FitRank(node.inputs, weights_in, x, false);
      FitRank(node.outputs, weights_out, x, true);
      Dims stats = x;
      for (const size_t place : weights_in) {
        if (place >= node.inputs.size() || node.inputs[place] == kAbsent) continue;
        const Dims& weights = g_[node.inputs[place]].dims;
        if (weights.size() > x.size()) return;
        for (size_t i = 1; i <= weights.size(); ++i)
          if (weights[weights.size() - i] != 1) stats[x.size() - i] = 1;
      }
      if (stats == x) return;
      FitStats(node.inputs, stats_in, x, stats, false);
      FitStats(node.outputs, stats_out, x, stats, true);
    }
  }

  // Extents of x, or 1, for each of its dims stay.
  void FitStats(std::vector<TensorId>& ids, const Places& places, const Dims& x, const Dims& wanted,
                bool is_written) {
    for (const size_t place : places) {
      if (place >= ids.size() || ids[place] == kAbsent) continue;
      const Dims& dims = g_[ids[place]].dims;
      if (dims.size() != x.size() || !Broadcasts(dims, x)) FitOne(ids[place], wanted, is_written);
    }
  }

  void FitAll(std::vector<TensorId>& ids, const Places& places, const Dims& wanted,
              bool is_written) {
    for (const size_t place : places)
      if (place < ids.size() && ids[place] != kAbsent) FitOne(ids[place], wanted, is_written);
  }

  // All that a row has, as in [256] for [1,256,1,1], or ones at the end more or less than x has.
  // Extents that broadcast to x from the right stay, since that is what they mean.
  void FitRank(std::vector<TensorId>& ids, const Places& places, const Dims& x, bool is_written) {
    for (const size_t place : places) {
      if (place >= ids.size() || ids[place] == kAbsent) continue;
      Dims wanted = g_[ids[place]].dims;
      if (wanted.empty() || Broadcasts(wanted, x)) continue;
      Dims of_a_row = x;
      of_a_row[0] = 1;
      if (StridesFor(g_[ids[place]], of_a_row)) {
        FitOne(ids[place], of_a_row, is_written);
        continue;
      }
      while (wanted.size() > x.size() && wanted.back() == 1) wanted.pop_back();
      wanted.resize(std::max(wanted.size(), x.size()), 1);
      if (wanted.size() == x.size() && Broadcasts(wanted, x))
        FitOne(ids[place], wanted, is_written);
    }
  }
  static bool Broadcasts(const Dims& dims, const Dims& x) {
    if (dims.size() > x.size()) return false;
    for (size_t i = 1; i <= dims.size(); ++i) {
      const int64_t extent = dims[dims.size() - i];
      if (extent != 1 && extent != x[x.size() - i]) return false;
    }
    return true;
  }

  void FitOne(TensorId& id, const Dims& wanted, bool is_written) {
    Tensor& tensor = g_[id];
    if (tensor.dims.empty() || tensor.dims == wanted || tensor.by_value) return;
    std::optional<Dims> strides = StridesFor(tensor, wanted);
    const bool is_alone = uses_[static_cast<size_t>(id)] == 1;
    if (!strides && is_alone) strides = StridesOfFirst(tensor, wanted, may_be_fewer_);
    if (!strides) return;
    if (is_alone) {
      tensor.dims = wanted;
      tensor.strides = std::move(*strides);
      return;
    }
    Tensor fitted{.name = tensor.name + "_fitted",
                  .uid = -1,
                  .dtype = tensor.dtype,
                  .dims = wanted,
                  .strides = PackedStrides(wanted),
                  .is_virtual = true,
                  .value = std::nullopt};
    const TensorId declared = id;
    id = g_.AddTensor(std::move(fitted));
    Node reshape{.op = GraphOp::kReshape,
                 .inputs = {is_written ? id : declared},
                 .outputs = {is_written ? declared : id},
                 .compute = MovingType(g_[declared].dtype),
                 .attrs = ReshapeAttrs{},
                 .name = {}};
    if (is_written) {
      behind_.push_back(std::move(reshape));
    } else {
      g_.AddNode(std::move(reshape));
    }
  }

  Graph& g_;
  std::vector<int> uses_;
  std::vector<Node> behind_;  // reshapes of the results of the node at hand
  bool may_be_fewer_ = false;
};

}  // namespace

void FitSideOperands(Graph& graph) { Fitting(graph).Run(); }

}  // namespace kiln::graph
