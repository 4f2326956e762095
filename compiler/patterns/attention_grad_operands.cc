#include "compiler/patterns/attention_grad_operands.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

namespace {

bool SwapsLast(const Node& n) {
  const auto& permutation = n.As<graph::TransposeAttrs>().permutation;
  const auto rank = static_cast<int64_t>(permutation.size());
  if (rank < 2) return false;
  for (int64_t d = 0; d + 2 < rank; ++d)
    if (permutation[d] != d) return false;
  return permutation[rank - 2] == rank - 1;
}

// The views through which `id` is read, from the last one on, and the tensor that they start from.
std::vector<TensorId> ViewsOf(const GraphView& view, TensorId id, TensorId& first) {
  std::vector<TensorId> views;
  for (const Node* n = view.Producer(id); n != nullptr; n = view.Producer(id)) {
    const bool is_view = n->op == GraphOp::kTranspose || n->op == GraphOp::kReshape ||
                         (n->op == GraphOp::kMap && n->As<graph::MapAttrs>().identity);
    if (!is_view) break;
    views.push_back(id);
    id = n->inputs[0];
  }
  first = id;
  return views;
}

// The heads become [kept, group], or a dim of extent 1 leaves.
bool Relabel(const Dims& from, const Dims& to, int64_t heads, int64_t kept, bool summed,
             std::vector<int>& labels) {
  if (!summed) {
    const auto at = std::ranges::find(labels, static_cast<int>(heads)) - labels.begin();
    Dims wanted = from;
    if (std::ranges::find(labels, -1) != labels.end()) return false;
    wanted[at] = kept;
    wanted.insert(wanted.begin() + at + 1, from[at] / kept);
    labels.insert(labels.begin() + at + 1, -1);
    return to == wanted;
  }
  const auto at = std::ranges::find(labels, -1) - labels.begin();
  if (at == std::ssize(labels) || from[at] != 1) return false;
  Dims wanted = from;
  wanted.erase(wanted.begin() + at);
  labels.erase(labels.begin() + at);
  return to == wanted;
}

}  // namespace

std::optional<Alias> AliasOf(const GraphView& view, TensorId id) {
  TensorId first = kAbsent;
  std::vector<TensorId> views = ViewsOf(view, id, first);
  const Tensor& memory = view[first];
  const Node* made = view.Producer(first);
  // A tensor that is gathered once, as rows of ragged tensors, is itself and nothing else.
  const bool is_gathered = made != nullptr && made->op == GraphOp::kGather;
  if (!is_gathered &&
      (made != nullptr || memory.by_value || memory.is_constant() || memory.uid < 0))
    return std::nullopt;
  Alias alias{.uid = memory.uid, .dims = memory.dims, .strides = memory.strides};
  if (is_gathered) {
    alias.uid = -2 - int64_t{first};
    alias.strides = PackedStrides(memory.dims);
  }
  for (size_t d = 0; d < alias.dims.size(); ++d)
    if (alias.dims[d] == 1) alias.strides[d] = 0;
  for (; !views.empty(); views.pop_back()) {
    const Tensor& t = view[views.back()];
    const Node& n = *view.Producer(views.back());
    // Wider types hold the same values.
    if (t.dtype != view[n.inputs[0]].dtype && t.dtype != DType::kF32) return std::nullopt;
    if (n.op != GraphOp::kTranspose) {
      if (t.dims != alias.dims) return std::nullopt;
      continue;
    }
    Alias moved{.uid = alias.uid, .dims = {}, .strides = {}};
    for (const int64_t d : n.As<graph::TransposeAttrs>().permutation) {
      moved.dims.push_back(alias.dims[d]);
      moved.strides.push_back(alias.strides[d]);
    }
    alias = std::move(moved);
  }
  return alias;
}

Alias Swapped(Alias alias) {
  const size_t rank = alias.dims.size();
  std::swap(alias.dims[rank - 1], alias.dims[rank - 2]);
  std::swap(alias.strides[rank - 1], alias.strides[rank - 2]);
  return alias;
}

TensorId Plain(const GraphView& view, TensorId id) {
  for (const Node* n = view.Producer(id); n != nullptr; n = view.Producer(id)) {
    const bool is_cast = n->op == GraphOp::kMap && n->As<graph::MapAttrs>().identity;
    if ((!is_cast && n->op != GraphOp::kReshape) || view[n->inputs[0]].dims != view[id].dims) break;
    id = n->inputs[0];
  }
  return id;
}

bool PlaceBounds::Add(TensorId condition, bool swapped) {
  std::vector<IndexBound> found = BoundsOf(view_, condition, view_[condition].rank());
  for (IndexBound& bound : found) {
    if (swapped) std::swap(bound.row, bound.column);
    if (!Has(bound)) all_.push_back(std::move(bound));
  }
  return !found.empty();
}

void PlaceBounds::Add(const PlaceBounds& other) {
  for (const IndexBound& bound : other.all_)
    if (!Has(bound)) all_.push_back(bound);
}

