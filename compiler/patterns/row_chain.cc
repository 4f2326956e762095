// See the header. A chain grows from one reduction: forward over maps of the row space and
// reductions of the same dims, back over maps to further such reductions (the two sums of a norm's
// gradient, say, meet in one map), and to maps whose results are stored, too, since they are read
// here anyway.
#include "compiler/patterns/row_chain.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "compiler/group_limits.h"
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

bool IsMap(const Node& node) { return node.op == GraphOp::kMap; }

// Nodes that a walk looks at which may lead out of the group.
constexpr size_t kMostWalk = 4 * kMostGroupNodes;
// Views between packed bits and the booleans made of them: plain-types writes three.
constexpr int kMostViews = 8;

// A graph by what chains are found by, and its reductions by their operand's extents.
struct Facts {
  explicit Facts(const Graph& graph)
      : g(graph), producers(graph::Producers(graph)), readers(graph::Consumers(graph)) {
    for (size_t n = 0; n < g.nodes.size(); ++n)
      if (g.nodes[n].op == GraphOp::kReduce)
        reductions[g[g.nodes[n].inputs[0]].dims].push_back(static_cast<NodeId>(n));
  }
  NodeId ProducerOf(TensorId t) const { return t == kAbsent ? -1 : producers[t]; }

  const Graph& g;
  const std::vector<NodeId> producers;
  const std::vector<std::vector<NodeId>> readers;
  std::map<Dims, std::vector<NodeId>> reductions;
};

// Nodes that a chain has taken, and those that come from memory by maps that none has.
struct Taken {
  std::vector<char> nodes, by_maps;
};

// The extents of a chain's elements and of its rows.
struct Space {
  Dims domain, rows;

  bool IsWide(const Graph& g, TensorId t) const { return g[t].dims == domain; }
  bool Reduces(const Graph& g, const Node& node) const {
    return node.op == GraphOp::kReduce && IsWide(g, node.inputs[0]) &&
           g[node.outputs[0]].dims == rows && rows != domain && NumElements(domain) != 0;
  }
  bool Fits(const Graph& g, const Node& node) const {
    return Reduces(g, node) ||
           (IsMap(node) && (IsWide(g, node.outputs[0]) || g[node.outputs[0]].dims == rows));
  }
};

// Which nodes belong to the chain at hand. To forget them takes no longer than to mark them.
class Marks {
 public:
  enum class State : uint8_t { kFree, kMember, kAfter };  // kAfter: follows from a member, is none

  explicit Marks(size_t nodes) : state_(nodes, State::kFree) {}

  State operator[](NodeId n) const { return state_[n]; }
  size_t count() const { return count_; }
  void Set(NodeId n, State state) {
    if (state_[n] == State::kFree) touched_.push_back(n);
    state_[n] = state;
    count_ += state == State::kMember;
  }
  void Forget() {
    for (const NodeId n : touched_) state_[n] = State::kFree;
    touched_.clear();
    count_ = 0;
  }
  std::vector<NodeId> Members() const {
    std::vector<NodeId> members;
    for (const NodeId n : touched_)
      if (state_[n] == State::kMember) members.push_back(n);
    std::ranges::sort(members);
    return members;
  }

 private:
  std::vector<State> state_;
  std::vector<NodeId> touched_;  // those that are not free
  size_t count_ = 0;             // members
};
using State = Marks::State;

// A view that makes booleans of bits in memory, which partition stores for chains.
bool IsUnpacked(const Facts& f, TensorId t) {
  int views = 0;
  for (;
       views < kMostViews && f.ProducerOf(t) >= 0 && Has(f.g.nodes[f.ProducerOf(t)], graph::kView);
       ++views)
    t = f.g.nodes[f.ProducerOf(t)].inputs[0];
  const NodeId from = f.ProducerOf(t);
  return views > 0 && from >= 0 && IsMap(f.g.nodes[from]) &&
         f.g.nodes[from].As<graph::MapAttrs>().op == ScalarOp::kBit;
}

Taken NothingTaken(const Facts& f) {
  const size_t count = f.g.nodes.size();
  Taken taken{std::vector<char>(count), std::vector<char>(count)};
  for (size_t n = 0; n < count; ++n) {
    const Node& node = f.g.nodes[n];
    taken.by_maps[n] = IsMap(node) && std::ranges::all_of(node.inputs, [&](TensorId x) {
                         const NodeId from = f.ProducerOf(x);
                         return from < 0 || taken.by_maps[from] != 0 || IsUnpacked(f, x);
                       });
  }
  return taken;
}

// Nodes that are made of a taken one by maps come no longer from memory alone.
void Take(const Facts& f, NodeId n, Taken& taken) {
  taken.nodes[n] = 1;
  std::vector<NodeId> pending = {n};
  while (!pending.empty()) {
    const NodeId at = pending.back();
    pending.pop_back();
    if (taken.by_maps[at] == 0) continue;
    taken.by_maps[at] = 0;
    for (const TensorId y : f.g.nodes[at].outputs)
      if (y != kAbsent) std::ranges::copy(f.readers[y], std::back_inserter(pending));
  }
}

