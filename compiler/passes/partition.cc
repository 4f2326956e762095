#include "compiler/passes/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "compiler/engines/candidates.h"
#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "compiler/passes/group_size.h"
#include "compiler/passes/wholes.h"
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

constexpr int kNone = -1;
// Of a window that others compute again: LRN over 16 channels, pooling of 7x7.
constexpr int64_t kMostFloatingTaps = 64;
constexpr int64_t kIntermediateAlignment = 256;
constexpr std::string_view kRoles[] = {"x", "w", "dy", "a", "b", "y"};

// A group while it grows. Its position in the list is its place in launch order.
struct Draft {
  GroupKind kind;
  Dims domain;  // dims of what it stores
  Dims reads;   // of a reduce: dims of its operand
  std::vector<NodeId> members;
  int whole = kNone;       // which one it is
  bool is_closed = false;  // nobody joins: it walks what it reads
  std::string why = {};    // it is a group of its own
};

class Partitioner {
 public:
  // `stored` are nodes that may not float; `wholes` are to be one group each. They share no node.
  // `stores_little`: least workspace is asked for. `assemblies`: results that their parts make.
  Partitioner(const Graph& g, const Target& target, bool stores_little,
              const std::set<NodeId>& stored, std::vector<const Whole*> wholes,
              const std::vector<Assembly>& assemblies)
      : g_(g),
        target_(target),
        stores_little_(stores_little),
        never_float_(stored),
        wholes_(std::move(wholes)),
        home_(g.tensors.size(), kNone),
        ready_(g.tensors.size(), kNone),
        producers_(graph::Producers(g)),
        readers_(graph::Consumers(g)),
        sizes_(g, producers_, home_),
        floats_window_(g.tensors.size(), 0),
        last_window_(LastWindows()) {
    for (const Assembly& assembly : assemblies) Assemble(assembly);
  }

  // False where a whole would have to run between two parts of another one, or a node between two
  // parts of one: `Tangled` is then one that is part of it.
  bool Run() {
    const std::vector<int> whole = WholeOf();
    const std::vector<NodeId> order = Order(whole);
    for (const NodeId n : order) {
      if (assembled_.contains(n))
        Float(n, Latest(g_.nodes[n]));
      else if (whole[n] == kNone)
        Place(n);
      else
        PlaceWhole(whole[n]);
    }
    return !order.empty() || g_.nodes.empty();
  }
  int Tangled() const { return tangled_; }

  // Wholes that are larger than a group may be, and nodes that may not float: operands of a node
  // that would be larger than a group with what floats before it.
  const std::vector<int>& TooLarge() const { return too_large_; }
  const std::vector<NodeId>& ToStore() const { return to_store_; }

  // In place, one uid is two tensors: the version that is read and the version that is written over
  // it. A node that floats is computed where it is read; if that is after the writer's group, the
  // old version is gone. Returns such nodes: partitioning again with them stored mends that.
  std::vector<NodeId> ReadersOfOverwritten() {
    std::map<int64_t, int> writer;  // uid → group
    for (size_t t = 0; t < g_.tensors.size(); ++t)
      if (home_[t] != kNone && !g_.tensors[t].is_virtual && g_.tensors[t].uid >= 0)
        writer[g_.tensors[t].uid] = home_[t];
    std::vector<NodeId> readers;
    for (size_t d = 0; d < drafts_.size() && !writer.empty(); ++d) {
      for (const NodeId n : NodesOf(static_cast<int>(d))) {
        if (home_[g_.nodes[n].outputs[0]] != kNone) continue;
        const bool reads_old = std::ranges::any_of(g_.nodes[n].inputs, [&](TensorId x) {
          const auto over = writer.find(g_[x].uid);
          const bool is_old = producers_[x] < 0 && !g_[x].by_value && over != writer.end();
          return is_old && over->second < static_cast<int>(d);
        });
        if (reads_old) readers.push_back(n);
      }
    }
    return readers;
  }

