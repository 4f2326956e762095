// The tensor graph's own bookkeeping: adding tensors and nodes, who produces and who consumes what,
// and Normalize, which every client of the compiler calls once after it has built a graph.
#include "ir/graph/graph.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "ir/graph/ops.h"

namespace kiln::graph {
namespace {

std::string AsIdentifier(std::string_view name) {
  std::string out;
  for (const char c : name) {
    out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0])))
    return fmt::format("t{}", out);
  return out;
}

std::string NodeText(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[static_cast<size_t>(id)];
  const std::string_view mnemonic = Info(node.op).mnemonic;
  return node.name.empty() ? fmt::format("node {} ({})", id, mnemonic)
                           : fmt::format("node {} \"{}\" ({})", id, node.name, mnemonic);
}

Status CheckOperandIds(const Graph& graph) {
  const auto count = static_cast<TensorId>(graph.tensors.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const auto* ids : {&graph.nodes[n].inputs, &graph.nodes[n].outputs}) {
      for (const TensorId id : *ids) {
        if (id >= kAbsent && id < count) continue;
        return Status::Error(Code::kBadParam, "{}: operand {} is not one of the {} tensors",
                             NodeText(graph, static_cast<NodeId>(n)), id, count);
      }
    }
  }
  return {};
}

Status CheckOneWriter(const Graph& graph) {
  std::vector<NodeId> writer(graph.tensors.size(), -1);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const TensorId id : graph.nodes[n].outputs) {
      if (id == kAbsent) continue;
      NodeId& previous = writer[static_cast<size_t>(id)];
      if (previous >= 0) {
        return Status::Error(Code::kBadParam, "tensor %{} is written twice: by {} and by {}",
                             graph[id].name, NodeText(graph, previous),
                             NodeText(graph, static_cast<NodeId>(n)));
      }
      previous = static_cast<NodeId>(n);
    }
  }
  return {};
}

// successors[n]: nodes that must come after n, because they read what n writes, or because they
// overwrite (a second tensor of the same uid, see Tensor::uid) what n reads.
std::vector<std::vector<NodeId>> Successors(const Graph& graph) {
  const std::vector<NodeId> producers = Producers(graph);
  std::map<int64_t, NodeId> overwriter;  // uid -> the node that writes it
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].uid >= 0 && producers[t] >= 0)
      overwriter[graph.tensors[t].uid] = producers[t];
  }
  std::vector<std::vector<NodeId>> successors(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const TensorId id : graph.nodes[n].inputs) {
      if (id == kAbsent) continue;
      const NodeId producer = producers[static_cast<size_t>(id)];
      if (producer >= 0) {
        successors[static_cast<size_t>(producer)].push_back(static_cast<NodeId>(n));
        continue;
      }
      const auto over = overwriter.find(graph[id].uid);
      if (over != overwriter.end() && over->second != static_cast<NodeId>(n)) {
        successors[n].push_back(over->second);
      }
    }
  }
  return successors;
}

Status SortNodes(Graph& graph) {
  const auto successors = Successors(graph);
  std::vector<int> waits(graph.nodes.size(), 0);
  for (const auto& after : successors) {
    for (const NodeId n : after) ++waits[static_cast<size_t>(n)];
  }
  std::set<NodeId> ready;
  for (size_t n = 0; n < waits.size(); ++n) {
    if (waits[n] == 0) ready.insert(static_cast<NodeId>(n));
  }
  std::vector<NodeId> order;
  while (!ready.empty()) {
    const NodeId n = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(n);
    for (const NodeId next : successors[static_cast<size_t>(n)]) {
      if (--waits[static_cast<size_t>(next)] == 0) ready.insert(next);
    }
  }
  if (order.size() < graph.nodes.size()) {
    const auto stuck = std::ranges::find_if(waits, [](int w) { return w > 0; }) - waits.begin();
    return Status::Error(Code::kBadParam, "the graph has a cycle through {}",
                         NodeText(graph, static_cast<NodeId>(stuck)));
  }
  std::vector<Node> sorted;
  sorted.reserve(order.size());
  for (const NodeId n : order) sorted.push_back(std::move(graph.nodes[static_cast<size_t>(n)]));
  graph.nodes = std::move(sorted);
  return {};
}

void DropUnnamedTensors(Graph& graph) {
  std::vector<TensorId> new_id(graph.tensors.size(), kAbsent);
  for (const Node& node : graph.nodes) {
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const TensorId id : *ids) {
        if (id != kAbsent) new_id[static_cast<size_t>(id)] = 0;
      }
    }
  }
  std::vector<Tensor> kept;
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    if (new_id[t] == kAbsent) continue;
    new_id[t] = static_cast<TensorId>(kept.size());
    kept.push_back(std::move(graph.tensors[t]));
  }
  graph.tensors = std::move(kept);
  for (Node& node : graph.nodes) {
    for (auto* ids : {&node.inputs, &node.outputs}) {
      for (TensorId& id : *ids) {
        if (id != kAbsent) id = new_id[static_cast<size_t>(id)];
      }
    }
  }
}

