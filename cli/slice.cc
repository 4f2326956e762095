#include "cli/slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>

#include "cli/memory.h"
#include "ir/graph/norm.h"
#include "ir/graph/ops.h"

namespace kiln::cli {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

// Dims that must be cut alike, as sets of (tensor, dim); a set is whole where one of its dims is,
// and begins at 0 where a place's number along one of them means something.
class DimSets {
 public:
  explicit DimSets(const Graph& graph) : graph_(graph) {
    for (const Tensor& tensor : graph.tensors) {
      first_.push_back(parent_.size());
      for (size_t d = 0; d < tensor.dims.size(); ++d) parent_.push_back(parent_.size());
    }
    whole_.resize(parent_.size(), false);
    begins_at_0_.resize(parent_.size(), false);
  }

  void KeepWhole(TensorId id, size_t dim) { whole_[Root(id, dim)] = true; }
  void KeepWhole(TensorId id) {
    for (size_t d = 0; id != kAbsent && d < graph_[id].dims.size(); ++d) KeepWhole(id, d);
  }
  void KeepStart(TensorId id, size_t dim) { begins_at_0_[Root(id, dim)] = true; }
  // Two dims of different extents may not be cut, but for one that is broadcast.
  void Join(TensorId a, size_t dim_a, TensorId b, size_t dim_b) {
    const int64_t extent_a = graph_[a].dims[dim_a], extent_b = graph_[b].dims[dim_b];
    if (extent_a != extent_b) {
      if (extent_a != 1) KeepWhole(a, dim_a);
      if (extent_b != 1) KeepWhole(b, dim_b);
      return;
    }
    const size_t root_a = Root(a, dim_a), root_b = Root(b, dim_b);
    whole_[root_b] = whole_[root_a] || whole_[root_b];
    begins_at_0_[root_b] = begins_at_0_[root_a] || begins_at_0_[root_b];
    parent_[root_a] = root_b;
  }
  // A broadcast operand of the result y, aligned at the right.
  void JoinBroadcast(TensorId x, TensorId y) {
    const size_t rank_x = graph_[x].dims.size(), rank_y = graph_[y].dims.size();
    for (size_t i = 1; i <= std::min(rank_x, rank_y); ++i)
      if (graph_[x].dims[rank_x - i] != 1) Join(x, rank_x - i, y, rank_y - i);
    for (size_t i = rank_y + 1; i <= rank_x; ++i) KeepWhole(x, rank_x - i);
  }

  bool IsWhole(TensorId id, size_t dim) { return whole_[Root(id, dim)]; }
  bool BeginsAt0(size_t root) const { return begins_at_0_[root]; }
  size_t Root(TensorId id, size_t dim) {
    size_t at = first_[static_cast<size_t>(id)] + dim;
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }

