#include "compiler/engines/collapse.h"

#include <algorithm>

#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;

// Leading dims of extent 1 up to `rank`.
void PadRank(Tensor& t, int64_t rank) {
  const size_t missing = static_cast<size_t>(rank - t.rank());
  t.dims.insert(t.dims.begin(), missing, 1);
  t.strides.insert(t.strides.begin(), missing, 0);
}

// Whether dims a (outer) and b (inner) of `t` are walked as one.
bool Mergeable(const Tensor& t, int64_t a, int64_t b) {
  if (t.dims[a] == 1 && t.dims[b] == 1) return true;
  if (t.dims[a] == 1 || t.dims[b] == 1) return false;
  return t.is_virtual || t.strides[a] == t.strides[b] * t.dims[b];
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

}  // namespace kiln::compiler