bool PlaceBounds::Has(const IndexBound& bound) const {
  return std::ranges::any_of(all_, [&](const IndexBound& own) { return Same(own, bound); });
}
bool PlaceBounds::HasAll(const PlaceBounds& other) const {
  return std::ranges::all_of(other.all_, [&](const IndexBound& bound) { return Has(bound); });
}
PlaceBounds PlaceBounds::Without(const PlaceBounds& other) const {
  PlaceBounds left(view_);
  for (const IndexBound& bound : all_)
    if (!other.Has(bound)) left.all_.push_back(bound);
  return left;
}

bool PlaceBounds::Same(const IndexBound& a, const IndexBound& b) const {
  return a.compare == b.compare && a.row == b.row && a.column == b.column &&
         a.offsets.size() == b.offsets.size() &&
         std::ranges::equal(a.offsets, b.offsets,
                            [&](const IndexBound::Offset& x, const IndexBound::Offset& y) {
                              return x.sign == y.sign && SameValue(view_, x.tensor, y.tensor);
                            });
}

const Node* ZeroMask(const GraphView& view, TensorId id) {
  const Node* n = view.Map(id, ScalarOp::kSelect);
  return n != nullptr && view.IsZero(n->inputs[2]) && view[n->inputs[1]].dims == view[id].dims
             ? n
             : nullptr;
}

MaskedOperand OperandOf(const GraphView& view, TensorId id, PlaceBounds& bounds) {
  MaskedOperand o{.id = Plain(view, id)};
  std::vector<std::pair<TensorId, bool>> conditions;  // behind how many exchanges: even or odd
  while (true) {
    const Node* n = view.Producer(o.id);
    if (n != nullptr && n->op == GraphOp::kTranspose && SwapsLast(*n)) {
      o = {.id = Plain(view, n->inputs[0]), .transposed = !o.transposed};
      continue;
    }
    const Node* mask = ZeroMask(view, o.id);
    if (mask == nullptr || BoundsOf(view, mask->inputs[0], view[mask->inputs[0]].rank()).empty())
      break;
    conditions.emplace_back(mask->inputs[0], o.transposed);
    o.id = Plain(view, mask->inputs[1]);
  }
  for (const auto& [condition, was_transposed] : conditions)
    bounds.Add(condition, was_transposed != o.transposed);
  return o;
}

graph::NodeId ScatterAfter(const GraphView& view, TensorId id) {
  if (view.Readers(id).size() != 1) return -1;
  const graph::NodeId n = view.Readers(id)[0];
  const Node& node = view.graph().nodes[n];
  return node.op == GraphOp::kScatter && node.inputs[0] == id ? n : -1;
}

bool GradResult(const GraphView& view, TensorId product, const Dims& operand, bool is_open,
                PlaceBounds& bounds, TensorId& result) {
  const Dims& each = view[product].dims;
  const int64_t rank = view[product].rank(), heads = rank - 3;
  const int64_t kept = operand[heads];
  std::vector<int> labels(each.size());  // which dim of the product a dim is, -1 the group's
  std::iota(labels.begin(), labels.end(), 0);
  const std::vector<int> straight = labels;
  bool summed = kept == each[heads];
  result = product;
  while (view[result].is_virtual && ScatterAfter(view, result) < 0) {
    const bool may_end = is_open && summed && labels == straight;
    if (view.Readers(result).size() != 1) return may_end;
    const Node& n = view.graph().nodes[view.Readers(result)[0]];
    const TensorId y = n.outputs[0];
    const Dims &from = view[result].dims, &to = view[y].dims;
    if (n.op == GraphOp::kTranspose) {
      std::vector<int> moved;
      for (const int64_t d : n.As<graph::TransposeAttrs>().permutation) moved.push_back(labels[d]);
      labels = moved;
    } else if (n.op == GraphOp::kReduce && !summed) {
      auto group = std::ranges::find(labels, -1) - labels.begin();
      // All heads share one.
      if (group == std::ssize(labels) && kept == 1)
        group = std::ranges::find(labels, static_cast<int>(heads)) - labels.begin();
      Dims wanted = from;
      if (group == std::ssize(labels)) return false;
      wanted[group] = 1;
      if (n.As<graph::ReduceAttrs>().combine != graph::Combine::kAdd || to != wanted) return false;
      summed = true;
    } else if (n.op == GraphOp::kReshape && to != from) {
      if (!Relabel(from, to, heads, kept, summed, labels)) return false;
    } else if (ZeroMask(view, y) == &n && n.inputs[1] == result && labels == straight) {
      if (!bounds.Add(n.inputs[0], true)) return false;
    } else if (n.op != GraphOp::kReshape &&
               !(n.op == GraphOp::kMap && n.As<graph::MapAttrs>().identity)) {
      return may_end;
    }
    result = y;
  }
  return summed && labels == straight;
}

}  // namespace kiln::compiler
