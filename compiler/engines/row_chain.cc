// See the header. A chain grows from one reduction: forward over maps of the row space and
// reductions of the same dims, back over maps to further such reductions (the two sums of a norm's
// gradient, say, meet in one map), and to maps whose results are stored, too, since they are read
// here anyway.
#include "compiler/engines/row_chain.h"

#include <algorithm>

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

class Finder {
 public:
  explicit Finder(const Graph& g)
      : g_(g), producers_(graph::Producers(g)), taken_(g.nodes.size(), 0) {}

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
      for (size_t m = 0; m < g_.nodes.size(); ++m) {
        if (state_[m] != State::kMember) continue;
        taken_[m] = 1;
        chain.members.push_back(static_cast<NodeId>(m));
      }
      chains.push_back(std::move(chain));
    }
    return chains;
  }

 private:
  enum class State : uint8_t { kFree, kMember, kAfter };  // kAfter: follows from a member, is none

  // Of the dims at hand.
  bool ReducesRows(const Node& node) const {
    return node.op == GraphOp::kReduce && g_[node.inputs[0]].dims == domain_ &&
           g_[node.outputs[0]].dims == rows_ && rows_ != domain_ && NumElements(domain_) != 0;
  }
  bool IsWide(TensorId t) const { return g_[t].dims == domain_; }
  NodeId ProducerOf(TensorId t) const { return t == kAbsent ? -1 : producers_[t]; }

  // Marks what belongs to the chain of these reductions; false if one follows from a node that
  // cannot belong to it.
  bool Mark(const std::vector<NodeId>& seeds) {
    state_.assign(g_.nodes.size(), State::kFree);
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      bool reads = false, after = false;
      for (const TensorId x : node.inputs) {
        const NodeId from = ProducerOf(x);
        if (from < 0) continue;
        reads = reads || state_[from] == State::kMember;
        after = after || state_[from] == State::kAfter;
      }
      if (std::ranges::find(seeds, static_cast<NodeId>(n)) != seeds.end()) {
        if (after) return false;
        state_[n] = State::kMember;
      } else if (reads || after) {
        const bool joins = !after && taken_[n] == 0 && Fits(node);
        state_[n] = joins ? State::kMember : State::kAfter;
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
    std::vector<NodeId> seeds = {first};
    while (true) {
      if (!Mark(seeds)) return false;
      const size_t before = seeds.size();
      AddReductionsBefore(seeds);
      if (seeds.size() == before) return true;
    }
  }

  // Reductions that maps on the way into the chain read.
  void AddReductionsBefore(std::vector<NodeId>& seeds) const {
    std::vector<char> seen(g_.nodes.size(), 0);
    std::vector<NodeId> pending;
    for (size_t n = 0; n < g_.nodes.size(); ++n)
      if (state_[n] == State::kMember) pending.push_back(static_cast<NodeId>(n));
    while (!pending.empty()) {
      const Node& node = g_.nodes[pending.back()];
      pending.pop_back();
      for (const TensorId x : node.inputs) {
        const NodeId from = ProducerOf(x);
        if (from < 0 || seen[from] != 0 || state_[from] != State::kFree) continue;
        seen[from] = 1;
        if (taken_[from] != 0) continue;
        if (IsMap(g_.nodes[from]) && g_[x].is_virtual) pending.push_back(from);
        if (ReducesRows(g_.nodes[from])) seeds.push_back(from);
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
  std::vector<NodeId> FindColumns() const {
    const std::vector<char> before = Before();
    std::vector<NodeId> columns;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (taken_[n] == 0 && before[node.outputs[0]] == 0 && ReducesColumns(node) &&
          ComesFrom(before, node.inputs[0]))
        columns.push_back(static_cast<NodeId>(n));
    }
    return columns;
  }

  // What the chain waits for or reads, and what it makes.
  std::vector<char> Before() const {
    std::vector<char> before(g_.tensors.size(), 0);
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      const Node& node = g_.nodes[n];
      const bool member = state_[n] == State::kMember;
      if (!member && before[node.outputs[0]] == 0) continue;
      for (const TensorId id : node.outputs)
        if (id != kAbsent) before[id] = 1;
      for (const TensorId x : node.inputs)
        if (x != kAbsent) before[x] = 1;
    }
    return before;
  }
  // By maps from tensors of the chain, or from smaller ones in memory.
  bool ComesFrom(const std::vector<char>& before, TensorId id) const {
    std::vector<char> seen(g_.tensors.size(), 0);
    std::vector<TensorId> pending = {id};
    while (!pending.empty()) {
      const TensorId t = pending.back();
      pending.pop_back();
      if (t == kAbsent || seen[t] != 0 || before[t] != 0) continue;
      seen[t] = 1;
      const NodeId from = ProducerOf(t);
      if (from < 0 ? IsWide(t) : !IsMap(g_.nodes[from]) || state_[from] != State::kFree)
        return false;
      if (from >= 0) std::ranges::copy(g_.nodes[from].inputs, std::back_inserter(pending));
    }
    return true;
  }

  // Something wide follows from the reductions. Results along rows that only others need are worth
  // storing where they are operands of a product; else they cost less where they float.
  bool IsWorth(const std::vector<NodeId>& columns) const {
    bool wide = false;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (state_[n] == State::kMember) {
        wide = wide || (IsMap(node) && IsWide(node.outputs[0]));
        continue;
      }
      if (Has(node, graph::kContraction) || Has(node, graph::kWindow)) continue;
      if (std::ranges::find(columns, static_cast<NodeId>(n)) != columns.end()) continue;
      for (const TensorId x : node.inputs) {
        const NodeId from = ProducerOf(x);
        if (from >= 0 && state_[from] == State::kMember && IsWide(x) && g_[x].is_virtual)
          return false;
      }
    }
    return wide;
  }

  // Maps of the row space whose stored results members read, where they come from memory by maps
  // alone.
  void PullStored() {
    std::vector<char> by_maps(g_.nodes.size(), 0);
    for (size_t n = 0; n < g_.nodes.size(); ++n)
      by_maps[n] = IsMap(g_.nodes[n]) && state_[n] == State::kFree && taken_[n] == 0 &&
                   std::ranges::all_of(g_.nodes[n].inputs, [&](TensorId x) {
                     return ProducerOf(x) < 0 || by_maps[ProducerOf(x)] != 0;
                   });
    std::vector<char> read(g_.tensors.size(), 0);
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      const Node& node = g_.nodes[n];
      const TensorId y = node.outputs[0];
      if (read[y] != 0 && by_maps[n] != 0 && !g_[y].is_virtual && IsWide(y))
        state_[n] = State::kMember;
      if (state_[n] != State::kMember && (read[y] == 0 || by_maps[n] == 0)) continue;
      for (const TensorId x : node.inputs)
        if (x != kAbsent) read[x] = 1;
    }
    // What stands between them and the chain.
    for (size_t n = 0; n < g_.nodes.size(); ++n)
      if (by_maps[n] != 0 && read[g_.nodes[n].outputs[0]] != 0 &&
          std::ranges::any_of(g_.nodes[n].inputs, [&](TensorId x) {
            return ProducerOf(x) >= 0 && state_[ProducerOf(x)] == State::kMember;
          }))
        state_[n] = State::kMember;
  }

  const Graph& g_;
  std::vector<NodeId> producers_;
  std::vector<char> taken_;
  Dims domain_, rows_;
  std::vector<State> state_;
};

}  // namespace

std::vector<RowChain> FindRowChains(const Graph& graph) { return Finder(graph).Find(); }

}  // namespace kiln::compiler