// ---- the chain of one reduction

// Marks what belongs to the chain of these reductions, and all others that read a member; false
// if one follows from a node that cannot belong to it, or if they are too many for a group.
bool Mark(const Facts& f, const Taken& taken, const Space& space, const std::set<NodeId>& seeds,
          Marks& marks) {
  marks.Forget();
  // Nodes that follow, in order, and how many of them are seeds or read a member: behind the last
  // of these are only nodes that follow from others than members.
  std::map<NodeId, bool> pending;
  size_t relevant = seeds.size();
  for (const NodeId n : seeds) pending[n] = true;
  while (relevant > 0) {
    const auto [n, is_relevant] = *pending.begin();
    pending.erase(pending.begin());
    relevant -= is_relevant;
    const Node& node = f.g.nodes[n];
    const bool after = std::ranges::any_of(node.inputs, [&](TensorId x) {
      return f.ProducerOf(x) >= 0 && marks[f.ProducerOf(x)] == State::kAfter;
    });
    const bool is_seed = seeds.contains(n);
    if (is_seed && after) return false;
    const bool joins = is_seed || (!after && taken.nodes[n] == 0 && space.Fits(f.g, node));
    marks.Set(n, joins ? State::kMember : State::kAfter);
    if (marks.count() > kMostGroupNodes) return false;
    for (const TensorId y : node.outputs) {
      if (y == kAbsent) continue;
      for (const NodeId reader : f.readers[y]) {
        bool& was_relevant = pending[reader];
        relevant += joins && !was_relevant;
        was_relevant = was_relevant || joins;
      }
    }
  }
  return true;
}

// The seeds, and the reductions that maps on the way into the chain read.
std::set<NodeId> WithReductionsBefore(const Facts& f, const Taken& taken, const Space& space,
                                      const Marks& marks, std::set<NodeId> seeds) {
  std::set<NodeId> seen;
  std::vector<NodeId> pending = marks.Members();
  while (!pending.empty() && seen.size() <= kMostWalk) {
    const Node& node = f.g.nodes[pending.back()];
    pending.pop_back();
    for (const TensorId x : node.inputs) {
      const NodeId from = f.ProducerOf(x);
      if (from < 0 || marks[from] != State::kFree || !seen.insert(from).second) continue;
      if (taken.nodes[from] != 0) continue;
      if (IsMap(f.g.nodes[from]) && f.g[x].is_virtual) pending.push_back(from);
      if (space.Reduces(f.g, f.g.nodes[from])) seeds.insert(from);
    }
  }
  return seeds;
}

bool Grow(const Facts& f, const Taken& taken, const Space& space, NodeId first, Marks& marks) {
  std::set<NodeId> seeds = {first};
  while (true) {
    if (!Mark(f, taken, space, seeds, marks)) return false;
    const size_t before = seeds.size();
    seeds = WithReductionsBefore(f, taken, space, marks, std::move(seeds));
    if (seeds.size() == before) return true;
  }
}

// ---- reductions across rows

// Reductions over all that is no row, of values that the chain reads or makes.
bool ReducesColumns(const Graph& g, const Space& space, const Node& node) {
  if (node.op != GraphOp::kReduce || !space.IsWide(g, node.inputs[0])) return false;
  const Dims &dims = g[node.outputs[0]].dims, &domain = space.domain;
  bool fits = dims.size() == domain.size(), reduces = false;
  for (size_t d = 0; d < domain.size() && fits; ++d) {
    const bool along_row = space.rows[d] == 1;
    fits = dims[d] == (along_row ? domain[d] : 1);
    reduces = reduces || (!along_row && domain[d] != 1);
  }
  return fits && reduces;
}

// Tensors that the chain waits for or reads, and those that it makes.
std::unordered_set<TensorId> Before(const Facts& f, const std::vector<NodeId>& members) {
  std::unordered_set<TensorId> before;
  std::unordered_set<NodeId> seen;
  std::deque<NodeId> pending(members.begin(), members.end());
  while (!pending.empty() && seen.size() <= kMostWalk) {
    const NodeId n = pending.front();
    pending.pop_front();
    if (!seen.insert(n).second) continue;
    for (const TensorId id : f.g.nodes[n].outputs)
      if (id != kAbsent) before.insert(id);
    for (const TensorId x : f.g.nodes[n].inputs) {
      if (x != kAbsent) before.insert(x);
      if (f.ProducerOf(x) >= 0) pending.push_back(f.ProducerOf(x));
    }
  }
  return before;
}

// Whether a value comes by maps from tensors of the chain, or from smaller ones in memory.
bool ComesFrom(const Facts& f, const Space& space, const Marks& marks,
               const std::unordered_set<TensorId>& before, TensorId id) {
  std::set<TensorId> seen;
  std::vector<TensorId> pending = {id};
  while (!pending.empty()) {
    const TensorId t = pending.back();
    pending.pop_back();
    if (t == kAbsent || before.contains(t) || !seen.insert(t).second) continue;
    const NodeId from = f.ProducerOf(t);
    if (from < 0 ? space.IsWide(f.g, t) : !IsMap(f.g.nodes[from]) || marks[from] != State::kFree)
      return false;
    if (seen.size() > kMostGroupNodes) return false;
    if (from >= 0) std::ranges::copy(f.g.nodes[from].inputs, std::back_inserter(pending));
  }
  return true;
}

