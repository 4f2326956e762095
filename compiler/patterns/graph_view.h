// GraphView: a graph with its links, by which patterns are found, and questions about its values.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

// A graph with the links by which all its patterns are found.
class GraphView {
 public:
  explicit GraphView(const graph::Graph& g)
      : g_(g), producers_(graph::Producers(g)), readers_(graph::Consumers(g)) {}

  const graph::Graph& graph() const { return g_; }
  const graph::Tensor& operator[](graph::TensorId id) const { return g_[id]; }
  graph::NodeId ProducerId(graph::TensorId id) const {
    return id == graph::kAbsent ? -1 : producers_[id];
  }
  const graph::Node* Producer(graph::TensorId id) const {
    const graph::NodeId n = ProducerId(id);
    return n < 0 ? nullptr : &g_.nodes[n];
  }
  const std::vector<graph::NodeId>& Readers(graph::TensorId id) const { return readers_[id]; }

  // The node that makes `id`, if it is this map; casts are looked through.
  const graph::Node* Map(graph::TensorId id, ScalarOp op) const {
    const graph::Node* n = Producer(Uncast(id));
    const bool is_map = n != nullptr && n->op == graph::GraphOp::kMap;
    if (!is_map || n->As<graph::MapAttrs>().identity) return nullptr;
    return n->As<graph::MapAttrs>().op == op ? n : nullptr;
  }
  const graph::Node* Reduce(graph::TensorId id, graph::Combine combine) const {
    const graph::Node* n = Producer(Uncast(id));
    const bool is_reduce = n != nullptr && n->op == graph::GraphOp::kReduce;
    return is_reduce && n->As<graph::ReduceAttrs>().combine == combine ? n : nullptr;
  }
  // The value `id` before casts that keep its extents.
  graph::TensorId Uncast(graph::TensorId id) const {
    for (const graph::Node* n = Producer(id); n != nullptr && n->op == graph::GraphOp::kMap;
         n = Producer(id)) {
      if (!n->As<graph::MapAttrs>().identity || g_[n->inputs[0]].dims != g_[id].dims) break;
      id = n->inputs[0];
    }
    return id;
  }
  bool Same(graph::TensorId a, graph::TensorId b) const { return Uncast(a) == Uncast(b); }
  // The value `id` before select(x == number, number, id), which rows that see no key have instead
  // of it (ir/graph/spelled_attention.h).
  graph::TensorId Unguarded(graph::TensorId id) const {
    const graph::Node* select = Map(id, ScalarOp::kSelect);
    const graph::Node* is_none =
        select == nullptr ? nullptr : Map(select->inputs[0], ScalarOp::kEq);
    const bool is_guard = is_none != nullptr && g_[is_none->inputs[1]].is_constant() &&
                          g_[select->inputs[1]].is_constant() &&
                          g_[select->inputs[2]].dims == g_[id].dims;
    return is_guard ? select->inputs[2] : id;
  }
  bool IsZero(graph::TensorId id) const { return g_[id].is_constant() && *g_[id].value == 0; }

 private:
  const graph::Graph& g_;
  const std::vector<graph::NodeId> producers_;
  const std::vector<std::vector<graph::NodeId>> readers_;
};

// A number in memory, the largest absolute value of a tensor: reduce max(abs(value)), in f32.
struct LargestOf {
  graph::TensorId value = -1, result = -1;
  graph::NodeId abs = -1, reduce = -1;
};
// The largest absolute value whose nodes begin with this map, if there is one.
std::optional<LargestOf> LargestFrom(const GraphView& view, graph::NodeId abs);

// A product without overrides of its extents.
inline bool IsPlainMatmul(const graph::Node& n) {
  return n.op == graph::GraphOp::kMatmul &&
         std::ranges::all_of(n.inputs.begin() + 2, n.inputs.end(),
                             [](graph::TensorId id) { return id == graph::kAbsent; });
}

// The dims of a tensor that has one value for each row of a tensor of these dims.
inline Dims RowDims(Dims dims) {
  dims.back() = 1;
  return dims;
}

// The random bits of a place as Bernoulli numbers are made of them (passes/decompose_rng.cc):
// select(place % 2 == 0, word % 65536, word / 65536) with word = philox(place / 2, seed, offset).
struct RandomHalf {
  graph::TensorId half, place, seed, offset;
};
std::optional<RandomHalf> RandomHalfOf(const GraphView& view, graph::TensorId id);

// The conditions of whose conjunction `condition` is, each once.
void AddConjuncts(const GraphView& view, graph::TensorId condition,
                  std::vector<graph::TensorId>& all);
// True if two tensors are computed alike from the same ones, by no more nodes than a group has.
bool SameValue(const GraphView& view, graph::TensorId a, graph::TensorId b);

}  // namespace kiln::compiler
