#include "compiler/passes/fused_patterns.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/passes/group_size.h"
#include "compiler/patterns/attention.h"
#include "compiler/patterns/attention_grad.h"
#include "compiler/patterns/grouped_products.h"
#include "compiler/patterns/memory_view.h"
#include "compiler/patterns/recurrence_stack.h"
#include "compiler/patterns/row_chain.h"
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

// Chains that are not worth a kernel of their own, since all of their reductions would join
// contractions that make what they read: maps of these results are left, which read memory once. A
// chain along places that lie together is worth one: it reads memory once as well, and burdens no
// contraction.
class JoinedElsewhere {
 public:
  JoinedElsewhere(const Graph& g, const Target& target)
      : g_(g), target_(target), producers_(graph::Producers(g)), is_member_(g.nodes.size(), 0) {}

  bool All(const std::vector<NodeId>& members) {
    for (const NodeId n : members) is_member_[n] = 1;
    const bool all = std::ranges::all_of(members, [&](NodeId n) {
      const Node& node = g_.nodes[n];
      if (!Has(node, graph::kReduction)) return true;
      return !LieTogether(g_[node.inputs[0]], g_[node.outputs[0]].dims) && Joins(node);
    });
    for (const NodeId n : members) is_member_[n] = 0;
    return all;
  }

 private:
  // The places that become one element of a result.
  static bool LieTogether(const Tensor& x, const Dims& result) {
    int64_t next = 1;
    const Dims order = MemoryOrder(x.strides);
    for (size_t i = order.size(); i-- > 0;) {
      const auto d = static_cast<size_t>(order[i]);
      if (x.dims[d] == 1 || result[d] != 1) continue;
      if (x.strides[d] != next) return false;
      next *= x.dims[d];
    }
    return true;
  }
  // It reads a contraction's result, or maps of one, place by place, which follow from no
  // reduction. A contraction's group has so many nodes at most, so that those before them need no
  // look.
  bool Joins(const Node& reduce) const {
    std::set<TensorId> seen = {reduce.inputs[0]};
    std::vector<TensorId> pending = {reduce.inputs[0]};
    while (!pending.empty() && seen.size() <= kMostGroupNodes) {
      const TensorId x = pending.back();
      pending.pop_back();
      const NodeId n = producers_[x];
      if (n < 0) continue;
      const Node& node = g_.nodes[n];
      if (Has(node, graph::kContraction)) {
        if (JoinsContraction(g_, node, g_[reduce.outputs[0]].dims, target_)) return true;
        continue;
      }
      if (node.op != GraphOp::kMap || FollowsFromReduction(node, x)) continue;
      for (const TensorId y : node.inputs)
        if (g_[y].dims == g_[x].dims && seen.insert(y).second) pending.push_back(y);
    }
    return false;
  }
  bool FollowsFromReduction(const Node& map, TensorId x) const {
    return std::ranges::any_of(map.inputs, [&](TensorId y) {
      return producers_[y] >= 0 && is_member_[producers_[y]] != 0 && g_[y].dims != g_[x].dims;
    });
  }

  const Graph& g_;
  const Target& target_;
  const std::vector<NodeId> producers_;
  std::vector<char> is_member_;  // of the chain at hand
};

// Products that need nothing of one another, as many in one as a launch has room for: its arguments
// may have 4 KB, and a tensor map takes 128 bytes of them. Where there are more, launches have
// about as many each. What others make of the graph's tensors on its way is a product of its own.
void AddProducts(const Graph& g, std::vector<FusedPattern>& all) {
  constexpr size_t kMostMaps = 26;
  if (std::ranges::count(g.nodes, GraphOp::kMatmul, &Node::op) < 2) return;
  const std::vector<NodeId> producers = graph::Producers(g);
  std::vector<GroupedProduct> products = FindGroupedProducts(g);
  std::erase_if(products, [&](const GroupedProduct& product) {
    return !PlaceInMemory(g, producers, product.left) ||
           !std::ranges::all_of(product.rights, [&](TensorId x) {
             return PlaceInMemory(g, producers, x).has_value();
           });
  });
  if (products.size() < 2) return;
  // A map of each part of a product's operands, of its result and of what is added to it.
  std::vector<size_t> maps;
  std::set<TensorId> lefts;
  for (const GroupedProduct& product : products)
    maps.push_back(2 + product.rights.size() +
                   (lefts.insert(product.left).second ? product.rights.size() : 0));
  const size_t sum = std::accumulate(maps.begin(), maps.end(), size_t{0});
  const size_t share = CeilDiv(sum, CeilDiv(sum, kMostMaps));
  for (size_t begin = 0; begin < products.size();) {
    FusedPattern pattern{GroupKind::kProducts, g[products[begin].result.stored].dims, {}};
    for (size_t held = 0;
         begin < products.size() && held < share && held + maps[begin] <= kMostMaps; ++begin) {
      held += maps[begin];
      std::ranges::copy(products[begin].members, std::back_inserter(pattern.members));
    }
    std::ranges::sort(pattern.members);
    all.push_back(std::move(pattern));
  }
}

