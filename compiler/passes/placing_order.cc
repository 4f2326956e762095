#include "compiler/passes/placing_order.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace kiln::compiler {
namespace {

using graph::kAbsent;
using graph::NodeId;
using graph::TensorId;

using Edges = std::vector<std::vector<NodeId>>;  // from each node

// The graph with a pattern as one node, which is its first.
struct Contracted {
  Edges readers;
  std::vector<char> is_leader;
};

Contracted Contract(const LinkedGraph& linked, const std::vector<const FusedPattern*>& patterns,
                    const std::vector<int>& pattern_of) {
  const std::vector<graph::Node>& nodes = linked.g.nodes;
  const auto leader = [&](NodeId n) {
    return pattern_of[n] == kNoPattern ? n : patterns[pattern_of[n]]->members.front();
  };
  Contracted contracted{Edges(nodes.size()), std::vector<char>(nodes.size(), 0)};
  for (size_t n = 0; n < nodes.size(); ++n) {
    const NodeId to = leader(static_cast<NodeId>(n));
    contracted.is_leader[n] = to == static_cast<NodeId>(n);
    for (const TensorId x : nodes[n].inputs) {
      const NodeId from =
          x == kAbsent || linked.producers[x] < 0 ? to : leader(linked.producers[x]);
      if (from != to) contracted.readers[from].push_back(to);
    }
  }
  return contracted;
}

// The last pattern on a cycle. What only follows from one waits, too, but nothing on a cycle waits
// for it.
int LastTangled(const std::vector<int>& pattern_of, const Edges& readers,
                const std::vector<int>& waits) {
  std::vector<int> awaited(readers.size(), 0);  // by nodes that wait
  Edges before(readers.size());
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
  int last = kNoPattern;
  for (size_t n = 0; n < readers.size(); ++n)
    if (awaited[n] > 0) last = std::max(last, pattern_of[n]);
  return last;
}

}  // namespace

PlacingOrder OrderOf(const LinkedGraph& linked, const std::vector<const FusedPattern*>& patterns) {
  const size_t count = linked.g.nodes.size();
  PlacingOrder order{.nodes = {}, .pattern_of = std::vector<int>(count, kNoPattern)};
  for (size_t p = 0; p < patterns.size(); ++p)
    for (const NodeId n : patterns[p]->members) order.pattern_of[n] = static_cast<int>(p);
  const Contracted contracted = Contract(linked, patterns, order.pattern_of);
  std::vector<int> waits(count);
  for (const auto& after : contracted.readers)
    for (const NodeId n : after) ++waits[n];
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (size_t n = 0; n < count; ++n)
    if (waits[n] == 0 && contracted.is_leader[n] != 0) ready.push(static_cast<NodeId>(n));
  while (!ready.empty()) {
    order.nodes.push_back(ready.top());
    ready.pop();
    for (const NodeId n : contracted.readers[order.nodes.back()])
      if (--waits[n] == 0) ready.push(n);
  }
  const auto leaders = static_cast<size_t>(std::ranges::count(contracted.is_leader, 1));
  if (order.nodes.size() == leaders) return order;
  order.nodes.clear();
  order.tangled = LastTangled(order.pattern_of, contracted.readers, waits);
  return order;
}

}  // namespace kiln::compiler
