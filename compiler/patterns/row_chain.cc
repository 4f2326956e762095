// See the header. A chain grows from one reduction: forward over maps of the row space and
// reductions of the same dims, back over maps to further such reductions (the two sums of a norm's
// gradient, say, meet in one map), and to maps whose results are stored, too, since they are read
// here anyway.
#include "compiler/patterns/row_chain.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <unordered_set>

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

class Finder {
 public:
  explicit Finder(const Graph& g)
      : g_(g),
        producers_(graph::Producers(g)),
        readers_(graph::Consumers(g)),
        taken_(g.nodes.size(), 0),
        by_maps_(g.nodes.size(), 0),
        state_(g.nodes.size(), State::kFree) {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      by_maps_[n] = IsMap(node) && std::ranges::all_of(node.inputs, [&](TensorId x) {
                      return ProducerOf(x) < 0 || by_maps_[ProducerOf(x)] != 0 || IsUnpacked(x);
                    });
      if (node.op == GraphOp::kReduce)
        reductions_[g_[node.inputs[0]].dims].push_back(static_cast<NodeId>(n));
    }
  }

  std::vector<RowChain> Find() {
    std::vector<RowChain> chains;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op != GraphOp::kReduce || taken_[n] != 0) continue;
      domain_ = g_[node.inputs[0]].dims;
      rows_ = g_[node.outputs[0]].dims;
      if (!ReducesRows(node) || !Grow(static_cast<NodeId>(n))) continue;
      RowChain chain{.domain = domain_, .members = {}};
      chain.stands_alone = IsWorth({});
      chain.columns = FindColumns();
      if (!chain.stands_alone && (chain.columns.empty() || !IsWorth(chain.columns))) continue;
      PullStored();
      chain.members = Members();
      for (const NodeId m : chain.members) Take(m);
      chains.push_back(std::move(chain));
    }
    return chains;
  }

 private:
  enum class State : uint8_t { kFree, kMember, kAfter };  // kAfter: follows from a member, is none

  // True for a reduction of the dims at hand.
  bool ReducesRows(const Node& node) const {
    return node.op == GraphOp::kReduce && g_[node.inputs[0]].dims == domain_ &&
           g_[node.outputs[0]].dims == rows_ && rows_ != domain_ && NumElements(domain_) != 0;
  }
  bool IsWide(TensorId t) const { return g_[t].dims == domain_; }
  NodeId ProducerOf(TensorId t) const { return t == kAbsent ? -1 : producers_[t]; }

  void Set(NodeId n, State state) {
    if (state_[n] == State::kFree) touched_.push_back(n);
    state_[n] = state;
    members_ += state == State::kMember;
  }
  void Forget() {
    for (const NodeId n : touched_) state_[n] = State::kFree;
    touched_.clear();
    members_ = 0;
  }
  std::vector<NodeId> Members() const {
    std::vector<NodeId> members;
    for (const NodeId n : touched_)
      if (state_[n] == State::kMember) members.push_back(n);
    std::ranges::sort(members);
    return members;
  }
  // Takes a node. Values that maps make of it are so no longer from memory alone.
  void Take(NodeId n) {
    taken_[n] = 1;
    std::vector<NodeId> pending = {n};
    while (!pending.empty()) {
      const NodeId at = pending.back();
      pending.pop_back();
      if (by_maps_[at] == 0) continue;
      by_maps_[at] = 0;
      for (const TensorId y : g_.nodes[at].outputs)
        if (y != kAbsent) std::ranges::copy(readers_[y], std::back_inserter(pending));
    }
  }

  // Marks what belongs to the chain of these reductions, and all others that read a member; false
  // if one follows from a node that cannot belong to it, or if they are too many for a group.
  bool Mark(const std::set<NodeId>& seeds) {
    Forget();
    // Nodes that follow, in order, and how many of them are seeds or read a member: behind the last
    // of these are only nodes that follow from others than members.
    std::map<NodeId, bool> pending;
    size_t relevant = seeds.size();
    for (const NodeId n : seeds) pending[n] = true;
    while (relevant > 0) {
      const auto [n, is_relevant] = *pending.begin();
      pending.erase(pending.begin());
      relevant -= is_relevant;
      const Node& node = g_.nodes[n];
      const bool after = std::ranges::any_of(node.inputs, [&](TensorId x) {
        return ProducerOf(x) >= 0 && state_[ProducerOf(x)] == State::kAfter;
      });
      const bool is_seed = seeds.contains(n);
      if (is_seed && after) return false;
      const bool joins = is_seed || (!after && taken_[n] == 0 && Fits(node));
      Set(n, joins ? State::kMember : State::kAfter);
      if (members_ > kMostGroupNodes) return false;
      for (const TensorId y : node.outputs) {
        if (y == kAbsent) continue;
        for (const NodeId reader : readers_[y]) {
          bool& was_relevant = pending[reader];
          relevant += joins && !was_relevant;
          was_relevant = was_relevant || joins;
        }
      }
    }
    return true;
  }
  bool Fits(const Node& node) const {
    return ReducesRows(node) ||
           (IsMap(node) && (IsWide(node.outputs[0]) || HasRowDims(node.outputs[0])));
  }
  bool HasRowDims(TensorId t) const { return g_[t].dims == rows_; }

  bool Grow(NodeId first) {
    std::set<NodeId> seeds = {first};
    while (true) {
      if (!Mark(seeds)) return false;
      const size_t before = seeds.size();
      AddReductionsBefore(seeds);
      if (seeds.size() == before) return true;
    }
  }

  // Reductions that maps on the way into the chain read.
  void AddReductionsBefore(std::set<NodeId>& seeds) const {
    std::set<NodeId> seen;
    std::vector<NodeId> pending = Members();
    while (!pending.empty() && seen.size() <= kMostWalk) {
      const Node& node = g_.nodes[pending.back()];
      pending.pop_back();
      for (const TensorId x : node.inputs) {
        const NodeId from = ProducerOf(x);
        if (from < 0 || state_[from] != State::kFree || !seen.insert(from).second) continue;
        if (taken_[from] != 0) continue;
        if (IsMap(g_.nodes[from]) && g_[x].is_virtual) pending.push_back(from);
        if (ReducesRows(g_.nodes[from])) seeds.insert(from);
      }
    }
  }

  // Reductions over all that is no row, of values that the chain reads or makes.
  bool ReducesColumns(const Node& node) const {
    if (node.op != GraphOp::kReduce || !IsWide(node.inputs[0])) return false;
    const Dims& dims = g_[node.outputs[0]].dims;
    bool fits = dims.size() == domain_.size(), reduces = false;
    for (size_t d = 0; d < domain_.size() && fits; ++d) {
      const bool along_row = rows_[d] == 1;
      fits = dims[d] == (along_row ? domain_[d] : 1);
      reduces = reduces || (!along_row && domain_[d] != 1);
    }
    return fits && reduces;
  }
  // Reductions across all rows that stand near the chain.
  std::vector<NodeId> FindColumns() const {
    const std::unordered_set<TensorId> before = Before();
    std::vector<NodeId> columns;
    const std::vector<NodeId>& reductions = reductions_.at(domain_);
    const NodeId first = Members().front() - static_cast<NodeId>(kMostGroupNodes);
    auto at = std::ranges::lower_bound(reductions, first);
    for (size_t i = 0; i < 2 * kMostGroupNodes && at != reductions.end(); ++i, ++at) {
      const Node& node = g_.nodes[*at];
      if (taken_[*at] == 0 && !before.contains(node.outputs[0]) && ReducesColumns(node) &&
          ComesFrom(before, node.inputs[0]))
        columns.push_back(*at);
    }
    return columns;
  }

  // Tensors that members make or read, and all that these follow from.
  std::unordered_set<TensorId> Before() const {
    std::unordered_set<TensorId> before;
    std::unordered_set<NodeId> seen;
    const std::vector<NodeId> members = Members();
    std::deque<NodeId> pending(members.begin(), members.end());
    while (!pending.empty() && seen.size() <= kMostWalk) {
      const NodeId n = pending.front();
      pending.pop_front();
      if (!seen.insert(n).second) continue;
      for (const TensorId id : g_.nodes[n].outputs)
        if (id != kAbsent) before.insert(id);
      for (const TensorId x : g_.nodes[n].inputs) {
        if (x != kAbsent) before.insert(x);
        if (ProducerOf(x) >= 0) pending.push_back(ProducerOf(x));
      }
    }
    return before;
  }
  // By maps from tensors of the chain, or from smaller ones in memory.
  bool ComesFrom(const std::unordered_set<TensorId>& before, TensorId id) const {
    std::set<TensorId> seen;
    std::vector<TensorId> pending = {id};
    while (!pending.empty()) {
      const TensorId t = pending.back();
      pending.pop_back();
      if (t == kAbsent || before.contains(t) || !seen.insert(t).second) continue;
      const NodeId from = ProducerOf(t);
      if (from < 0 ? IsWide(t) : !IsMap(g_.nodes[from]) || state_[from] != State::kFree)
        return false;
      if (seen.size() > kMostGroupNodes) return false;
      if (from >= 0) std::ranges::copy(g_.nodes[from].inputs, std::back_inserter(pending));
    }
    return true;
  }

  // Something wide follows from the reductions. Results along rows that only others need are worth
  // storing where they are operands of a product, or conditions, which are a byte each (those of a
  // relu, say, that a client wants as bits); else they cost less where they float.
  bool IsWorth(const std::vector<NodeId>& columns) const {
    const std::vector<NodeId> members = Members();
    const auto is_other = [&](NodeId n) {
      const Node& node = g_.nodes[n];
      return state_[n] != State::kMember && !Has(node, graph::kContraction) &&
             !Has(node, graph::kWindow) && std::ranges::find(columns, n) == columns.end();
    };
    for (const NodeId n : members)
      for (const TensorId y : g_.nodes[n].outputs)
        if (y != kAbsent && IsWide(y) && g_[y].is_virtual && g_[y].dtype != DType::kBool &&
            std::ranges::any_of(readers_[y], is_other))
          return false;
    return std::ranges::any_of(
        members, [&](NodeId n) { return IsMap(g_.nodes[n]) && IsWide(g_.nodes[n].outputs[0]); });
  }

  // A view that makes booleans of bits in memory, which partition stores for chains.
  bool IsUnpacked(TensorId t) const {
    int views = 0;
    for (; views < kMostViews && ProducerOf(t) >= 0 && Has(g_.nodes[ProducerOf(t)], graph::kView);
         ++views)
      t = g_.nodes[ProducerOf(t)].inputs[0];
    const NodeId from = ProducerOf(t);
    return views > 0 && from >= 0 && IsMap(g_.nodes[from]) &&
           g_.nodes[from].As<graph::MapAttrs>().op == ScalarOp::kBit;
  }

  // Maps of the row space whose stored results members read, where they come from memory by maps
  // alone.
  void PullStored() {
    std::set<NodeId> read;  // by maps
    std::vector<NodeId> pending = Members();
    while (!pending.empty() && read.size() <= kMostWalk) {
      const Node& node = g_.nodes[pending.back()];
      pending.pop_back();
      for (const TensorId x : node.inputs) {
        const NodeId from = ProducerOf(x);
        if (from < 0 || by_maps_[from] == 0 || !read.insert(from).second) continue;
        pending.push_back(from);
        if (!g_[x].is_virtual && IsWide(x)) Set(from, State::kMember);
      }
    }
    // The nodes between them and the chain become members.
    for (const NodeId n : read)
      if (state_[n] == State::kFree && std::ranges::any_of(g_.nodes[n].inputs, [&](TensorId x) {
            return ProducerOf(x) >= 0 && state_[ProducerOf(x)] == State::kMember;
          }))
        Set(n, State::kMember);
  }

  const Graph& g_;
  const std::vector<NodeId> producers_;
  const std::vector<std::vector<NodeId>> readers_;
  std::map<Dims, std::vector<NodeId>> reductions_;  // by their operand's extents
  std::vector<char> taken_;
  std::vector<char> by_maps_;  // of nodes: comes from memory by maps that no chain has taken
  Dims domain_, rows_;
  std::vector<State> state_;
  std::vector<NodeId> touched_;  // those that are not free
  size_t members_ = 0;
};

}  // namespace

std::vector<RowChain> FindRowChains(const Graph& graph) { return Finder(graph).Find(); }

}  // namespace kiln::compiler
