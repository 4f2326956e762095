#include "compiler/passes/divide_group.h"

#include <algorithm>
#include <map>

#include "compiler/engines/contraction/tiles.h"
#include "compiler/passes/extract_groups.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;

constexpr int64_t kWorkspaceAlignment = 256;

// The place where a tensor of the group is stored on its way: a tensor of the module's graph that
// is made for it.
struct Place {
  TensorId outer = graph::kAbsent;
  Dims strides = {};
};
using Places = std::map<TensorId, Place>;

// A group under construction, from nodes of another one.
class Part {
 public:
  Part(const Group& from, GroupKind kind, const Places& places) : from_(from), places_(places) {
    group_.kind = kind;
    group_.graph.name = from.graph.name;
    group_.moves_data = kind == GroupKind::kPointwise;
  }

  // Adds the nodes, in order. Tensors with a place are read or written there.
  void Add(const std::vector<char>& inside) {
    for (size_t n = 0; n < inside.size(); ++n) {
      if (!inside[n]) continue;
      Node copy = from_.graph.nodes[n];
      for (TensorId& id : copy.inputs) id = Import(id, "x");
      for (TensorId& id : copy.outputs) id = Import(id, "y");
      group_.graph.nodes.push_back(std::move(copy));
    }
  }

  // A map that only moves `from` to `to`.
  void AddMove(TensorId from, TensorId to) {
    const DType type = ArithmeticType(group_.graph[from].dtype);
    group_.graph.AddNode({.op = GraphOp::kMap,
                          .inputs = {from},
                          .outputs = {to},
                          .compute = type,
                          .attrs = graph::MapAttrs{.identity = true},
                          .name = ""});
  }

  // `id` where it was before, whether or not it has a place.
  TensorId Original(TensorId id, const char* name) {
    return AddTensor(from_.graph[id], from_.outer[id], name);
  }
  TensorId Placed(TensorId id, const Place& place, const char* name) {
    Tensor t = from_.graph[id];
    t.strides = place.strides;
    t.alignment = kWorkspaceAlignment;
    t.is_virtual = false;
    t.uid = place.outer;
    return AddTensor(std::move(t), place.outer, name);
  }

  Graph& graph() { return group_.graph; }
  Group Take() { return std::move(group_); }

 private:
  TensorId Import(TensorId id, const char* role) {
    if (id == graph::kAbsent) return id;
    if (const auto known = inner_.find(id); known != inner_.end()) return known->second;
    const auto place = places_.find(id);
    // Leaves of what only moves data are x, x2 …: equal work is equal text, whatever the role was.
    const bool is_leaf = graph::Producers(from_.graph)[id] < 0;
    const bool keeps_name = is_leaf ? !group_.moves_data : place == places_.end();
    const char* name = keeps_name ? "" : role;
    return inner_[id] =
               place != places_.end() ? Placed(id, place->second, name) : Original(id, name);
  }

  TensorId AddTensor(Tensor t, TensorId outer, const std::string& name) {
    const std::string wish = name.empty() ? t.name : name;
    t.name = wish;
    for (int n = 2; std::ranges::find(group_.graph.tensors, t.name, &Tensor::name) !=
                    group_.graph.tensors.end();
         ++n)
      t.name = fmt::format("{}{}", wish, n);
    group_.outer.push_back(outer);
    return group_.graph.AddTensor(std::move(t));
  }

  const Group& from_;
  const Places& places_;
  Group group_;
  std::map<TensorId, TensorId> inner_;
};

bool IsConvolution(const Node& node) { return node.op != GraphOp::kMatmul; }

// The nodes after the contraction, by what becomes of them.
struct Epilogue {
  std::vector<char> follows;  // depends on the contraction
  std::vector<char> late;     // reads a tensor that is laid out like the results to move
};

