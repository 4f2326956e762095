// GroupSizes: the contents of groups while partition builds them, held to the limits of a group.
#pragma once

#include <unordered_set>
#include <vector>

#include "compiler/group_limits.h"
#include "ir/graph/graph.h"

namespace kiln::compiler {

class GroupSizes {
 public:
  // `home` is partition's: the group that computes a tensor as its member, or -1. What is computed
  // and has none floats.
  GroupSizes(const graph::Graph& g, const std::vector<graph::NodeId>& producers,
             const std::vector<int>& home)
      : g_(g),
        producers_(producers),
        home_(home),
        depth_(g.nodes.size(), 0),
        seen_(g.nodes.size(), 0) {}

  // True if the node may float. Notes how deep it is where it does.
  bool Floats(graph::NodeId n);
  // True if a group may have the node as its member, beside what it has.
  bool Fits(graph::NodeId n, int group);
  // Makes the node a member. False where the group is then over the limits: some node would not fit
  // alone.
  bool Add(graph::NodeId n, int group);

 private:
  struct Contents {
    std::unordered_set<graph::NodeId> nodes;
    std::unordered_set<graph::TensorId> operands;
  };
  struct Growth {
    std::vector<graph::NodeId> nodes;
    std::vector<graph::TensorId> operands;
  };
  // The nodes and operands that computing `n` in the group adds to it; no more of them than show
  // that the limits are passed.
  Growth GrowthBy(graph::NodeId n, int group, size_t most_nodes, size_t most_operands);
  int Depth(graph::NodeId n, int group) const;
  bool IsOperand(graph::TensorId id) const { return !g_[id].is_constant(); }

  const graph::Graph& g_;
  const std::vector<graph::NodeId>& producers_;
  const std::vector<int>& home_;
  std::vector<Contents> groups_;
  std::vector<int>
      depth_;              // of a node that is placed: nodes on the longest path to it in its group
  std::vector<int> seen_;  // by the walk of this number
  int walk_ = 0;
};

}  // namespace kiln::compiler
