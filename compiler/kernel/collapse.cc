#include "compiler/kernel/collapse.h"

#include <algorithm>

#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;

// Adds leading dims of extent 1 up to `rank`.
void PadRank(Tensor& t, int64_t rank) {
  const size_t missing = static_cast<size_t>(rank - t.rank());
  t.dims.insert(t.dims.begin(), missing, 1);
  t.strides.insert(t.strides.begin(), missing, 0);
}

// True if dims a (outer) and b (inner) of `t` are walked as one.
bool Mergeable(const Tensor& t, int64_t a, int64_t b) {
  if (t.dims[a] == 1 && t.dims[b] == 1) return true;
  if (t.dims[a] == 1 || t.dims[b] == 1) return false;
  return t.is_virtual || t.strides[a] == t.strides[b] * t.dims[b];
}

// Row-major without gaps, whatever strides dims of extent 1 have.
bool IsPacked(const Tensor& t) {
  const Dims packed = PackedStrides(t.dims);
  for (size_t d = 0; d < t.dims.size(); ++d)
    if (t.dims[d] != 1 && t.strides[d] != packed[d]) return false;
  return true;
}

}  // namespace

bool CanCollapse(const Group& group) {
  return std::ranges::all_of(group.graph.nodes, [](const graph::Node& n) {
    return n.op == graph::GraphOp::kMap || n.op == graph::GraphOp::kReduce;
  });
}

Group Collapse(const Group& group, graph::TensorId lead) {
  CHECK(CanCollapse(group));
  Group result = group;
  auto& tensors = result.graph.tensors;
  int64_t rank = 0;
  for (const Tensor& t : tensors) rank = std::max(rank, t.rank());
  Dims domain(static_cast<size_t>(rank), 1);
  for (Tensor& t : tensors) {
    PadRank(t, rank);
    for (int64_t d = 0; d < rank; ++d)
      if (t.dims[d] != 1) domain[d] = t.dims[d];
  }

  std::vector<int64_t> order;
  for (int64_t d = 0; d < rank; ++d)
    if (domain[d] != 1) order.push_back(d);
  const Tensor& leader = tensors[lead];
  // Dims that the leader broadcasts keep their place relative to their neighbours by sorting last.
  std::ranges::stable_sort(
      order, [&](int64_t a, int64_t b) { return leader.strides[a] > leader.strides[b]; });

  // Runs of dims that merge.
  std::vector<std::vector<int64_t>> runs;
  for (int64_t d : order) {
    const bool joins = !runs.empty() && std::ranges::all_of(tensors, [&](const Tensor& t) {
      return Mergeable(t, runs.back().back(), d);
    });
    if (joins)
      runs.back().push_back(d);
    else
      runs.push_back({d});
  }

  for (Tensor& t : tensors) {
    Dims dims, strides;
    for (const auto& run : runs) {
      int64_t extent = 1;
      for (int64_t d : run) extent *= t.dims[d];
      dims.push_back(extent);
      strides.push_back(extent == 1 ? 0 : t.strides[run.back()]);
    }
    if (runs.empty()) {
      dims = {1};
      strides = {0};
    }
    t.dims = std::move(dims);
    t.strides = std::move(strides);
  }
  return result;
}

bool IsPlaceOrView(const graph::Graph& g, const graph::Node& node) {
  const Tensor& y = g[node.outputs[0]];
  if (node.op == graph::GraphOp::kIota)
    return y.dims[static_cast<size_t>(node.As<graph::IotaAttrs>().axis)] == NumElements(y.dims);
  if (node.op != graph::GraphOp::kReshape) return false;
  const Tensor& x = g[node.inputs[0]];
  return y.is_virtual && x.dtype == y.dtype && IsPacked(x) && IsPacked(y);
}

std::optional<Group> Flatten(const Group& group) {
  Group flat = group;
  graph::Graph& g = flat.graph;
  int64_t count = 1;
  for (const Tensor& t : g.tensors) count = std::max(count, NumElements(t.dims));
  const bool fits =
      std::ranges::all_of(g.tensors,
                          [&](const Tensor& t) {
                            const int64_t n = NumElements(t.dims);
                            return n == 1 || (n == count && (t.is_virtual || IsPacked(t)));
                          }) &&
      std::ranges::all_of(g.nodes, [&](const graph::Node& node) {
        return node.op == graph::GraphOp::kMap || IsPlaceOrView(g, node);
      });
  if (!fits || count == 1) return std::nullopt;
  std::vector<graph::TensorId> seen(g.tensors.size());
  for (size_t i = 0; i < seen.size(); ++i) seen[i] = static_cast<graph::TensorId>(i);
  for (graph::Node& node : g.nodes) {
    for (graph::TensorId& id : node.inputs)
      if (id != graph::kAbsent) id = seen[static_cast<size_t>(id)];
    if (node.op == graph::GraphOp::kReshape)
      seen[static_cast<size_t>(node.outputs[0])] = node.inputs[0];
    else if (node.op == graph::GraphOp::kIota)
      node.attrs = graph::IotaAttrs{.axis = 0};
  }
  std::erase_if(g.nodes,
                [](const graph::Node& node) { return node.op == graph::GraphOp::kReshape; });
  for (Tensor& t : g.tensors) {
    const int64_t n = NumElements(t.dims);
    t.dims = {n};
    t.strides = {n == 1 ? 0 : 1};
  }
  return flat;
}

}  // namespace kiln::compiler
