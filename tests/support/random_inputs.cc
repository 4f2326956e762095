// Values for random graphs, and for others.
#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "ir/graph/sdpa.h"
#include "ir/shape.h"
#include "tests/support/random_graph.h"

namespace kiln::graph {
namespace {

// For each tensor of offsets the elements of a batch, of the smallest of those that it serves.
std::map<TensorId, int64_t> LongestBatches(const Graph& graph) {
  std::map<TensorId, int64_t> longest;
  for (const Node& node : graph.nodes) {
    if (node.op != GraphOp::kRaggedLoad && node.op != GraphOp::kRaggedStore) continue;
    const bool is_load = node.op == GraphOp::kRaggedLoad;
    Dims dims = graph[is_load ? node.outputs[0] : node.inputs[0]].dims;
    dims[0] = 1;
    const int64_t each = SpanElements(dims, node.As<RaggedAttrs>().strides);
    const auto [at, is_new] = longest.emplace(node.inputs[1], each);
    if (!is_new) at->second = std::min(at->second, each);
  }
  return longest;
}

// Statistics that attention's gradients read: -inf of rows that see no key; others than large ones
// make weights above 1, which the type of q need not hold.
std::set<TensorId> AttentionStatistics(const Graph& graph) {
  std::set<TensorId> found;
  for (const Node& node : graph.nodes)
    if (node.op == GraphOp::kSdpaBwd) found.insert(node.inputs[sdpa_bwd::kStats]);
  return found;
}

// Tensors that are added to the scores of attention. Half of them hide keys, see HideKeys.
std::set<TensorId> AttentionBiases(const Graph& graph) {
  std::set<TensorId> found;
  for (const Node& node : graph.nodes) {
    if (node.op != GraphOp::kSdpaFwd && node.op != GraphOp::kSdpaBwd) continue;
    const TensorId bias = SdpaOperandsOf(node).bias;
    if (bias != kAbsent) found.insert(bias);
  }
  return found;
}

// Runs of neighbours are hidden, so that none, some or all keys of a row are. By -inf alone: a row
// of which every key has the same large finite mask is what rounding to f32 leaves of its scores,
// which the interpreter's f64 does not tell (sdpa_hidden.txt has such masks).
void HideKeys(std::mt19937_64& random, std::vector<double>& values) {
  for (size_t i = 0; i < values.size();) {
    const size_t end = std::min(values.size(), i + 1 + random() % 12);
    const bool hides = random() % 2 == 0;
    for (; i < end; ++i)
      if (hides) values[i] = -std::numeric_limits<double>::infinity();
  }
}

// False where each stride leads beyond all that the smaller ones reach: no two elements lie at one
// place then.
bool MayShare(const Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
  for (size_t d = 0; d < tensor.dims.size(); ++d)
    if (tensor.dims[d] > 1) dims.emplace_back(tensor.strides[d], tensor.dims[d]);
  std::ranges::sort(dims);
  int64_t reach = 0;
  for (const auto& [stride, extent] : dims) {
    if (stride <= reach) return true;
    reach += stride * (extent - 1);
  }
  return false;
}

// Elements that lie at one place have one value, the first one's.
void UnifyShared(const Tensor& tensor, std::vector<double>& values) {
  if (!MayShare(tensor)) return;
  std::map<int64_t, double> by_place;
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t place = 0, rest = static_cast<int64_t>(i);
    for (size_t d = tensor.dims.size(); d-- > 0; rest /= tensor.dims[d])
      place += rest % tensor.dims[d] * tensor.strides[d];
    values[i] = by_place.emplace(place, values[i]).first->second;
  }
}

// The largest numbers of integers that say how much of something counts: a matmul's overrides, the
// labels of CTC and its lengths.
std::map<TensorId, int64_t> Limits(const Graph& graph) {
  std::map<TensorId, int64_t> limits;
  for (const Node& node : graph.nodes) {
    const Dims& first = graph[node.inputs.empty() ? node.outputs[0] : node.inputs[0]].dims;
    std::vector<int64_t> of_inputs;
    if (node.op == GraphOp::kMatmul) {
      const Dims& c = graph[node.outputs[0]].dims;
      of_inputs = {-1, -1, c[c.size() - 2], c.back(), first.back()};
    } else if (node.op == GraphOp::kCtcLoss) {
      of_inputs = {-1, first[2] - 1, node.As<CtcLossAttrs>().max_label, first[0]};
    }
    for (size_t i = 0; i < std::min(of_inputs.size(), node.inputs.size()); ++i)
      if (of_inputs[i] >= 0 && node.inputs[i] != kAbsent) limits[node.inputs[i]] = of_inputs[i];
  }
  return limits;
}

// The lists of segments: offsets that do not fall, up to beyond the places; rows, some of which are
// not there; and rows of which no two are equal.
enum class ListKind : uint8_t { kOffsets, kRows, kOrder };
struct SegmentList {
  ListKind kind;
  int64_t limit;
};
std::map<TensorId, SegmentList> SegmentLists(const Graph& graph) {
  std::map<TensorId, SegmentList> lists;
  for (const Node& node : graph.nodes) {
    const bool reduces = node.op == GraphOp::kSegmentReduce;
    if (!reduces && node.op != GraphOp::kSegmentIds) continue;
    const size_t offsets = reduces ? 1 : 0, rows = offsets + 1;
    const bool has_rows = rows < node.inputs.size() && node.inputs[rows] != kAbsent;
    const int64_t extent = graph[reduces ? node.inputs[0] : node.outputs[0]].dims[0];
    const int64_t places = has_rows ? graph[node.inputs[rows]].dims[0] : extent;
    lists[node.inputs[offsets]] = {ListKind::kOffsets, places + 1};
    if (!has_rows) continue;
    SegmentList& list = lists.try_emplace(node.inputs[rows], ListKind::kRows, extent).first->second;
    if (!reduces) list = {ListKind::kOrder, extent};
  }
  return lists;
}

// The values of flags that are waited for, since nobody else sets them.
std::map<TensorId, int64_t> FlagsOfWaits(const Graph& graph) {
  std::map<TensorId, int64_t> flags;
  for (const Node& node : graph.nodes)
    if (node.op == GraphOp::kSignalWait) flags[node.inputs[1]] = node.As<SignalAttrs>().value;
  return flags;
}

void FillList(std::mt19937_64& random, const SegmentList& list, std::vector<double>& out) {
  const auto below = [&](int64_t n) {
    return static_cast<double>(random() % static_cast<uint64_t>(n));
  };
  if (list.kind == ListKind::kOrder) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<double>(i);
      std::swap(out[i], out[random() % (i + 1)]);
    }
    if (!out.empty() && random() % 3 == 0) out[0] = static_cast<double>(list.limit);
    return;
  }
  const bool is_rows = list.kind == ListKind::kRows;
  for (double& value : out) value = below(list.limit + (is_rows ? 2 : 1)) - (is_rows ? 1 : 0);
  if (!is_rows) std::ranges::sort(out);
}

}  // namespace

