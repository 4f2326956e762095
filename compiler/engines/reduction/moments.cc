#include "compiler/engines/reduction/moments.h"

#include <algorithm>
#include <cmath>

#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::NodeId;
using graph::TensorId;

// Finds add over mul(d, d), d = x - add over x / n.
class Moments {
 public:
  explicit Moments(const ReducePlan& row)
      : row_(row), g_(row.group.graph), producers_(graph::Producers(g_)) {}

  std::optional<Moment> Find(size_t r) const {
    const Node& reduce = g_.nodes[row_.reduces[r]];
    if (!IsSum(reduce)) return {};
    const Node* square = MapOf(reduce.inputs[0], ScalarOp::kMul, reduce.compute);
    if (square == nullptr || square->inputs[0] != square->inputs[1]) return {};
    const Node* distance = MapOf(square->inputs[0], ScalarOp::kSub, reduce.compute);
    if (distance == nullptr) return {};
    const Node* mean = MapOf(distance->inputs[1], ScalarOp::kDiv, reduce.compute);
    if (mean == nullptr || !IsLength(mean->inputs[1])) return {};
    const NodeId sum = producers_[mean->inputs[0]];
    if (sum < 0 || !IsSum(g_.nodes[sum]) || g_.nodes[sum].compute != reduce.compute ||
        g_[mean->inputs[0]].dtype != reduce.compute ||
        g_.nodes[sum].inputs[0] != distance->inputs[0])
      return {};
    const auto at = std::ranges::find(row_.reduces, sum);
    if (at == row_.reduces.end()) return {};
    return Moment{.sum = static_cast<size_t>(at - row_.reduces.begin()),
                  .mean = distance->inputs[1]};
  }

 private:
  static bool IsSum(const Node& node) {
    return node.op == GraphOp::kReduce &&
           node.As<graph::ReduceAttrs>().combine == graph::Combine::kAdd && IsFloat(node.compute);
  }
  // The map that makes a tensor, which rounds to nothing less than `compute`.
  const Node* MapOf(TensorId id, ScalarOp op, DType compute) const {
    const NodeId n = producers_[id];
    if (n < 0 || g_.nodes[n].op != GraphOp::kMap) return nullptr;
    const auto& map = g_.nodes[n].As<graph::MapAttrs>();
    const bool fits =
        !map.identity && map.op == op && g_.nodes[n].compute == compute && g_[id].dtype == compute;
    return fits ? &g_.nodes[n] : nullptr;
  }
  bool IsLength(TensorId id) const {
    return g_[id].is_constant() && *g_[id].value == static_cast<double>(row_.length);
  }

  const ReducePlan& row_;
  const Graph& g_;
  const std::vector<NodeId> producers_;
};

MomentPart JoinedTwo(KernelBuilder& b, tile::Block& out, const MomentPart& x, const MomentPart& y,
                     double elements) {
  const tile::Expr weight = tile::Float(std::sqrt(0.5 / elements), x.sum->type);
  const tile::Expr between = b.Let(out, "between", (x.sum - y.sum) * weight);
  return {b.Let(out, "joined", x.sum + y.sum),
          b.Let(out, "joined", x.moment + y.moment + between * between)};
}

}  // namespace

MomentPart Joined(KernelBuilder& b, tile::Block& out, std::vector<MomentPart> parts,
                  double elements) {
  for (; parts.size() > 1; elements *= 2) {
    for (size_t k = 0; k < parts.size() / 2; ++k)
      parts[k] = JoinedTwo(b, out, parts[2 * k], parts[2 * k + 1], elements);
    parts.resize(parts.size() / 2);
  }
  return parts[0];
}

MomentPart JoinedLanes(KernelBuilder& b, tile::Block& out, MomentPart part, int lanes,
                       double elements) {
  for (int mask = 1; mask < lanes; mask *= 2, elements *= 2) {
    const MomentPart other = {b.Let(out, "other", tile::ShuffleXor(part.sum, mask)),
                              b.Let(out, "other", tile::ShuffleXor(part.moment, mask))};
    part = JoinedTwo(b, out, part, other, elements);
  }
  return part;
}

bool IsShifted(const ReducePlan& row, size_t sum) {
  const Graph& g = row.group.graph;
  return g[g.nodes[row.reduces[sum]].inputs[0]].dtype == DType::kF32;
}

tile::Expr ShiftOf(KernelBuilder& b, tile::Block& out, const tile::Expr& element,
                   const tile::Expr& other) {
  // n * 2^64 is finite for any number n of elements, and the largest f32 absorbs 2^64.
  constexpr double kMost = 0x1p64;
  // Elements lie about a deviation apart: a mean of 16 deviations costs a sum four bits.
  constexpr double kMuchNearer = 16;
  const tile::Expr first = b.Let(out, "first", element),
                   size = b.Let(out, "size", tile::Op(ScalarOp::kAbs, {first})),
                   apart = tile::Op(ScalarOp::kAbs, {first - other});
  const tile::Expr is_far = tile::Lt(apart * tile::Float(kMuchNearer, first->type), size);
  return tile::Select(tile::And(is_far, tile::Lt(size, tile::Float(kMost, first->type))), first,
                      tile::Float(0, first->type));
}

Index OtherPlace(KernelBuilder& b, const ReducePlan& row, Index first) {
  for (const int64_t d : row.reduced) first[d] = b.Idx(1);
  return first;
}

tile::Expr Unshifted(const tile::Expr& sum, const tile::Expr& shift, const tile::Expr& elements) {
  return tile::Op(ScalarOp::kFma, {tile::Cast(sum->type, elements), shift, sum});
}

std::vector<std::optional<Moment>> MomentsOf(const ReducePlan& row) {
  const Moments moments(row);
  std::vector<std::optional<Moment>> all;
  for (size_t r = 0; r < row.reduces.size(); ++r) all.push_back(moments.Find(r));
  return all;
}

}  // namespace kiln::compiler