  std::vector<Group> Extract() {
    FindStored();
    FindViews();
    std::vector<Group> groups;
    for (size_t d = 0; d < drafts_.size(); ++d) groups.push_back(ExtractOne(static_cast<int>(d)));
    return groups;
  }

  // Which whole a group is, or -1.
  int WholeOfGroup(size_t group) const { return drafts_[group].whole; }

 private:
  // Nothing runs for the node, and its parts are stored where they stand in its result.
  void Assemble(const Assembly& assembly) {
    assembled_.insert(assembly.node);
    const TensorId result = g_.nodes[assembly.node].outputs[0];
    for (const Assembly::Part& part : assembly.parts) {
      never_float_.insert(producers_[part.tensor]);
      parts_[part.tensor] = {.memory = result, .strides = part.strides, .offset = part.offset};
    }
  }

  // Of each node: the whole that it belongs to.
  std::vector<int> WholeOf() const {
    std::vector<int> whole(g_.nodes.size(), kNone);
    for (size_t a = 0; a < wholes_.size(); ++a)
      for (const NodeId n : wholes_[a]->members) whole[n] = static_cast<int>(a);
    return whole;
  }

  // Nodes in an order in which they can be placed, a whole as one: its first node stands for it.
  // Where there is a choice the graph's order is kept. Empty if there is no such order.
  std::vector<NodeId> Order(const std::vector<int>& whole) {
    const auto leader = [&](NodeId n) {
      return whole[n] == kNone ? n : wholes_[whole[n]]->members.front();
    };
    std::vector<std::vector<NodeId>> readers(g_.nodes.size());
    size_t leaders = 0;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const NodeId to = leader(static_cast<NodeId>(n));
      leaders += to == static_cast<NodeId>(n);
      for (const TensorId x : g_.nodes[n].inputs) {
        const NodeId from = x == kAbsent || producers_[x] < 0 ? to : leader(producers_[x]);
        if (from != to) readers[from].push_back(to);
      }
    }
    std::vector<int> waits(g_.nodes.size());
    for (const auto& after : readers)
      for (const NodeId n : after) ++waits[n];
    std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
    for (size_t n = 0; n < g_.nodes.size(); ++n)
      if (waits[n] == 0 && leader(static_cast<NodeId>(n)) == static_cast<NodeId>(n))
        ready.push(static_cast<NodeId>(n));
    std::vector<NodeId> order;
    while (!ready.empty()) {
      order.push_back(ready.top());
      ready.pop();
      for (const NodeId n : readers[order.back()])
        if (--waits[n] == 0) ready.push(n);
    }
    if (order.size() == leaders) return order;
    tangled_ = LastTangled(whole, readers, waits);
    return {};
  }

  // The last whole on a cycle. What only follows from one waits, too, but nothing on a cycle waits
  // for it.
  static int LastTangled(const std::vector<int>& whole,
                         const std::vector<std::vector<NodeId>>& readers,
                         const std::vector<int>& waits) {
    std::vector<int> awaited(readers.size(), 0);  // by nodes that wait
    std::vector<std::vector<NodeId>> before(readers.size());
    std::vector<NodeId> pending;
    for (size_t n = 0; n < readers.size(); ++n) {
      if (waits[n] == 0) continue;
      for (const NodeId after : readers[n]) {
        before[after].push_back(static_cast<NodeId>(n));
        ++awaited[n];
      }
      if (awaited[n] == 0) pending.push_back(static_cast<NodeId>(n));
    }
    while (!pending.empty()) {
      const NodeId n = pending.back();
      pending.pop_back();
      for (const NodeId from : before[n])
        if (--awaited[from] == 0) pending.push_back(from);
    }
    int last = kNone;
    for (size_t n = 0; n < readers.size(); ++n)
      if (awaited[n] > 0) last = std::max(last, whole[n]);
    return last;
  }

  void PlaceWhole(int index) {
    const Whole& whole = *wholes_[index];
    drafts_.push_back({.kind = whole.kind, .domain = whole.domain, .whole = index});
    bool fits = true;
    for (const NodeId n : whole.members)
      fits = Join(n, static_cast<int>(drafts_.size()) - 1) && fits;
    if (!fits) too_large_.push_back(index);
  }

  // The latest group that must have run before the node's value can be computed from stored
  // tensors.
  int Latest(const Node& node) const {
    int latest = kNone;
    for (const TensorId x : node.inputs)
      if (x != kAbsent) latest = std::max(latest, ready_[x]);
    return latest;
  }

  void Place(NodeId n) {
    const Node& node = g_.nodes[n];
    const TensorId y = node.outputs[0];
    const int latest = Latest(node);
    if (Has(node, graph::kContraction))
      return Open(n,
                  {.kind = GroupKind::kContract, .domain = g_[y].dims, .why = Anchors(n, latest)});
    if (FloatsAsWindow(n)) return Float(n, latest);
    if (Has(node, graph::kWindow))
      return Open(n, {.kind = GroupKind::kWindow, .domain = g_[y].dims, .why = Anchors(n, latest)});
    if (node.op == GraphOp::kScatter || node.op == GraphOp::kScatterAdd) {
      return Open(n, {.kind = GroupKind::kPointwise,
                      .domain = g_[y].dims,
                      .is_closed = true,
                      .why = "a scatter walks what it reads, and nothing else joins it"});
    }
    if (Has(node, graph::kRecurrence)) {
      return Open(n, {.kind = GroupKind::kRecurrence,
                      .domain = g_[y].dims,
                      .is_closed = true,
                      .why = Anchors(n, latest)});
    }
    if (Has(node, graph::kSegments)) {
      return Open(n, {.kind = GroupKind::kSegments,
                      .domain = g_[y].dims,
                      .is_closed = true,
                      .why = "a thread walks the places of a segment, whose number is data"});
    }
    if (Has(node, graph::kReduction)) return PlaceReduction(n, latest);
    const bool joins_latest =
        latest != kNone && (JoinsEpilogue(node, latest) || FollowsReduction(node, latest));
    if (joins_latest && sizes_.Fits(n, latest)) {
      Join(n, latest);
      return;
    }
    if (g_[y].is_virtual && !never_float_.contains(n) && sizes_.Floats(n)) return Float(n, latest);
    JoinOrOpen(n, latest,
               {.kind = GroupKind::kPointwise,
                .domain = g_[y].dims,
                .is_closed = g_[y].is_virtual && Has(node, graph::kView),
                .why = NotAfter(n, latest)});
  }

  void PlaceReduction(NodeId n, int latest) {
    const Node& node = g_.nodes[n];
    if (latest != kNone && JoinsContractionOf(node, latest) && sizes_.Fits(n, latest)) {
      Join(n, latest);
      return;
    }
    JoinOrOpen(n, latest,
               {.kind = GroupKind::kReduce,
                .domain = g_[node.outputs[0]].dims,
                .reads = g_[node.inputs[0]].dims,
                .why = Anchors(n, latest)});
  }

  // Joins the first group like `draft` after `latest` that has room.
  void JoinOrOpen(NodeId n, int latest, Draft draft) {
    std::set<int>& alike = open_[{draft.kind, draft.domain, draft.reads}];
    auto at = alike.upper_bound(latest);
    while (at != alike.end() && !sizes_.Fits(n, *at)) at = alike.erase(at);
    if (at != alike.end()) {
      Join(n, *at);
      return;
    }
    if (!draft.is_closed) alike.insert(static_cast<int>(drafts_.size()));
    Open(n, std::move(draft));
  }

  void Float(NodeId n, int latest) {
    const Node& node = g_.nodes[n];
    const bool has_window =
        Has(node, graph::kWindow) ||
        std::ranges::any_of(node.inputs, [&](TensorId x) { return FloatsWindow(x); });
    for (const TensorId id : node.outputs) {
      if (id == kAbsent) continue;
      ready_[id] = latest;
      floats_window_[id] = has_window;
    }
  }
  bool FloatsWindow(TensorId x) const {
    return x != kAbsent && home_[x] == kNone && floats_window_[x] != 0;
  }

  // Whether a window is computed again where it is read, rather than stored: by a later window, or
  // by maps that join the group of one.
  bool FloatsAsWindow(NodeId n) {
    const Node& node = g_.nodes[n];
    const bool fits = stores_little_ && node.op == GraphOp::kResampleFwd &&
                      !never_float_.contains(n) && Taps(node) <= kMostFloatingTaps &&
                      std::ranges::all_of(node.outputs, [&](TensorId id) {
                        return id == kAbsent || g_[id].is_virtual;
                      });
    if (!fits || std::ranges::any_of(node.inputs, [&](TensorId x) { return FloatsWindow(x); }))
      return false;
    const Dims& dims = g_[node.outputs[0]].dims;
    bool is_read = false;
    std::set<NodeId> seen;
    std::vector<NodeId> pending = {n};
    while (!pending.empty()) {
      const NodeId from = pending.back();
      pending.pop_back();
      for (const TensorId id : g_.nodes[from].outputs) {
        if (id == kAbsent) continue;
        for (const NodeId m : readers_[id]) {
          if (!seen.insert(m).second) continue;
          if (seen.size() > kMostGroupNodes) return false;
          if (Has(g_.nodes[m], graph::kWindow)) {
            is_read = true;
            continue;
          }
          const Tensor& y = g_[g_.nodes[m].outputs[0]];
          const bool is_after_window = last_window_[m] > n;
          const bool is_map = g_.nodes[m].op == GraphOp::kMap && y.dims == dims;
          if (!is_map || (!y.is_virtual && !is_after_window)) return false;
          is_read = is_read || is_after_window;
          pending.push_back(m);
        }
      }
    }
    return is_read && sizes_.Floats(n);
  }
  // Of each node: the last window that it is or follows from.
  std::vector<NodeId> LastWindows() const {
    std::vector<NodeId> last(g_.nodes.size(), kNone);
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (Has(g_.nodes[n], graph::kWindow)) last[n] = static_cast<NodeId>(n);
      for (const TensorId x : g_.nodes[n].inputs)
        if (x != kAbsent && producers_[x] >= 0) last[n] = std::max(last[n], last[producers_[x]]);
    }
    return last;
  }
  static int64_t Taps(const Node& window) {
    const auto& attrs = window.As<graph::ResampleAttrs>();
    int64_t taps = 1;
    for (size_t s = 0; s < attrs.window.size(); ++s)
      taps *= std::max<int64_t>(attrs.window[s] / attrs.unit[s], 1);
    return taps;
  }

  // Sentences for people; groups are numbered as partition leaves them.
  std::string Anchors(NodeId n, int latest) const {
    const Node& node = g_.nodes[n];
    const std::string_view op = graph::Info(node.op).mnemonic;
    if (latest == kNone)
      return drafts_.empty() ? std::string() : fmt::format("a {} anchors a group", op);
    if (Has(node, graph::kReduction) && drafts_[latest].kind == GroupKind::kContract) {
      return fmt::format(
          "its reduction cannot join group {}: tiles of that contraction hold too little of each "
          "sum, or hold it in another shape",
          latest);
    }
    return fmt::format("a {} anchors a group, and waits for all of group {}", op, latest);
  }

  // Of a map that is stored: why it joins neither the last group that it waits for nor another.
  std::string NotAfter(NodeId n, int latest) const {
    const Dims& dims = g_[g_.nodes[n].outputs[0]].dims;
    const std::string text = fmt::format("[{}]", fmt::join(dims, ","));
    if (latest == kNone)
      return drafts_.empty() ? std::string() : fmt::format("no other group stores {}", text);
    const Draft& draft = drafts_[latest];
    if (draft.whole != kNone)
      return fmt::format(
          "group {} is one engine's from beginning to end, and stores what this reads", latest);
    if (draft.is_closed) return fmt::format("group {} walks what it reads", latest);
    if (draft.domain != dims)
      return fmt::format("stores {}, and group {}, which it waits for, stores [{}]", text, latest,
                         fmt::join(draft.domain, ","));
    return fmt::format("reads values of group {} at other places than its own", latest);
  }

  // Reads the group's values at the very place it writes; all else it reads was ready before the
  // group.
  bool JoinsEpilogue(const Node& node, int group) const {
    if (drafts_[group].is_closed) return false;
    if (node.op != GraphOp::kMap || g_[node.outputs[0]].dims != drafts_[group].domain ||
        drafts_[group].whole != kNone)
      return false;
    return std::ranges::all_of(node.inputs, [&](TensorId x) {
      return home_[x] == group ? g_[x].dims == drafts_[group].domain : ready_[x] < group;
    });
  }

  // A reduction of what the tiles of a contraction hold.
  bool JoinsContractionOf(const Node& node, int group) const {
    const Draft& draft = drafts_[group];
    const TensorId x = node.inputs[0];
    return draft.kind == GroupKind::kContract && home_[x] == group && g_[x].dims == draft.domain &&
           JoinsContraction(g_, g_.nodes[draft.members[0]], g_[node.outputs[0]].dims, target_);
  }

  // A map of such reductions' results, place by place.
  bool FollowsReduction(const Node& node, int group) const {
    const Dims& dims = g_[node.outputs[0]].dims;
    if (node.op != GraphOp::kMap || drafts_[group].kind != GroupKind::kContract) return false;
    return dims != drafts_[group].domain && std::ranges::all_of(node.inputs, [&](TensorId x) {
             return home_[x] == group ? g_[x].dims == dims : ready_[x] < group;
           });
  }

  void Open(NodeId n, Draft draft) {
    drafts_.push_back(std::move(draft));
    if (Join(n, static_cast<int>(drafts_.size()) - 1)) return;
    // What floats before its many operands is too much for one kernel.
    for (const TensorId x : g_.nodes[n].inputs)
      if (x != kAbsent && producers_[x] >= 0 && home_[x] == kNone)
        to_store_.push_back(producers_[x]);
  }

  // False where the group is too large then.
  bool Join(NodeId n, int group) {
    const bool fits = sizes_.Add(n, group);
    drafts_[group].members.push_back(n);
    for (TensorId y : g_.nodes[n].outputs) {
      if (y == kAbsent) continue;
      home_[y] = group;
      ready_[y] = group;
    }
    return fits;
  }

  // A member's result is stored if the caller wants it or a node outside the group reads it. A loop
  // over time stores all that its node has, wanted or not, but for what its own group reads: of a
  // stack of them the stage above has that.
  void FindStored() {
    stored_.assign(g_.tensors.size(), 0);
    std::vector<int> group_of(g_.nodes.size(), kNone);
    for (size_t d = 0; d < drafts_.size(); ++d)
      for (NodeId n : drafts_[d].members) group_of[n] = static_cast<int>(d);
    for (size_t t = 0; t < g_.tensors.size(); ++t)
      stored_[t] = home_[t] != kNone && !g_.tensors[t].is_virtual;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      for (TensorId x : g_.nodes[n].inputs)
        if (x != kAbsent && home_[x] != kNone && home_[x] != group_of[n]) stored_[x] = 1;
      const Node& node = g_.nodes[n];
      if (!Has(node, graph::kRecurrence) && !Has(node, graph::kSegments)) continue;
      for (TensorId y : node.outputs) {
        if (y == kAbsent) continue;
        const bool is_inner =
            std::ranges::any_of(readers_[y], [&](NodeId m) { return group_of[m] == group_of[n]; });
        if (!is_inner) stored_[y] = 1;
      }
    }
  }

  // Whether a group reads the tensor from memory: what the caller gave, or another group stored.
  bool IsMemory(TensorId x, int index) const {
    return producers_[x] < 0 || (home_[x] != kNone && home_[x] != index);
  }

  // Views of what is in memory, as far as strides say where they are. Contractions take them as
  // operands that lie there.
  void FindViews() {
    for (const Node& node : g_.nodes) {
      if (!Has(node, graph::kView) || home_[node.outputs[0]] != kNone) continue;
      const TensorId x = node.inputs[0];
      const auto known = views_.find(x);
      const bool is_stored = producers_[x] < 0 ? !g_[x].by_value && !g_[x].is_constant()
                                               : home_[x] != kNone && stored_[x] != 0;
      if (known == views_.end() && !is_stored) continue;
      const auto place = PlaceOfView(g_, node, known != views_.end() ? known->second : OwnPlace(x));
      if (place) views_[node.outputs[0]] = *place;
    }
    // A reshape goes by the strides of its operand: as a leaf it would have others.
    for (const Node& node : g_.nodes) {
      if (node.op != GraphOp::kReshape || views_.contains(node.outputs[0])) continue;
      const auto seen = views_.find(node.inputs[0]);
      if (seen != views_.end() && seen->second.strides != g_[node.inputs[0]].strides)
        views_.erase(seen);
    }
  }
  // A tensor that is in memory. Intermediates are dense, in the order their strides wish for.
  MemoryPlace OwnPlace(TensorId x) const {
    if (const auto part = parts_.find(x); part != parts_.end()) return part->second;
    const Tensor& t = g_[x];
    const bool is_own = producers_[x] < 0 || !t.is_virtual;
    return {.memory = x, .strides = is_own ? t.strides : PackedStridesLike(t.dims, t.strides)};
  }

  // The members of a group and what floats before them, in order; without the views where it sees
  // memory through them.
  std::vector<NodeId> NodesOf(int index, bool sees_memory = false) const {
    std::unordered_set<NodeId> inside;
    std::vector<NodeId> pending = drafts_[index].members;
    while (!pending.empty()) {
      const NodeId n = pending.back();
      pending.pop_back();
      if (!inside.insert(n).second) continue;
      for (TensorId x : g_.nodes[n].inputs) {
        if (x == kAbsent) continue;
        const bool is_seen = sees_memory && SeesThrough(x, index);
        if (!IsMemory(x, index) && !is_seen) pending.push_back(producers_[x]);
      }
    }
    std::vector<NodeId> nodes(inside.begin(), inside.end());
    std::ranges::sort(nodes);
    return nodes;
  }

  bool SeesMemory(int index) const {
    return drafts_[index].kind == GroupKind::kContract ||
           drafts_[index].kind == GroupKind::kProducts;
  }
  // Products keep transposes, so that what else reads the matrix beneath is seen to do so.
  bool SeesThrough(TensorId x, int index) const {
    return views_.contains(x) && (drafts_[index].kind != GroupKind::kProducts ||
                                  g_.nodes[producers_[x]].op != GraphOp::kTranspose);
  }

  // They as a graph of its own.
  Group ExtractOne(int index) {
    Group group{.kind = drafts_[index].kind};
    if (!drafts_[index].why.empty()) group.why.push_back(drafts_[index].why);
    group.graph.name = fmt::format("group{}", index);
    Imported inner;
    for (const NodeId n : NodesOf(index, SeesMemory(index))) {
      Node copy = g_.nodes[n];
      copy.name.clear();
      for (size_t i = 0; i < copy.inputs.size(); ++i)
        if (copy.inputs[i] != kAbsent)
          copy.inputs[i] = Import(group, inner, copy.inputs[i], index, OperandRole(copy, i));
      for (TensorId& y : copy.outputs)
        if (y != kAbsent) y = Import(group, inner, y, index, ResultName(copy));
      // What a scatter leaves is in the memory that it writes.
      if (copy.op == GraphOp::kScatter)
        group.graph[copy.inputs[2]].uid = group.graph[copy.outputs[0]].uid;
      group.graph.nodes.push_back(std::move(copy));
    }
    if (group.kind == GroupKind::kAttention) FoldTransposes(group);
    return group;
  }

  // A transposed operand that lies in memory (the gradients read keys both ways) is memory seen
  // with its dims in another order: tensor maps are of memory.
  static void FoldTransposes(Group& group) {
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

  // Tensors get names that say what they are in this kernel, the same for every graph of the same
  // structure: operands by role (x, x2, x3 where they have none), results by operation and a
  // number, what is stored `y`.
  static std::string ResultName(const Node& node) {
    if (node.op != GraphOp::kMap) return std::string(graph::Info(node.op).mnemonic);
    const auto& map = node.As<graph::MapAttrs>();
    return map.identity ? "cast" : Info(map.op).text;
  }

  // What a group under construction has of the graph, and the last number of each name.
  struct Imported {
    std::unordered_map<TensorId, TensorId> ids;
    std::unordered_map<std::string, int> numbers;
  };

  // x, x2, x3 …; results of operations are numbered from the first on: no name is then that of a
  // function.
  static std::string Numbered(const std::string& name, Group& group, Imported& inner) {
    const bool role = std::ranges::find(kRoles, name) != std::end(kRoles);
    const auto taken = [&](const std::string& n) {
      return group.graph.names.Contains(group.graph.tensors, n);
    };
    int& n = inner.numbers[name];
    if (n == 0 && role) {
      n = 1;
      if (!taken(name)) return name;
    }
    while (true) {
      ++n;
      if (std::string numbered = fmt::format("{}{}{}", name, role ? "" : "_", n); !taken(numbered))
        return numbered;
    }
  }

  TensorId Import(Group& group, Imported& inner, TensorId outer, int index, std::string name) {
    if (const auto known = inner.ids.find(outer); known != inner.ids.end()) return known->second;
    Tensor t = g_[outer];
    const bool member_result = home_[outer] == index;
    const bool is_seen = SeesMemory(index) && !member_result && SeesThrough(outer, index);
    const auto view = is_seen ? views_.find(outer) : views_.end();
    const bool from_memory = !member_result && (view != views_.end() || IsMemory(outer, index));
    if (view != views_.end() || (t.is_virtual && stored_[outer])) {
      const MemoryPlace place = view != views_.end() ? view->second : OwnPlace(outer);
      const Tensor& memory = g_[place.memory];
      t.strides = place.strides;
      t.alignment = AlignmentAt(memory.is_virtual ? kIntermediateAlignment : memory.alignment,
                                place.offset * SizeOf(t.dtype));
    }
    if (member_result && stored_[outer]) name.assign(1, 'y');
    t.name = Numbered(name, group, inner);
    t.is_virtual = member_result ? !stored_[outer] : !from_memory;
    if (t.uid >= 0 || !t.is_constant()) t.uid = outer;
    const TensorId id = group.graph.AddTensor(std::move(t));
    group.outer.push_back(outer);
    CHECK(group.outer.size() == group.graph.tensors.size());
    inner.ids[outer] = id;
    return id;
  }

  const Graph& g_;
  const Target& target_;
  const bool stores_little_;
  std::set<NodeId> never_float_;
  const std::vector<const Whole*> wholes_;
  std::vector<Draft> drafts_;
  std::vector<int> home_;   // the group that computes a tensor as its member
  std::vector<int> ready_;  // the last group that a tensor's value waits for
  std::vector<char> stored_;
  std::set<NodeId> assembled_;
  std::map<TensorId, MemoryPlace> parts_;            // of what is assembled
  std::unordered_map<TensorId, MemoryPlace> views_;  // that float
  std::vector<NodeId> producers_;
  std::vector<std::vector<NodeId>> readers_;
  GroupSizes sizes_;
  std::vector<char>
      floats_window_;  // of tensors that float: a window floats before them, or is them
  std::vector<NodeId> last_window_;
  // Groups that others of the kind and dims may join.
  std::map<std::tuple<GroupKind, Dims, Dims>, std::set<int>> open_;
  int tangled_ = kNone;
  std::vector<int> too_large_;
  std::vector<NodeId> to_store_;
};

