#include "compiler/passes/place_nodes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/passes/floating_windows.h"
#include "compiler/passes/group_reasons.h"
#include "compiler/passes/group_size.h"
#include "compiler/passes/placing_order.h"
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

class NodePlacer {
 public:
  NodePlacer(const LinkedGraph& linked, PlacingRules rules)
      : linked_(linked),
        g_(linked.g),
        rules_(std::move(rules)),
        ready_(g_.tensors.size(), kNoGroup),
        sizes_(g_, linked.producers, placement_.home),
        windows_(linked, placement_.home) {
    placement_.home.assign(g_.tensors.size(), kNoGroup);
    for (const Assembly& assembly : rules_.assemblies) Assemble(assembly);
  }

  Placement PlaceAll() && {
    const PlacingOrder order = OrderOf(linked_, rules_.patterns);
    placement_.tangled = order.tangled;
    for (const NodeId n : order.nodes) {
      if (assembled_.contains(n))
        Float(n, Latest(g_.nodes[n]));
      else if (order.pattern_of[n] == kNoPattern)
        Place(n);
      else
        PlacePattern(order.pattern_of[n]);
    }
    return std::move(placement_);
  }

 private:
  // Nothing runs for the node, and its parts are stored where they stand in its result.
  void Assemble(const Assembly& assembly) {
    assembled_.insert(assembly.node);
    const TensorId result = g_.nodes[assembly.node].outputs[0];
    for (const Assembly::Part& part : assembly.parts) {
      rules_.stored.insert(linked_.producers[part.tensor]);
      placement_.parts[part.tensor] = {
          .memory = result, .strides = part.strides, .offset = part.offset};
    }
  }

  void PlacePattern(int index) {
    const FusedPattern& pattern = *rules_.patterns[index];
    placement_.groups.push_back({.kind = pattern.kind, .domain = pattern.domain, .pattern = index});
    bool fits = true;
    for (const NodeId n : pattern.members) fits = Join(n, LastGroup()) && fits;
    if (!fits) placement_.too_large.push_back(index);
  }

  // The latest group that must have run before the node's value can be computed from stored
  // tensors.
  int Latest(const Node& node) const {
    int latest = kNoGroup;
    for (const TensorId x : node.inputs)
      if (x != kAbsent) latest = std::max(latest, ready_[x]);
    return latest;
  }

  void Place(NodeId n) {
    const Node& node = g_.nodes[n];
    const int latest = Latest(node);
    if (FloatsAsWindow(n)) return Float(n, latest);
    if (std::optional<GroupDraft> draft = Anchored(n, latest)) return Open(n, *std::move(draft));
    if (Has(node, graph::kReduction)) return PlaceReduction(n, latest);
    const bool joins_latest =
        latest != kNoGroup && (JoinsEpilogue(node, latest) || FollowsReduction(node, latest));
    if (joins_latest && sizes_.Fits(n, latest)) {
      Join(n, latest);
      return;
    }
    const Tensor& y = g_[node.outputs[0]];
    if (y.is_virtual && !rules_.stored.contains(n) && sizes_.Floats(n)) return Float(n, latest);
    JoinOrOpen(n, latest,
               {.kind = GroupKind::kPointwise,
                .domain = y.dims,
                .is_closed = y.is_virtual && Has(node, graph::kView),
                .why = WhyNotAfter(g_, placement_.groups, n, latest)});
  }

  // The group that a node opens in any case; none for nodes that may join one.
  std::optional<GroupDraft> Anchored(NodeId n, int latest) const {
    const Node& node = g_.nodes[n];
    const Dims& dims = g_[node.outputs[0]].dims;
    const auto closed = [&](GroupKind kind, std::string why) {
      return GroupDraft{.kind = kind, .domain = dims, .is_closed = true, .why = std::move(why)};
    };
    if (Has(node, graph::kContraction))
      return GroupDraft{.kind = GroupKind::kContract, .domain = dims, .why = WhyAnchors(n, latest)};
    if (Has(node, graph::kWindow))
      return GroupDraft{.kind = GroupKind::kWindow, .domain = dims, .why = WhyAnchors(n, latest)};
    if (node.op == GraphOp::kScatter || node.op == GraphOp::kScatterAdd)
      return closed(GroupKind::kPointwise,
                    "a scatter walks what it reads, and nothing else joins it");
    if (Has(node, graph::kRecurrence)) return closed(GroupKind::kRecurrence, WhyAnchors(n, latest));
    if (Has(node, graph::kSegments))
      return closed(GroupKind::kSegments,
                    "a thread walks the places of a segment, whose number is data");
    if (Has(node, graph::kPeers))
      return closed(GroupKind::kPeers, "it waits for other devices, or tells them, by itself");
    return std::nullopt;
  }
  std::string WhyAnchors(NodeId n, int latest) const {
    return compiler::WhyAnchors(g_, placement_.groups, n, latest);
  }

