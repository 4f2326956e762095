#include "compiler/kernel/lane_access.h"

#include <algorithm>

#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;

namespace {

bool MovesWide(const Tensor& t, int lanes) {
  const int64_t bytes = std::min<int64_t>(16, int64_t{lanes} * SizeOf(t.dtype));
  if (t.rank() < 2 || t.alignment % bytes != 0 || t.dims[1] % lanes != 0) return false;
  for (int64_t d = 0; d < t.rank(); ++d)
    if (d != 1 && t.dims[d] != 1 && t.strides[d] % lanes != 0) return false;
  return true;
}

}  // namespace

LaneAccess::LaneAccess(const Group& group, std::vector<TensorId> roots, TensorId bound, int lanes)
    : roots_(std::move(roots)),
      bound_(bound),
      lanes_(lanes),
      wide_(lanes > 1 && (lanes & (lanes - 1)) == 0) {
  const graph::Graph& g = group.graph;
  std::vector<char> seen(g.tensors.size());
  for (TensorId id : roots_) {
    wide_ = wide_ && g[id].rank() == g[roots_[0]].rank() && Gather(group, id, seen);
    // Roots that are stored must be contiguous to be stored wide.
    if (bound_ >= 0 && WalkOf(g[id], 1) != Walk::kBroadcast)
      wide_ = wide_ && WalkOf(g[id], 1) == Walk::kContiguous && MovesWide(g[id], lanes);
  }
  for (TensorId id : leaves_) {
    if (g[id].rank() != g[roots_[0]].rank()) wide_ = false;
    if (!wide_) break;
    if (WalkOf(g[id], 1) == Walk::kContiguous) wide_ = MovesWide(g[id], lanes);
  }
}

// The leaves in memory below `id`; false where something else than a map stands between.
bool LaneAccess::Gather(const Group& group, TensorId id, std::vector<char>& seen) {
  if (id == bound_ || id == graph::kAbsent || seen[id] != 0) return true;
  seen[id] = 1;
  const Tensor& t = group.graph[id];
  const graph::NodeId producer = graph::Producers(group.graph)[id];
  if (producer < 0) {
    if (!t.by_value) leaves_.push_back(id);
    return true;
  }
  const graph::Node& node = group.graph.nodes[producer];
  if (node.op != graph::GraphOp::kMap) return false;
  return std::ranges::all_of(node.inputs,
                             [&](TensorId input) { return Gather(group, input, seen); });
}

void LaneAccess::Read(KernelBuilder& b, Block& out, const Index& at, const std::string& buffer,
                      const Expr& slot, DType type) const {
  const TensorId id = roots_[0];
  const Tensor& t = b.graph()[id];
  const bool in_memory = leaves_.size() == 1 && leaves_[0] == id;
  if (wide_ && in_memory && t.dtype == type && WalkOf(t, 1) == Walk::kContiguous) {
    WideCopy(out, type, buffer, slot, b.Pointer(id), b.Let(out, "from", b.Offset(id, at)), lanes_);
    return;
  }
  LaneLoop loop(b, out, wide_ ? leaves_ : std::vector<TensorId>{}, at, 1, lanes_);
  loop.body().push_back({tile::Store{buffer, slot + loop.lane(),
                                     tile::Cast(type, loop.values().Value(id, loop.index()))}});
  loop.Close();
}

void LaneAccess::Write(KernelBuilder& b, Block& out, const Index& at,
                       const std::function<Expr(const Expr& lane)>& value) const {
  const graph::Graph& g = b.graph();
  // Maps read the bound tensor at 0 along dims of one element.
  const Index place = BroadcastIndex(b, g[bound_], at);
  LaneLoop loop(b, out, wide_ ? leaves_ : std::vector<TensorId>{}, place, 1, lanes_);
  loop.values().Bind(bound_, loop.index(), RoundThrough(g[bound_].dtype, value(loop.lane())));
  if (wide_) return StoreLanes(b, out, loop, roots_, place, 1, lanes_);
  for (TensorId id : roots_) {
    loop.body().push_back(
        {tile::Store{b.Pointer(id), b.Offset(id, loop.index()),
                     tile::Cast(g[id].dtype, loop.values().Value(id, loop.index()))}});
  }
  loop.Close();
}

}  // namespace kiln::compiler