// Those among the reductions that stand near the chain.
std::vector<NodeId> FindColumns(const Facts& f, const Taken& taken, const Space& space,
                                const Marks& marks) {
  const std::vector<NodeId> members = marks.Members();
  const std::unordered_set<TensorId> before = Before(f, members);
  std::vector<NodeId> columns;
  const std::vector<NodeId>& reductions = f.reductions.at(space.domain);
  const NodeId first = members.front() - static_cast<NodeId>(kMostGroupNodes);
  auto at = std::ranges::lower_bound(reductions, first);
  for (size_t i = 0; i < 2 * kMostGroupNodes && at != reductions.end(); ++i, ++at) {
    const Node& node = f.g.nodes[*at];
    if (taken.nodes[*at] == 0 && !before.contains(node.outputs[0]) &&
        ReducesColumns(f.g, space, node) && ComesFrom(f, space, marks, before, node.inputs[0]))
      columns.push_back(*at);
  }
  return columns;
}

// ---- what becomes of a chain

// Something wide follows from the reductions. Results along rows that only others need are worth
// storing where they are operands of a product, or conditions, which are a byte each (those of a
// relu, say, that a client wants as bits); else they cost less where they float.
bool IsWorth(const Facts& f, const Space& space, const Marks& marks,
             const std::vector<NodeId>& columns) {
  const Graph& g = f.g;
  const std::vector<NodeId> members = marks.Members();
  const auto is_other = [&](NodeId n) {
    const Node& node = g.nodes[n];
    return marks[n] != State::kMember && !Has(node, graph::kContraction) &&
           !Has(node, graph::kWindow) && std::ranges::find(columns, n) == columns.end();
  };
  for (const NodeId n : members)
    for (const TensorId y : g.nodes[n].outputs)
      if (y != kAbsent && space.IsWide(g, y) && g[y].is_virtual && g[y].dtype != DType::kBool &&
          std::ranges::any_of(f.readers[y], is_other))
        return false;
  return std::ranges::any_of(members, [&](NodeId n) {
    return IsMap(g.nodes[n]) && space.IsWide(g, g.nodes[n].outputs[0]);
  });
}

// Maps of the row space whose stored results members read, where they come from memory by maps
// alone.
void PullStored(const Facts& f, const Taken& taken, const Space& space, Marks& marks) {
  std::set<NodeId> read;  // by maps
  std::vector<NodeId> pending = marks.Members();
  while (!pending.empty() && read.size() <= kMostWalk) {
    const Node& node = f.g.nodes[pending.back()];
    pending.pop_back();
    for (const TensorId x : node.inputs) {
      const NodeId from = f.ProducerOf(x);
      if (from < 0 || taken.by_maps[from] == 0 || !read.insert(from).second) continue;
      pending.push_back(from);
      if (!f.g[x].is_virtual && space.IsWide(f.g, x)) marks.Set(from, State::kMember);
    }
  }
  // Nodes between them and the chain join it, too.
  for (const NodeId n : read)
    if (marks[n] == State::kFree && std::ranges::any_of(f.g.nodes[n].inputs, [&](TensorId x) {
          return f.ProducerOf(x) >= 0 && marks[f.ProducerOf(x)] == State::kMember;
        }))
      marks.Set(n, State::kMember);
}

// The chain that grows from one reduction, where it is worth a kernel.
std::optional<RowChain> ChainAt(const Facts& f, const Taken& taken, NodeId first, Marks& marks) {
  const Node& node = f.g.nodes[first];
  const Space space{f.g[node.inputs[0]].dims, f.g[node.outputs[0]].dims};
  if (!space.Reduces(f.g, node) || !Grow(f, taken, space, first, marks)) return std::nullopt;
  RowChain chain{.domain = space.domain, .members = {}};
  chain.stands_alone = IsWorth(f, space, marks, {});
  chain.columns = FindColumns(f, taken, space, marks);
  if (!chain.stands_alone && (chain.columns.empty() || !IsWorth(f, space, marks, chain.columns)))
    return std::nullopt;
  PullStored(f, taken, space, marks);
  chain.members = marks.Members();
  return chain;
}

}  // namespace

std::vector<RowChain> FindRowChains(const Graph& graph) {
  const Facts facts(graph);
  Taken taken = NothingTaken(facts);
  Marks marks(graph.nodes.size());
  std::vector<RowChain> chains;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op != GraphOp::kReduce || taken.nodes[n] != 0) continue;
    auto chain = ChainAt(facts, taken, static_cast<NodeId>(n), marks);
    if (!chain) continue;
    for (const NodeId m : chain->members) Take(facts, m, taken);
    chains.push_back(*std::move(chain));
  }
  return chains;
}

}  // namespace kiln::compiler