Epilogue EpilogueOf(const Group& group) {
  const Graph& g = group.graph;
  const std::vector<NodeId> producers = graph::Producers(g);
  const Node& anchor = ContractionOf(group);
  const Dims& domain = g[anchor.outputs[0]].dims;
  Epilogue e{.follows = std::vector<char>(g.nodes.size()), .late = {}};
  e.late = e.follows;
  std::vector<char> conflicts(g.nodes.size());  // floats, and reads such a tensor
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    e.follows[n] = &node == &anchor;
    if (e.follows[n]) continue;
    for (const TensorId id : node.inputs) {
      if (id == graph::kAbsent) continue;
      const NodeId from = producers[id];
      e.follows[n] |= from >= 0 && e.follows[from];
      const bool is_leaf = from < 0 && !g[id].by_value && !g[id].is_constant();
      conflicts[n] |= is_leaf ? g[id].dims == domain && !ChannelsLast(g[id])
                              : from >= 0 && (conflicts[from] || e.late[from]);
    }
    e.late[n] = e.follows[n] && conflicts[n];
    conflicts[n] = !e.follows[n] && conflicts[n];
  }
  return e;
}

class Divider {
 public:
  Divider(const Group& group, const Division& division, TensorId first)
      : group_(group),
        g_(group.graph),
        division_(division),
        first_(first),
        anchor_(ContractionOf(group)),
        producers_(graph::Producers(g_)),
        late_(g_.nodes.size()) {}

  DividedGroup Run() {
    std::vector<Group> before;
    for (const Division::Operand& operand : division_.operands)
      if (operand_places_.try_emplace(operand.position, Place{}).second)
        before.push_back(StoreOperand(operand));
    if (division_.results) PlaceResults();
    done_.groups = std::move(before);
    done_.groups.push_back(Contract());
    if (division_.results) MoveResults();
    return std::move(done_);
  }

 private:
  Place NewPlace(TensorId id, Dims strides) {
    const Place place{first_ + static_cast<TensorId>(done_.tensors.size()), std::move(strides)};
    done_.tensors.push_back({.name = "stored",
                             .dtype = g_[id].dtype,
                             .dims = g_[id].dims,
                             .strides = place.strides,
                             .alignment = kWorkspaceAlignment,
                             .is_virtual = true});
    return place;
  }

  // Nodes that these tensors are computed from, and that no `stop` says are computed elsewhere.
  template <class F>
  std::vector<char> NodesFor(std::vector<TensorId> pending, F&& stop) const {
    std::vector<char> inside(g_.nodes.size());
    while (!pending.empty()) {
      const TensorId id = pending.back();
      pending.pop_back();
      const NodeId n = id == graph::kAbsent ? -1 : producers_[id];
      if (n < 0 || inside[n] || stop(n)) continue;
      inside[n] = 1;
      const Node& node = g_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (&node != &anchor_ || !operand_places_.contains(i)) pending.push_back(node.inputs[i]);
    }
    return inside;
  }

  Group StoreOperand(const Division::Operand& operand) {
    const TensorId id = anchor_.inputs[operand.position];
    const Place place = operand_places_[operand.position] = NewPlace(id, operand.strides);
    const Places here = {{id, place}};
    const bool computed = producers_[id] >= 0;
    Part part(group_, GroupKind::kPointwise, here);
    if (computed) {
      part.Add(NodesFor({id}, [](NodeId) { return false; }));
    } else {
      const TensorId x = part.Original(id, "x");
      part.AddMove(x, part.Placed(id, place, "y"));
    }
    return part.Take();
  }

  // Results to move, and what maps after them read, get places.
  void PlaceResults() {
    const Epilogue e = EpilogueOf(group_);
    late_ = e.late;
    const auto readers = graph::Consumers(g_);
    for (size_t t = 0; t < g_.tensors.size(); ++t) {
      const auto id = static_cast<TensorId>(t);
      const NodeId from = producers_[id];
      if (from < 0 || !e.follows[from] || late_[from]) continue;
      const bool is_result = !g_[id].is_virtual;
      const bool is_read =
          std::ranges::any_of(readers[id], [&](NodeId n) { return late_[n] != 0; });
      if ((is_result && !ChannelsLast(g_[id])) || (!is_result && is_read))
        places_[id] = NewPlace(id, StridesWithInnermost(1, g_[id].dims, 16 / SizeOf(g_[id].dtype)));
    }
  }