 private:
  const Graph& graph_;
  std::vector<size_t> first_, parent_;
  std::vector<bool> whole_, begins_at_0_;
};

void KeepAll(DimSets& sets, const Node& node) {
  for (const auto* ids : {&node.inputs, &node.outputs})
    for (const TensorId id : *ids) sets.KeepWhole(id);
}

void JoinElementwise(const Graph& graph, const Node& node, DimSets& sets) {
  const TensorId y = node.outputs[0];
  for (const TensorId x : node.inputs)
    if (x != kAbsent) sets.JoinBroadcast(x, y);
  if (node.op != GraphOp::kPointwise) return;
  const auto& attrs = node.As<graph::PointwiseAttrs>();
  const auto rank = static_cast<int64_t>(graph[y].dims.size());
  if (attrs.mode == graph::PointwiseMode::kGenIndex && attrs.axis >= 0 && attrs.axis < rank)
    sets.KeepStart(y, static_cast<size_t>(attrs.axis));
}

// Numbers of places: of one dim, or of all in row-major order, in which the first dim's come first.
void JoinIota(const Node& node, DimSets& sets) {
  sets.KeepStart(node.outputs[0], static_cast<size_t>(node.As<graph::IotaAttrs>().axis));
}

void JoinRng(const Graph& graph, const Node& node, DimSets& sets) {
  for (const TensorId id : node.inputs) sets.KeepWhole(id);
  sets.KeepStart(node.outputs[0], 0);
  for (size_t d = 1; d < graph[node.outputs[0]].dims.size(); ++d)
    sets.KeepWhole(node.outputs[0], d);
}

void JoinReduced(const Graph& graph, const Node& node, DimSets& sets) {
  const TensorId x = node.inputs[0], y = node.outputs[0];
  if (graph[x].dims.size() != graph[y].dims.size()) return KeepAll(sets, node);
  for (size_t d = 0; d < graph[x].dims.size(); ++d) sets.Join(x, d, y, d);
}

void JoinMatmul(const Graph& graph, const Node& node, DimSets& sets) {
  const TensorId a = node.inputs[0], b = node.inputs[1], c = node.outputs[0];
  const size_t rank = graph[c].dims.size();
  for (const TensorId x : node.inputs)
    if (x != kAbsent && graph[x].dims.size() != rank) return KeepAll(sets, node);
  for (const TensorId x : node.inputs) {
    for (size_t d = 0; x != kAbsent && d + 2 < rank; ++d)
      if (graph[x].dims[d] != 1) sets.Join(x, d, c, d);
  }
  if (node.inputs.size() > 2) {  // rows and columns are counted against m and n
    sets.KeepStart(c, rank - 2);
    sets.KeepStart(c, rank - 1);
  }
  sets.Join(a, rank - 2, c, rank - 2);
  sets.Join(b, rank - 1, c, rank - 1);
  sets.KeepWhole(a, rank - 1);
  sets.KeepWhole(b, rank - 2);
}

// The dims of a convolution's tensors that are cut alike: images, and channels of the result where
// there is one group.
void JoinConv(const Graph& graph, const Node& node, DimSets& sets) {
  const TensorId p = node.inputs[0], q = node.inputs[1], r = node.outputs[0];
  for (const TensorId id : {p, q, r})
    for (size_t d = 2; d < graph[id].dims.size(); ++d) sets.KeepWhole(id, d);
  const auto cut = [&](TensorId x, size_t dim_x, size_t dim_r) { sets.Join(x, dim_x, r, dim_r); };
  bool has_one_group = false;
  switch (node.op) {
    case GraphOp::kConvFprop:
      has_one_group = graph[p].dims[1] == graph[q].dims[1];
      cut(p, 0, 0), cut(q, 0, 1);
      sets.KeepWhole(p, 1), sets.KeepWhole(q, 1);
      break;
    case GraphOp::kConvDgrad:
      has_one_group = graph[r].dims[1] == graph[q].dims[1];
      cut(p, 0, 0), cut(q, 1, 1);
      sets.KeepWhole(p, 1), sets.KeepWhole(q, 0);
      break;
    default:
      has_one_group = graph[p].dims[1] == graph[r].dims[1];
      cut(q, 1, 0), cut(p, 1, 1);
      sets.KeepWhole(p, 0), sets.KeepWhole(q, 0);
      if (!has_one_group) sets.KeepWhole(r, 0);
      break;
  }
  if (!has_one_group) sets.KeepWhole(r, 1);
  if (node.inputs.size() > 2 && node.inputs[2] != kAbsent) sets.JoinBroadcast(node.inputs[2], r);
}

void JoinTransposed(const Graph& graph, const Node& node, DimSets& sets) {
  const auto& permutation = node.As<graph::TransposeAttrs>().permutation;
  for (size_t d = 0; d < graph[node.outputs[0]].dims.size(); ++d)
    sets.Join(node.inputs[0], static_cast<size_t>(permutation[d]), node.outputs[0], d);
}

// Images and channels of a pooling.
void JoinWindows(const Graph& graph, const Node& node, DimSets& sets) {
  const TensorId y = node.outputs[0];
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const TensorId id : *ids) {
      if (id == kAbsent) continue;
      if (graph[id].dims.size() != graph[y].dims.size()) return KeepAll(sets, node);
      for (size_t d = 0; d < graph[id].dims.size(); ++d)
        d < 2 ? sets.Join(id, d, y, d) : sets.KeepWhole(id, d);
    }
  }
}

// Dims along which each place has statistics of its own.
void JoinNorm(const Graph& graph, const Node& node, DimSets& sets) {
  const TensorId x = node.inputs[0];
  const auto view = graph::NormViewOf(graph, node);
  const bool is_plain = view && view->x == graph[x].dims && view->stats.size() == view->x.size();
  if (!is_plain) return KeepAll(sets, node);
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const TensorId id : *ids) {
      if (id == kAbsent) continue;
      if (graph[id].dims.size() != view->x.size()) {
        sets.KeepWhole(id);
        if (NumElements(graph[id].dims) != 1) return KeepAll(sets, node);
        continue;
      }
      for (size_t d = 0; d < view->x.size(); ++d) {
        // Gradients of scale and bias are sums over the dims that these are broadcast along.
        const bool is_summed = node.op == GraphOp::kNormBackward && ids == &node.outputs;
        if (view->stats[d] != view->x[d]) sets.KeepWhole(x, d);
        if (is_summed && graph[id].dims[d] != view->x[d]) sets.KeepWhole(x, d);
        if (graph[id].dims[d] != 1) sets.Join(id, d, x, d);
      }
    }
  }
}

