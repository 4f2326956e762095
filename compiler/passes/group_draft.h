// Placement: the place where partition has put each node, before groups are graphs of their own.
// PlaceNodes (place_nodes.h) makes it and ExtractGroups (extract_groups.h) reads it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/module.h"
#include "compiler/patterns/memory_view.h"
#include "ir/graph/graph.h"

namespace kiln::compiler {

constexpr int kNoGroup = -1;
constexpr int kNoPattern = -1;

// A graph, and who makes and reads its tensors.
struct LinkedGraph {
  explicit LinkedGraph(const graph::Graph& graph)
      : g(graph), producers(graph::Producers(g)), readers(graph::Consumers(g)) {}

  const graph::Graph& g;
  const std::vector<graph::NodeId> producers;
  const std::vector<std::vector<graph::NodeId>> readers;
};

// A group while it grows.
struct GroupDraft {
  GroupKind kind;
  Dims domain;  // dims of what it stores
  Dims reads;   // dims of a reduction's operand
  std::vector<graph::NodeId> members;
  int pattern = kNoPattern;  // the fused pattern that it is
  bool is_closed = false;    // true if nobody joins it, because it walks what it reads
  std::string why = {};      // the reason that it is a group of its own
};

struct Placement {
  std::vector<GroupDraft> groups;                // in launch order
  std::vector<int> home;                         // of a tensor: the group that computes it as its
                                                 // member; what is computed and has none floats
  std::map<graph::TensorId, MemoryPlace> parts;  // of tensors that stand in an assembled result
  // A pattern that would have to run between two parts of another one, or around a node that runs
  // between two of its own; nothing is placed then.
  int tangled = kNoPattern;
  std::vector<int> too_large;  // patterns that are larger than a group may be
  // Nodes that may not float: operands of a node that would be larger than a group with what floats
  // before it.
  std::vector<graph::NodeId> to_store;
};

// True if a group reads the tensor from memory: what the caller gave, or another group stored.
bool IsMemory(const LinkedGraph& linked, const Placement& placement, graph::TensorId x, int group);

// The members of a group and what floats before them, in order; without what makes a tensor that
// `is_seen` says the group sees in memory.
std::vector<graph::NodeId> NodesOf(
    const LinkedGraph& linked, const Placement& placement, int group,
    const std::function<bool(graph::TensorId)>& is_seen = [](graph::TensorId) { return false; });

// The nodes that would read an overwritten tensor. In place, one uid is two tensors: the version
// that is read and the version that is written over it. A node that floats is computed where it is
// read; if that is after the writer's group, the old version is gone. Partitioning again with such
// nodes stored mends that.
std::vector<graph::NodeId> ReadersOfOverwritten(const LinkedGraph& linked,
                                                const Placement& placement);

}  // namespace kiln::compiler