  Group Contract() {
    std::vector<TensorId> results;
    for (size_t t = 0; t < g_.tensors.size(); ++t) {
      const auto id = static_cast<TensorId>(t);
      const NodeId from = producers_[id];
      if (from >= 0 && !late_[from] && (!g_[id].is_virtual || places_.contains(id)))
        results.push_back(id);
    }
    const std::vector<char> inside = NodesFor(results, [&](NodeId n) { return late_[n] != 0; });
    // Operands that are stored are leaves of another name: the tensor itself may be read elsewhere.
    Group copy = group_;
    Places places = places_;
    Node* anchor = nullptr;
    for (Node& node : copy.graph.nodes)
      if (Has(node, graph::kContraction)) anchor = &node;
    for (const auto& [position, place] : operand_places_) {
      Tensor leaf = g_[anchor_.inputs[position]];
      leaf.name = OperandRole(anchor_, position);
      leaf.is_virtual = false;
      copy.outer.push_back(place.outer);
      const TensorId id = static_cast<TensorId>(copy.graph.tensors.size());
      copy.graph.tensors.push_back(std::move(leaf));
      anchor->inputs[position] = id;
      places[id] = place;
    }
    Part part(copy, GroupKind::kContract, places);
    part.Add(inside);
    return part.Take();
  }

  void MoveResults() {
    const bool any_late = std::ranges::any_of(late_, [](char is_late) { return is_late != 0; });
    if (any_late) {
      std::vector<TensorId> results;
      for (size_t t = 0; t < g_.tensors.size(); ++t)
        if (producers_[t] >= 0 && late_[producers_[t]] && !g_[t].is_virtual)
          results.push_back(static_cast<TensorId>(t));
      const Epilogue e = EpilogueOf(group_);
      Part part(group_, GroupKind::kPointwise, places_);
      part.Add(NodesFor(results, [&](NodeId n) { return e.follows[n] && !late_[n]; }));
      done_.groups.push_back(part.Take());
    }
    for (const auto& [id, place] : places_) {
      if (g_[id].is_virtual) continue;
      Part part(group_, GroupKind::kPointwise, places_);
      const TensorId x = part.Placed(id, place, "x");
      part.AddMove(x, part.Original(id, "y"));
      done_.groups.push_back(part.Take());
    }
  }

  const Group& group_;
  const Graph& g_;
  const Division& division_;
  const TensorId first_;
  const Node& anchor_;
  const std::vector<NodeId> producers_;
  std::vector<char> late_;
  std::map<size_t, Place> operand_places_;
  Places places_;
  DividedGroup done_;
};

}  // namespace

Dims StridesWithInnermost(size_t inner, const Dims& dims, int64_t multiple) {
  Dims strides(dims.size(), 1);
  int64_t stride = AlignUp(std::max<int64_t>(dims[inner], 1), multiple);
  for (size_t d = dims.size(); d-- > 0;) {
    if (d == inner) continue;
    strides[d] = stride;
    stride *= std::max<int64_t>(dims[d], 1);
  }
  return strides;
}

bool MovesResults(const Group& group) {
  if (!IsConvolution(ContractionOf(group))) return false;
  // Reductions of the result are made from the contraction's tiles, which does without moving it.
  const auto reduces = [](const Node& n) { return Has(n, graph::kReduction); };
  if (std::ranges::any_of(group.graph.nodes, reduces)) return false;
  const std::vector<TensorId> results = graph::Outputs(group.graph);
  const auto moves = [&](TensorId id) { return !ChannelsLast(group.graph[id]); };
  if (std::ranges::any_of(results, moves)) return true;
  return std::ranges::any_of(EpilogueOf(group).late, [](char late) { return late != 0; });
}

DividedGroup DivideGroup(const Group& group, const Division& division, TensorId first) {
  return Divider(group, division, first).Run();
}

}  // namespace kiln::compiler