TensorValues RandomInputs(const Graph& graph, uint64_t seed, bool positive) {
  const std::map<TensorId, int64_t> limits = Limits(graph);
  const std::map<TensorId, int64_t> batches = LongestBatches(graph);
  const std::map<TensorId, SegmentList> lists = SegmentLists(graph);
  const std::map<TensorId, int64_t> flags = FlagsOfWaits(graph);
  const std::set<TensorId> statistics = AttentionStatistics(graph), biases = AttentionBiases(graph);
  TensorValues values;
  for (const TensorId id : Inputs(graph)) {
    const Tensor& tensor = graph[id];
    // A generator for each tensor, so that a tensor keeps its values when others go.
    std::mt19937_64 random(seed ^ (static_cast<uint64_t>(tensor.uid) * 0x9e3779b97f4a7c15));
    const auto below = [&](int64_t n) {
      return static_cast<double>(random() % static_cast<uint64_t>(n));
    };
    std::vector<double>& out = values[id];
    out.resize(static_cast<size_t>(NumElements(tensor.dims)));
    if (const auto longest = batches.find(id); longest != batches.end()) {
      double end = 0;
      for (double& value : out) value = std::exchange(end, end + below(longest->second + 1));
      continue;
    }
    if (const auto flag = flags.find(id); flag != flags.end()) {
      std::ranges::fill(out, static_cast<double>(flag->second));
      continue;
    }
    if (const auto list = lists.find(id); list != lists.end()) {
      FillList(random, list->second, out);
      continue;
    }
    for (double& value : out) {
      const bool fraction = IsFloat(tensor.dtype);
      const bool is_unsigned = positive || kiln::Info(tensor.dtype).kind == DTypeKind::kUint;
      if (const auto limit = limits.find(id); limit != limits.end())
        value = below(limit->second + 1);
      else if (statistics.contains(id))
        value = below(8) == 0 ? -std::numeric_limits<double>::infinity() : 8 + below(8);
      else if (IsBool(tensor.dtype))
        value = below(2);
      else
        value = RoundTo(tensor.dtype,
                        (is_unsigned ? 1 + below(8) : below(17) - 8) / (fraction ? 4 : 1));
    }
    if (biases.contains(id) && random() % 2 == 0) HideKeys(random, out);
    UnifyShared(tensor, out);
  }
  return values;
}

}  // namespace kiln::graph