const char* NameOf(GroupKind whole) {
  if (whole == GroupKind::kRows) return "rows";
  if (whole == GroupKind::kProducts) return "products";
  return whole == GroupKind::kRecurrence ? "recurrent layers" : "attention";
}

// Whether an engine runs this group as one. Attention and recurrent layers: the one that is asked
// for, or else one that may be chosen. Rows: any that may be chosen, so that all engines that a
// graph is offered for see the same groups.
bool IsTakenWhole(const Group& group, const PassContext& context, std::vector<std::string>& why) {
  const auto engines = Engines();
  const bool rows = group.kind == GroupKind::kRows;
  for (size_t e = 0; e < engines.size(); ++e) {
    const bool asked = context.groups_for == static_cast<int>(e);
    if (!rows && context.groups_for >= 0 && !asked) continue;
    const Status status = engines[e].supports(group, context.target);
    // Plans whose engines round have groups that none of these takes, too.
    const bool offered = rows ? !OnlyOnRequest(engines[e], group)
                              : asked || Offers(context.inputs, engines[e], group) ||
                                    Offers(Inputs::kExact, engines[e], group);
    if (status.ok() && offered) return true;
    // What an engine says of groups that it is not for helps nobody.
    const bool says = (asked || rows) && status.code() != Code::kUnsupportedGraphPattern;
    if (says)
      why.push_back(fmt::format("{} as one group: {}: {}", NameOf(group.kind), engines[e].name,
                                status.message()));
  }
  return false;
}

