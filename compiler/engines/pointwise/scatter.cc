#include "compiler/engines/pointwise/scatter.h"

#include <functional>

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;

const Node* LastIf(const graph::Graph& g, GraphOp op) {
  const Node& last = g.nodes.back();
  return last.op == op ? &last : nullptr;
}

// Writes if (0 <= place and place < n) { store(at) }, where `place` is one along dim `axis` of y.
void WhereInside(KernelBuilder& b, Block& out, const Expr& place, TensorId y, int64_t axis,
                 Index at, const std::function<tile::Stmt(const Index&)>& store) {
  const DType wide = place->type;
  const Expr extent = tile::Cast(wide, b.Extent(y, axis));
  at[static_cast<size_t>(axis)] = tile::Cast(b.index_type(), place);
  Block inside;
  inside.push_back(store(at));
  const Expr condition =
      tile::Op(ScalarOp::kAnd, {tile::Ge(place, tile::Int(0, wide)), tile::Lt(place, extent)});
  out.push_back({tile::If{condition, std::move(inside), {}}});
}

// Stores what y holds before anything is added.
void StoreBefore(KernelBuilder& b, Block& out, const Node& node, const Index& index) {
  const TensorId before = node.inputs[0], y = node.outputs[0];
  ValueScope values(b, out);
  const Expr value = values.Value(before, BroadcastIndex(b, b.graph()[before], index));
  out.push_back(
      {tile::Store{b.Pointer(y), b.Offset(y, index), tile::Cast(b.graph()[y].dtype, value)}});
}

// All additions of one place of x; what they share is computed once, before the first.
void AddAtPlaces(KernelBuilder& b, Block& out, const Node& node, const Index& index) {
  const TensorId y = node.outputs[0];
  const int64_t axis = node.As<graph::ScatterAddAttrs>().axis;
  struct Pair {
    Expr value, place;
  };
  std::vector<Pair> pairs;
  ValueScope values(b, out);
  for (size_t k = 1; k < node.inputs.size(); k += 2) {
    const TensorId x = node.inputs[k], table = node.inputs[k + 1];
    const Expr value = tile::Cast(b.graph()[y].dtype, values.Value(x, index)),
               place = values.Value(table, BroadcastIndex(b, b.graph()[table], index));
    pairs.push_back({b.Let(out, "value", value), b.Let(out, "place", place)});
  }
  for (const Pair& pair : pairs) {
    WhereInside(b, out, pair.place, y, axis, BroadcastIndex(b, b.graph()[y], index),
                [&](const Index& at) {
                  return tile::Stmt{tile::AtomicAdd{b.Pointer(y), b.Offset(y, at), pair.value}};
                });
  }
}

}  // namespace

const Node* ScatterOf(const graph::Graph& g) { return LastIf(g, GraphOp::kScatter); }
const Node* ScatterAddOf(const graph::Graph& g) { return LastIf(g, GraphOp::kScatterAdd); }

void StoreScattered(KernelBuilder& b, Block& out, const Node& scatter, const Index& index) {
  ValueScope values(b, out);
  const TensorId y = scatter.outputs[0];
  const Expr value = values.Value(scatter.inputs[0], index);
  const Expr place = values.Value(scatter.inputs[1], index);
  WhereInside(b, out, place, y, 0, Index(b.graph()[y].dims.size(), b.Idx(0)), [&](const Index& at) {
    return tile::Stmt{
        tile::Store{b.Pointer(y), b.Offset(y, at), tile::Cast(b.graph()[y].dtype, value)}};
  });
}

Lowered LowerScatterAdd(const Group& group, const Target& target, int threads, const Share& share) {
  const Node& node = *ScatterAddOf(group.graph);
  using Element = void (*)(KernelBuilder&, Block&, const Node&, const Index&);
  Lowered lowered;
  const auto lower = [&](const char* what, TensorId walked, const Share& each, tile::Bind bind,
                         Element element) {
    const std::string how = target.is_cuda() ? ", " + Text(each) : "";
    KernelBuilder b(group, target, fmt::format("pointwise, {}{}", what, how));
    const auto emit = [&](Block& out, const Index& index) { element(b, out, node, index); };
    Append(lowered,
           target.is_cuda()
               ? LowerByElements(b, walked, threads, each, emit)
               : LowerByChunks(b, walked, MemoryOrder(group.graph[walked].strides), bind, emit));
  };
  lower("what a sum at computed places starts from", node.outputs[0], {}, tile::Bind::kVector,
        StoreBefore);
  lower("sums at computed places", node.inputs[1], share, tile::Bind::kSerial, AddAtPlaces);
  return lowered;
}

}  // namespace kiln::compiler