void JoinNode(const Graph& graph, const Node& node, DimSets& sets) {
  switch (node.op) {
    case GraphOp::kPointwise:
    case GraphOp::kMap:
      return JoinElementwise(graph, node, sets);
    case GraphOp::kIota:
      return JoinIota(node, sets);
    case GraphOp::kRng:
      return JoinRng(graph, node, sets);
    case GraphOp::kReduction:
    case GraphOp::kReduce:
      return JoinReduced(graph, node, sets);
    case GraphOp::kMatmul:
      return JoinMatmul(graph, node, sets);
    case GraphOp::kConvFprop:
    case GraphOp::kConvDgrad:
    case GraphOp::kConvWgrad:
      return JoinConv(graph, node, sets);
    case GraphOp::kTranspose:
      return JoinTransposed(graph, node, sets);
    case GraphOp::kResampleFwd:
    case GraphOp::kResampleBwd:
      return JoinWindows(graph, node, sets);
    case GraphOp::kNormForward:
    case GraphOp::kNormBackward:
      return JoinNorm(graph, node, sets);
    default:
      return KeepAll(sets, node);
  }
}

// The length of a set's dims in the part, and where it begins.
struct Cut {
  int64_t extent = 0, length = 0, start = 0;
};

Graph CutGraph(const Graph& graph, DimSets& sets, const std::map<size_t, Cut>& cuts) {
  Graph part = graph;
  for (size_t t = 0; t < part.tensors.size(); ++t) {
    Tensor& tensor = part.tensors[t];
    const Dims before = tensor.dims;
    for (size_t d = 0; d < tensor.dims.size(); ++d)
      if (const auto cut = cuts.find(sets.Root(static_cast<TensorId>(t), d)); cut != cuts.end())
        tensor.dims[d] = cut->second.length;
    if (tensor.dims != before) tensor.strides = PackedStrides(tensor.dims);
  }
  return part;
}

}  // namespace

Slice SliceOf(const Graph& graph, int64_t most_bytes, uint64_t seed) {
  DimSets sets(graph);
  for (const Node& node : graph.nodes) JoinNode(graph, node, sets);
  std::map<size_t, Cut> cuts;
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const auto id = static_cast<TensorId>(t);
    for (size_t d = 0; d < graph[id].dims.size(); ++d) {
      const int64_t extent = graph[id].dims[d];
      if (extent > 1 && !sets.IsWhole(id, d))
        cuts[sets.Root(id, d)] = {.extent = extent, .length = extent};
    }
  }
  Slice slice{.graph = graph, .starts = {}};
  while (CheckBytes(slice.graph) > most_bytes) {
    const auto longest =
        std::ranges::max_element(cuts, {}, [](const auto& cut) { return cut.second.length; });
    if (longest == cuts.end() || longest->second.length == 1) break;
    longest->second.length = (longest->second.length + 1) / 2;
    slice.graph = CutGraph(graph, sets, cuts);
  }
  std::mt19937_64 random(seed);
  for (auto& [root, cut] : cuts) {
    const auto places = static_cast<uint64_t>(cut.extent - cut.length + 1);
    if (!sets.BeginsAt0(root)) cut.start = static_cast<int64_t>(random() % places);
  }
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    Dims& start = slice.starts.emplace_back(graph.tensors[t].dims.size(), 0);
    for (size_t d = 0; d < start.size(); ++d)
      if (const auto cut = cuts.find(sets.Root(static_cast<TensorId>(t), d)); cut != cuts.end())
        start[d] = cut->second.start;
  }
  return slice;
}

std::vector<double> PartOf(const Graph& whole, const Slice& slice, TensorId id,
                           const std::vector<double>& values) {
  const Dims& dims = whole[id].dims;
  const Dims& part = slice.graph[id].dims;
  const Dims& start = slice.starts[static_cast<size_t>(id)];
  const Dims strides = PackedStrides(dims);
  std::vector<double> elements(static_cast<size_t>(NumElements(part)));
  Dims at = start;
  for (double& element : elements) {
    element = values[static_cast<size_t>(
        std::inner_product(at.begin(), at.end(), strides.begin(), int64_t{0}))];
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < start[d] + part[d]) break;
      at[d] = start[d];
    }
  }
  return elements;
}

std::string PlacesText(const Slice& slice, TensorId id) {
  const Dims& start = slice.starts[static_cast<size_t>(id)];
  std::string text;
  for (size_t d = 0; d < start.size(); ++d)
    text += fmt::format("{}{}:{}", d == 0 ? "" : ",", start[d], start[d] + slice.graph[id].dims[d]);
  return "[" + text + "]";
}

}  // namespace kiln::cli