// Those that are part of no whole, and none of whose parts a whole would have to give up.
std::vector<Assembly> AssembliesWithout(const Graph& g, const std::vector<Whole>& wholes) {
  std::vector<Assembly> assemblies = FindAssemblies(g);
  if (assemblies.empty()) return assemblies;
  std::set<NodeId> inside;
  for (const Whole& whole : wholes)
    // Stages store as loops do by themselves, and products as contractions.
    if (whole.kind != GroupKind::kRecurrence && whole.kind != GroupKind::kProducts)
      inside.insert(whole.members.begin(), whole.members.end());
  const std::vector<NodeId> producers = graph::Producers(g);
  std::erase_if(assemblies, [&](const Assembly& assembly) {
    return inside.contains(assembly.node) ||
           std::ranges::any_of(assembly.parts, [&](const Assembly::Part& part) {
             return inside.contains(producers[part.tensor]);
           });
  });
  return assemblies;
}

}  // namespace

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

Result<bool> Partition(Module& module, const PassContext& context) {
  const std::vector<Whole> all = FindWholes(module.graph, context.target);
  std::set<NodeId> unpacked;
  if (!context.choice.least_workspace) unpacked = UnpackedForChains(module.graph, all);
  std::set<NodeId> stored = unpacked;
  std::vector<char> dropped(all.size(), 0);
  const std::vector<Assembly> assemblies = AssembliesWithout(module.graph, all);
  // Each round stores more nodes, or leaves wholes to several groups, so this ends.
  while (true) {
    const std::vector<size_t> chosen = Disjoint(all, dropped, module.graph.nodes.size());
    std::vector<const Whole*> wholes;
    for (const size_t i : chosen) wholes.push_back(&all[i]);
    const auto drop = [&](int whole) { dropped[chosen[static_cast<size_t>(whole)]] = 1; };
    Partitioner partitioner(module.graph, context.target, context.choice.least_workspace, stored,
                            wholes, assemblies);
    if (!partitioner.Run()) {
      drop(partitioner.Tangled());
      continue;
    }
    if (!partitioner.TooLarge().empty()) {
      std::ranges::for_each(partitioner.TooLarge(), drop);
      stored = unpacked;
      continue;
    }
    std::vector<NodeId> to_store = partitioner.ReadersOfOverwritten();
    std::ranges::copy(partitioner.ToStore(), std::back_inserter(to_store));
    if (!to_store.empty()) {
      stored.insert(to_store.begin(), to_store.end());
      continue;
    }
    module.groups = partitioner.Extract();
    bool declined = false;
    for (Group& group : module.groups) group.stores_little = context.choice.least_workspace;
    for (size_t i = 0; i < module.groups.size(); ++i) {
      const int whole = partitioner.WholeOfGroup(i);
      if (whole == kNone || IsTakenWhole(module.groups[i], context, module.why)) continue;
      drop(whole);
      declined = true;
    }
    if (!declined) break;
    stored = unpacked;
  }
  module.form = Form::kGrouped;
  return true;
}

}  // namespace kiln::compiler
