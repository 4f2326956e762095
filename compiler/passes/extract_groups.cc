#include "compiler/passes/extract_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/patterns/memory_places.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;

constexpr int64_t kIntermediateAlignment = 256;
constexpr std::string_view kRoles[] = {"x", "w", "dy", "a", "b", "y"};

// The memory behind all groups.
struct Memory {
  std::vector<char> stored;                         // of a tensor: a group stores it
  std::unordered_map<TensorId, MemoryPlace> views;  // of what floats
};

// A member's result is stored if the caller wants it or a node outside the group reads it. A loop
// over time stores all that its node has, wanted or not, but for what its own group reads: of a
// stack of them the stage above has that.
std::vector<char> FindStored(const LinkedGraph& linked, const Placement& placement) {
  const Graph& g = linked.g;
  const std::vector<int>& home = placement.home;
  std::vector<char> stored(g.tensors.size(), 0);
  std::vector<int> group_of(g.nodes.size(), kNoGroup);
  for (size_t d = 0; d < placement.groups.size(); ++d)
    for (const NodeId n : placement.groups[d].members) group_of[n] = static_cast<int>(d);
  for (size_t t = 0; t < g.tensors.size(); ++t)
    stored[t] = home[t] != kNoGroup && !g.tensors[t].is_virtual;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    for (const TensorId x : g.nodes[n].inputs)
      if (x != kAbsent && home[x] != kNoGroup && home[x] != group_of[n]) stored[x] = 1;
    const Node& node = g.nodes[n];
    constexpr uint32_t kStoresAll = graph::kRecurrence | graph::kSegments | graph::kPeers;
    if ((graph::Info(node.op).traits & kStoresAll) == 0) continue;
    for (const TensorId y : node.outputs) {
      if (y == kAbsent) continue;
      const bool is_inner = std::ranges::any_of(
          linked.readers[y], [&](NodeId m) { return group_of[m] == group_of[n]; });
      if (!is_inner) stored[y] = 1;
    }
  }
  return stored;
}

// A tensor that is in memory. Intermediates are dense, in the order their strides wish for.
MemoryPlace OwnPlace(const LinkedGraph& linked, const Placement& placement, TensorId x) {
  if (const auto part = placement.parts.find(x); part != placement.parts.end()) return part->second;
  const Tensor& t = linked.g[x];
  const bool is_own = linked.producers[x] < 0 || !t.is_virtual;
  return {.memory = x, .strides = is_own ? t.strides : PackedStridesLike(t.dims, t.strides)};
}

// Views of what is in memory, as far as strides say where they are. Contractions take them as
// operands that lie there.
std::unordered_map<TensorId, MemoryPlace> FindViews(const LinkedGraph& linked,
                                                    const Placement& placement,
                                                    const std::vector<char>& stored) {
  const Graph& g = linked.g;
  std::unordered_map<TensorId, MemoryPlace> views;
  for (const Node& node : g.nodes) {
    if (!Has(node, graph::kView) || placement.home[node.outputs[0]] != kNoGroup) continue;
    const TensorId x = node.inputs[0];
    const auto known = views.find(x);
    const bool is_stored = linked.producers[x] < 0
                               ? !g[x].by_value && !g[x].is_constant()
                               : placement.home[x] != kNoGroup && stored[x] != 0;
    if (known == views.end() && !is_stored) continue;
    const MemoryPlace of_operand =
        known != views.end() ? known->second : OwnPlace(linked, placement, x);
    if (const auto place = PlaceOfView(g, node, of_operand)) views[node.outputs[0]] = *place;
  }
  // A reshape goes by the strides of its operand: as a leaf it would have others.
  for (const Node& node : g.nodes) {
    if (node.op != GraphOp::kReshape || views.contains(node.outputs[0])) continue;
    const auto seen = views.find(node.inputs[0]);
    if (seen != views.end() && seen->second.strides != g[node.inputs[0]].strides) views.erase(seen);
  }
  return views;
}

// A transposed operand that lies in memory (the gradients read keys both ways) is memory seen with
// its dims in another order: tensor maps are of memory.
void FoldTransposes(Group& group) {
  Graph& g = group.graph;
  const std::vector<NodeId> producers = graph::Producers(g);
  const std::vector<std::vector<NodeId>> readers = graph::Consumers(g);
  std::set<TensorId> folded;
  for (const Node& node : g.nodes) {
    if (node.op != GraphOp::kTranspose) continue;
    const TensorId id = node.inputs[0], y = node.outputs[0];
    const Tensor& x = g[id];
    const bool is_operand = std::ranges::all_of(
        readers[y], [&](NodeId n) { return Has(g.nodes[n], graph::kContraction); });
    if (producers[id] >= 0 || x.by_value || x.is_constant() || !is_operand || !g[y].is_virtual ||
        g[y].dtype != x.dtype)
      continue;
    const Dims& permutation = node.As<graph::TransposeAttrs>().permutation;
    for (size_t d = 0; d < permutation.size(); ++d) g[y].strides[d] = x.strides[permutation[d]];
    g[y].alignment = x.alignment;
    g[y].is_virtual = false;
    group.outer[y] = group.outer[id];
    folded.insert(y);
  }
  std::erase_if(g.nodes, [&](const Node& node) { return folded.contains(node.outputs[0]); });
}

// Results are called by their operation, where they are not stored.
std::string ResultName(const Node& node) {
  if (node.op != GraphOp::kMap) return std::string(graph::Info(node.op).mnemonic);
  const auto& map = node.As<graph::MapAttrs>();
  return map.identity ? "cast" : Info(map.op).text;
}