  void PlaceReduction(NodeId n, int latest) {
    const Node& node = g_.nodes[n];
    if (latest != kNoGroup && JoinsContractionOf(node, latest) && sizes_.Fits(n, latest)) {
      Join(n, latest);
      return;
    }
    JoinOrOpen(n, latest,
               {.kind = GroupKind::kReduce,
                .domain = g_[node.outputs[0]].dims,
                .reads = g_[node.inputs[0]].dims,
                .why = WhyAnchors(n, latest)});
  }

  // Joins the first group like `draft` after `latest` that has room.
  void JoinOrOpen(NodeId n, int latest, GroupDraft draft) {
    std::set<int>& alike = open_[{draft.kind, draft.domain, draft.reads}];
    auto at = alike.upper_bound(latest);
    while (at != alike.end() && !sizes_.Fits(n, *at)) at = alike.erase(at);
    if (at != alike.end()) {
      Join(n, *at);
      return;
    }
    if (!draft.is_closed) alike.insert(static_cast<int>(placement_.groups.size()));
    Open(n, std::move(draft));
  }

  void Float(NodeId n, int latest) {
    for (const TensorId id : g_.nodes[n].outputs)
      if (id != kAbsent) ready_[id] = latest;
    windows_.NoteFloat(n);
  }

  bool FloatsAsWindow(NodeId n) {
    return rules_.stores_little && !rules_.stored.contains(n) && windows_.MayFloat(n) &&
           sizes_.Floats(n);
  }

  // True if a map reads the group's values at the very place it writes, while all else it reads was
  // ready before the group.
  bool JoinsEpilogue(const Node& node, int group) const {
    const GroupDraft& draft = placement_.groups[group];
    if (draft.is_closed || draft.pattern != kNoPattern || node.op != GraphOp::kMap ||
        g_[node.outputs[0]].dims != draft.domain)
      return false;
    return ReadsInPlace(node, group);
  }

  // True if it is a reduction of what the tiles of a contraction hold.
  bool JoinsContractionOf(const Node& node, int group) const {
    const GroupDraft& draft = placement_.groups[group];
    const TensorId x = node.inputs[0];
    return draft.kind == GroupKind::kContract && placement_.home[x] == group &&
           g_[x].dims == draft.domain &&
           JoinsContraction(g_, g_.nodes[draft.members[0]], g_[node.outputs[0]].dims,
                            rules_.target);
  }

  // True if it is a map of such reductions' results, place by place.
  bool FollowsReduction(const Node& node, int group) const {
    const GroupDraft& draft = placement_.groups[group];
    return node.op == GraphOp::kMap && draft.kind == GroupKind::kContract &&
           g_[node.outputs[0]].dims != draft.domain && ReadsInPlace(node, group);
  }

  // True if all that a map reads of the group has the extents of its result.
  bool ReadsInPlace(const Node& node, int group) const {
    const Dims& dims = g_[node.outputs[0]].dims;
    return std::ranges::all_of(node.inputs, [&](TensorId x) {
      return placement_.home[x] == group ? g_[x].dims == dims : ready_[x] < group;
    });
  }

  int LastGroup() const { return static_cast<int>(placement_.groups.size()) - 1; }
  void Open(NodeId n, GroupDraft draft) {
    placement_.groups.push_back(std::move(draft));
    if (Join(n, LastGroup())) return;
    // The nodes that float before its many operands are too much for one kernel.
    for (const TensorId x : g_.nodes[n].inputs)
      if (x != kAbsent && linked_.producers[x] >= 0 && placement_.home[x] == kNoGroup)
        placement_.to_store.push_back(linked_.producers[x]);
  }

  // False where the group is too large then.
  bool Join(NodeId n, int group) {
    const bool fits = sizes_.Add(n, group);
    placement_.groups[group].members.push_back(n);
    for (const TensorId y : g_.nodes[n].outputs) {
      if (y == kAbsent) continue;
      placement_.home[y] = group;
      ready_[y] = group;
    }
    return fits;
  }

  const LinkedGraph& linked_;
  const Graph& g_;
  PlacingRules rules_;
  Placement placement_;
  std::vector<int> ready_;  // of a tensor: the last group that its value waits for
  std::set<NodeId> assembled_;
  GroupSizes sizes_;
  FloatingWindows windows_;
  // Groups that others of the kind and dims may join.
  std::map<std::tuple<GroupKind, Dims, Dims>, std::set<int>> open_;
};

}  // namespace

Placement PlaceNodes(const LinkedGraph& linked, PlacingRules rules) {
  return NodePlacer(linked, std::move(rules)).PlaceAll();
}

}  // namespace kiln::compiler