// Tensors that a pattern reads, also by maps that float before it; `in_patterns` are no such maps.
std::set<TensorId> ReadBy(const Graph& g, const std::vector<NodeId>& producers,
                          const std::vector<char>& in_patterns, const FusedPattern& pattern) {
  std::set<TensorId> read;
  std::vector<NodeId> pending = pattern.members;
  while (!pending.empty()) {
    const Node& node = g.nodes[pending.back()];
    pending.pop_back();
    for (const TensorId x : node.inputs) {
      if (x == kAbsent || !read.insert(x).second) continue;
      const NodeId from = producers[x];
      if (from >= 0 && in_patterns[from] == 0 && g.nodes[from].op == GraphOp::kMap)
        pending.push_back(from);
    }
  }
  return read;
}

}  // namespace

std::vector<FusedPattern> FindFusedPatterns(const Graph& g, const Target& target) {
  std::vector<FusedPattern> all;
  for (Attention& a : FindAttention(g))
    all.push_back({GroupKind::kAttention, g[a.result].dims, std::move(a.members)});
  for (AttentionGrad& a : FindAttentionGrad(g))
    all.push_back({GroupKind::kAttention, g[a.dq].dims, std::move(a.members)});
  for (RecurrenceStack& stack : FindRecurrenceStacks(g)) {
    const TensorId last = g.nodes[stack.stages.back()].outputs[0];
    all.push_back({GroupKind::kRecurrence, g[last].dims, std::move(stack.members)});
  }
  AddProducts(g, all);
  JoinedElsewhere joined(g, target);
  for (RowChain& chain : FindRowChains(g)) {
    if (joined.All(chain.members)) continue;
    if (!chain.columns.empty()) {
      all.push_back({GroupKind::kRows, chain.domain, chain.members});
      std::vector<NodeId>& members = all.back().members;
      members.insert(members.end(), chain.columns.begin(), chain.columns.end());
      std::ranges::sort(members);
    }
    if (chain.stands_alone)
      all.push_back({GroupKind::kRows, std::move(chain.domain), std::move(chain.members)});
  }
  return all;
}

std::set<NodeId> UnpackedForChains(const Graph& g, const std::vector<FusedPattern>& all) {
  const auto consumers = graph::Consumers(g);
  const auto producers = graph::Producers(g);
  std::map<TensorId, NodeId> views;  // by the last tensor of each
  for (const Node& node : g.nodes) {
    if (node.op != GraphOp::kMap || node.As<graph::MapAttrs>().op != ScalarOp::kBit) continue;
    TensorId t = node.outputs[0];
    NodeId view = -1;
    while (consumers[t].size() == 1 && Has(g.nodes[consumers[t][0]], graph::kView)) {
      view = consumers[t][0];
      t = g.nodes[view].outputs[0];
    }
    if (view >= 0 && g[t].is_virtual) views[t] = view;
  }
  std::set<NodeId> unpacked;
  if (views.empty()) return unpacked;
  std::vector<char> in_patterns(g.nodes.size(), 0);
  for (const FusedPattern& pattern : all)
    for (const NodeId n : pattern.members) in_patterns[n] = 1;
  for (const FusedPattern& pattern : all) {
    if (pattern.kind != GroupKind::kRows) continue;
    for (const TensorId t : ReadBy(g, producers, in_patterns, pattern)) {
      const auto view = views.find(t);
      if (view != views.end() && g[t].dims == pattern.domain) unpacked.insert(view->second);
    }
  }
  return unpacked;
}

std::vector<size_t> Disjoint(const std::vector<FusedPattern>& all, const std::vector<char>& dropped,
                             size_t nodes) {
  std::vector<char> taken(nodes, 0);
  std::vector<size_t> chosen;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<NodeId>& members = all[i].members;
    if (dropped[i] != 0 || std::ranges::any_of(members, [&](NodeId n) { return taken[n] != 0; }))
      continue;
    for (const NodeId n : members) taken[n] = 1;
    chosen.push_back(i);
  }
  return chosen;
}

}  // namespace kiln::compiler