// One group's graph. Tensors get names that say what they are in this kernel, the same for every
// graph of the same structure: operands by role (x, x2, x3 where they have none), results by
// operation and a number, what is stored `y`.
class GroupExtraction {
 public:
  GroupExtraction(const LinkedGraph& linked, const Placement& placement, const Memory& memory,
                  int index)
      : linked_(linked),
        g_(linked.g),
        placement_(placement),
        memory_(memory),
        index_(index),
        draft_(placement.groups[index]),
        group_{.kind = draft_.kind} {}

  Group Extract() && {
    if (!draft_.why.empty()) group_.why.push_back(draft_.why);
    group_.graph.name = fmt::format("group{}", index_);
    for (const NodeId n :
         NodesOf(linked_, placement_, index_, [&](TensorId x) { return SeesMemoryThrough(x); })) {
      Node copy = g_.nodes[n];
      copy.name.clear();
      for (size_t i = 0; i < copy.inputs.size(); ++i)
        if (copy.inputs[i] != kAbsent)
          copy.inputs[i] = Import(copy.inputs[i], OperandRole(copy, i));
      for (TensorId& y : copy.outputs)
        if (y != kAbsent) y = Import(y, ResultName(copy));
      // A scatter leaves its result in the memory that it writes.
      if (copy.op == GraphOp::kScatter)
        group_.graph[copy.inputs[2]].uid = group_.graph[copy.outputs[0]].uid;
      group_.graph.nodes.push_back(std::move(copy));
    }
    if (group_.kind == GroupKind::kAttention) FoldTransposes(group_);
    return std::move(group_);
  }

 private:
  // True if the group sees memory through a view. Products keep transposes, so that what else reads
  // the matrix beneath is seen to do so.
  bool SeesMemoryThrough(TensorId x) const {
    const bool is_products = draft_.kind == GroupKind::kProducts;
    if (draft_.kind != GroupKind::kContract && !is_products) return false;
    return memory_.views.contains(x) &&
           (!is_products || g_.nodes[linked_.producers[x]].op != GraphOp::kTranspose);
  }

  TensorId Import(TensorId outer, std::string name) {
    if (const auto known = ids_.find(outer); known != ids_.end()) return known->second;
    Tensor t = g_[outer];
    const bool is_stored = memory_.stored[outer] != 0;
    const bool is_result = placement_.home[outer] == index_;
    const bool is_seen = !is_result && SeesMemoryThrough(outer);
    const bool from_memory =
        !is_result && (is_seen || IsMemory(linked_, placement_, outer, index_));
    if (is_seen || (t.is_virtual && is_stored)) {
      const MemoryPlace place =
          is_seen ? memory_.views.at(outer) : OwnPlace(linked_, placement_, outer);
      const Tensor& memory = g_[place.memory];
      t.strides = place.strides;
      t.alignment = AlignmentAt(memory.is_virtual ? kIntermediateAlignment : memory.alignment,
                                place.offset * SizeOf(t.dtype));
    }
    if (is_result && is_stored) name.assign(1, 'y');
    t.name = Numbered(name);
    t.is_virtual = is_result ? !is_stored : !from_memory;
    if (t.uid >= 0 || !t.is_constant()) t.uid = outer;
    const TensorId id = group_.graph.AddTensor(std::move(t));
    group_.outer.push_back(outer);
    CHECK(group_.outer.size() == group_.graph.tensors.size());
    ids_[outer] = id;
    return id;
  }

  // x, x2, x3 …; results of operations are numbered from the first on: no name is then that of a
  // function.
  std::string Numbered(const std::string& name) {
    const bool is_role = std::ranges::find(kRoles, name) != std::end(kRoles);
    const auto is_taken = [&](const std::string& n) {
      return group_.graph.names.Contains(group_.graph.tensors, n);
    };
    int& n = numbers_[name];
    if (n == 0 && is_role) {
      n = 1;
      if (!is_taken(name)) return name;
    }
    while (true) {
      ++n;
      std::string numbered = fmt::format("{}{}{}", name, is_role ? "" : "_", n);
      if (!is_taken(numbered)) return numbered;
    }
  }

  const LinkedGraph& linked_;
  const Graph& g_;
  const Placement& placement_;
  const Memory& memory_;
  const int index_;
  const GroupDraft& draft_;
  Group group_;
  std::unordered_map<TensorId, TensorId> ids_;    // in the group's graph
  std::unordered_map<std::string, int> numbers_;  // the last one of each name
};

}  // namespace

std::vector<Group> ExtractGroups(const LinkedGraph& linked, const Placement& placement) {
  Memory memory{.stored = FindStored(linked, placement), .views = {}};
  memory.views = FindViews(linked, placement, memory.stored);
  std::vector<Group> groups;
  for (size_t d = 0; d < placement.groups.size(); ++d)
    groups.push_back(GroupExtraction(linked, placement, memory, static_cast<int>(d)).Extract());
  return groups;
}

const char* OperandRole(const Node& node, size_t operand) {
  switch (node.op) {
    case GraphOp::kConvFprop:
      return operand == 0 ? "x" : "w";
    case GraphOp::kConvDgrad:
      return operand == 0 ? "dy" : "w";
    case GraphOp::kConvWgrad:
      return operand == 0 ? "x" : "dy";
    case GraphOp::kResampleBwd:
      return operand == 0 ? "dy" : "x";
    case GraphOp::kMatmul:
      return operand == 0 ? "a" : "b";
    default:
      return "x";
  }
}

}  // namespace kiln::compiler
