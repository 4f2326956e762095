#include "compiler/passes/group_size.h"

#include <algorithm>

namespace kiln::compiler {

using graph::kAbsent;
using graph::Node;
using graph::NodeId;
using graph::TensorId;

GroupSizes::Growth GroupSizes::GrowthBy(NodeId n, int group, size_t most_nodes,
                                        size_t most_operands) {
  static const Contents kEmpty;
  const auto index = static_cast<size_t>(group);
  const Contents& has = group >= 0 && index < groups_.size() ? groups_[index] : kEmpty;
  Growth growth;
  std::unordered_set<TensorId> operands;
  const auto add_operand = [&](TensorId id) {
    if (!IsOperand(id) || has.operands.contains(id) || !operands.insert(id).second) return;
    growth.operands.push_back(id);
  };
  ++walk_;
  std::vector<NodeId> pending = {n};
  while (!pending.empty() && growth.nodes.size() <= most_nodes &&
         growth.operands.size() <= most_operands) {
    const NodeId at = pending.back();
    pending.pop_back();
    int& seen = seen_[static_cast<size_t>(at)];
    if (seen == walk_ || has.nodes.contains(at)) continue;
    seen = walk_;
    growth.nodes.push_back(at);
    for (const TensorId x : g_.nodes[static_cast<size_t>(at)].inputs) {
      if (x == kAbsent) continue;
      const NodeId from = producers_[static_cast<size_t>(x)];
      const int home = home_[static_cast<size_t>(x)];
      if (from >= 0 && home < 0)
        pending.push_back(from);
      else if (from < 0 || home != group)
        add_operand(x);
    }
  }
  if (group >= 0)
    for (const TensorId y : g_.nodes[static_cast<size_t>(n)].outputs)
      if (y != kAbsent && !g_[y].is_virtual) add_operand(y);
  return growth;
}

int GroupSizes::Depth(NodeId n, int group) const {
  int depth = 0;
  for (const TensorId x : g_.nodes[static_cast<size_t>(n)].inputs) {
    if (x == kAbsent) continue;
    const NodeId from = producers_[static_cast<size_t>(x)];
    const int home = home_[static_cast<size_t>(x)];
    if (from >= 0 && (home < 0 || home == group))
      depth = std::max(depth, depth_[static_cast<size_t>(from)]);
  }
  return depth + 1;
}

bool GroupSizes::Floats(NodeId n) {
  const int depth = Depth(n, -1);
  if (depth > kMostFloatingDepth) return false;
  const Growth growth = GrowthBy(n, -1, kMostFloatingNodes, kMostFloatingOperands);
  if (growth.nodes.size() > kMostFloatingNodes || growth.operands.size() > kMostFloatingOperands)
    return false;
  depth_[static_cast<size_t>(n)] = depth;
  return true;
}

bool GroupSizes::Fits(NodeId n, int group) {
  if (Depth(n, group) > kMostGroupDepth) return false;
  const Contents& has = groups_[static_cast<size_t>(group)];
  const size_t nodes = kMostGroupNodes - std::min(kMostGroupNodes, has.nodes.size());
  const size_t operands = kMostGroupOperands - std::min(kMostGroupOperands, has.operands.size());
  const Growth growth = GrowthBy(n, group, nodes, operands);
  return growth.nodes.size() <= nodes && growth.operands.size() <= operands;
}

bool GroupSizes::Add(NodeId n, int group) {
  const auto index = static_cast<size_t>(group);
  if (groups_.size() <= index) groups_.resize(index + 1);
  // A node has a few dozen operands at most, and what floats before each is bounded.
  const Growth growth = GrowthBy(n, group, SIZE_MAX - 1, SIZE_MAX - 1);
  Contents& has = groups_[index];
  has.nodes.insert(growth.nodes.begin(), growth.nodes.end());
  has.operands.insert(growth.operands.begin(), growth.operands.end());
  const int depth = Depth(n, group);
  depth_[static_cast<size_t>(n)] = depth;
  return has.nodes.size() <= kMostGroupNodes && has.operands.size() <= kMostGroupOperands &&
         depth <= kMostGroupDepth;
}

}  // namespace kiln::compiler