// Calls visit(id, is_output) for each operand in order of first use.
template <class F>
void ForEachFirstUse(const Graph& graph, F&& visit) {
  std::vector<bool> seen(graph.tensors.size(), false);
  const auto once = [&](TensorId id, bool is_output) {
    if (id == kAbsent || seen[static_cast<size_t>(id)]) return;
    seen[static_cast<size_t>(id)] = true;
    visit(id, is_output);
  };
  for (const Node& node : graph.nodes) {
    for (const TensorId id : node.inputs) once(id, false);
    for (const TensorId id : node.outputs) once(id, true);
  }
}

}  // namespace

TensorNames& TensorNames::operator=(const TensorNames&) {
  ids_.clear();
  indexed_ = 0;
  return *this;
}

bool TensorNames::Contains(const std::vector<Tensor>& tensors, const std::string& name) {
  const auto catch_up = [&] {
    if (tensors.size() < indexed_) *this = TensorNames();
    for (; indexed_ < tensors.size(); ++indexed_)
      ids_.try_emplace(tensors[indexed_].name, static_cast<TensorId>(indexed_));
  };
  catch_up();
  auto found = ids_.find(name);
  if (found == ids_.end()) return false;
  const auto holds = [&](TensorId id) {
    return static_cast<size_t>(id) < tensors.size() &&
           tensors[static_cast<size_t>(id)].name == name;
  };
  if (holds(found->second)) return true;
  // Somebody has erased tensors, or put others in their place.
  *this = TensorNames();
  catch_up();
  return ids_.contains(name);
}

void TensorNames::Rename(TensorId id, const std::string& before, const std::string& after) {
  const auto found = ids_.find(before);
  if (found != ids_.end() && found->second == id) ids_.erase(found);
  ids_[after] = id;
}

namespace {

std::string FreeName(Graph& graph, const std::string& wish) {
  const std::string base = AsIdentifier(wish);
  std::string name = base;
  for (size_t i = graph.tensors.size(); graph.names.Contains(graph.tensors, name); ++i)
    name = fmt::format("{}_{}", base, i);
  return name;
}

}  // namespace

TensorId Graph::AddTensor(Tensor tensor) {
  tensor.name = FreeName(*this, tensor.name);
  tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(tensors.size() - 1);
}

void Graph::Rename(TensorId id, const std::string& wish) {
  std::string free = FreeName(*this, wish);
  Tensor& tensor = (*this)[id];
  names.Rename(id, tensor.name, free);
  tensor.name = std::move(free);
}

NodeId Graph::AddNode(Node node) {
  nodes.push_back(std::move(node));
  return static_cast<NodeId>(nodes.size() - 1);
}

std::vector<NodeId> Producers(const Graph& graph) {
  std::vector<NodeId> producers(graph.tensors.size(), -1);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const TensorId id : graph.nodes[n].outputs) {
      if (id != kAbsent) producers[static_cast<size_t>(id)] = static_cast<NodeId>(n);
    }
  }
  return producers;
}

std::vector<std::vector<NodeId>> Consumers(const Graph& graph) {
  std::vector<std::vector<NodeId>> consumers(graph.tensors.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const TensorId id : graph.nodes[n].inputs) {
      if (id == kAbsent) continue;
      auto& readers = consumers[static_cast<size_t>(id)];
      if (readers.empty() || readers.back() != static_cast<NodeId>(n))
        readers.push_back(static_cast<NodeId>(n));
    }
  }
  return consumers;
}

Status Normalize(Graph& graph) {
  RETURN_IF_ERROR(CheckOperandIds(graph));
  RETURN_IF_ERROR(CheckOneWriter(graph));
  RETURN_IF_ERROR(SortNodes(graph));
  DropUnnamedTensors(graph);
  return {};
}

std::vector<TensorId> Inputs(const Graph& graph) {
  const std::vector<NodeId> producers = Producers(graph);
  std::vector<TensorId> inputs;
  ForEachFirstUse(graph, [&](TensorId id, bool) {
    const Tensor& tensor = graph[id];
    const bool written = producers[static_cast<size_t>(id)] >= 0;
    if (!tensor.is_virtual && !tensor.is_constant() && !written) inputs.push_back(id);
  });
  return inputs;
}

std::vector<TensorId> Outputs(const Graph& graph) {
  const std::vector<NodeId> producers = Producers(graph);
  std::vector<TensorId> outputs;
  ForEachFirstUse(graph, [&](TensorId id, bool) {
    if (!graph[id].is_virtual && producers[static_cast<size_t>(id)] >= 0) outputs.push_back(id);
  });
  return outputs;
}

}  // namespace kiln::graph
