// The reads of a place of a segment.
#include <algorithm>

#include "compiler/engines/segments/kernels.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

namespace {

Expr Inside(const Expr& at, const Expr& extent) {
  return tile::Op(ScalarOp::kAnd, {tile::Ge(at, tile::Int(0, at->type)), tile::Lt(at, extent)});
}

// min(max(at, 0), extent - 1), as an index.
Expr Clamped(const KernelBuilder& b, const Expr& at, const Expr& extent) {
  const Expr positive = tile::Op(ScalarOp::kMax, {at, tile::Int(0, at->type)});
  return tile::Cast(b.index_type(),
                    tile::Op(ScalarOp::kMin, {positive, extent - tile::Int(1, at->type)}));
}

}  // namespace

Expr ListElement(KernelBuilder& b, Block& out, TensorId list, const Expr& i) {
  Index index(b.graph()[list].dims.size(), b.Idx(0));
  index[0] = i;
  ValueScope values(b, out);
  return values.Value(list, BroadcastIndex(b, b.graph()[list], index));
}

SegmentRow::SegmentRow(KernelBuilder& b, Block& out, const Node& node, const Expr& place,
                       const Index& index, int lanes)
    : b_(b),
      x_(node.inputs[0]),
      producers_(graph::Producers(b.graph())),
      lanes_(lanes),
      index_(index) {
  index_[0] = place;
  if (NumElements(b.graph()[x_].dims) == 0) {
    inside_ = tile::Bool(false);
    return;
  }
  if (const TensorId rows = RowsOf(node); rows != graph::kAbsent) {
    const Expr row = b.Let(out, "row", ListElement(b, out, rows, place));
    const Expr extent = tile::Cast(row->type, b.Extent(x_, 0));
    inside_ = b.Let(out, "has_row", Inside(row, extent));
    index_[0] = b.Let(out, "at_row", Clamped(b, row, extent));
  }
  index_ = BroadcastIndex(b, b.graph()[x_], index_);
  if (lanes > 1) Prefetch(out, x_);
}

// True if its neighbours along the innermost dim lie side by side, one for each lane.
bool SegmentRow::is_wide(TensorId tensor) const {
  const Tensor &t = b_.graph()[tensor], &x = b_.graph()[x_];
  return producers_[static_cast<size_t>(tensor)] < 0 && !t.by_value && !t.is_constant() &&
         t.rank() == x.rank() && t.dims.back() == x.dims.back() && t.strides.back() == 1;
}

// Walks what x is computed from, as far as it is asked at x's own index.
void SegmentRow::Prefetch(Block& out, TensorId tensor) {
  const Tensor& t = b_.graph()[tensor];
  const graph::NodeId producer = producers_[static_cast<size_t>(tensor)];
  if (t.by_value || t.is_constant()) return;
  for (const Bound& known : bound_)
    if (known.tensor == tensor) return;
  if (t.rank() == 0 || t.dims.back() == 1) {  // the same for all lanes
    ValueScope values(b_, out);
    const Expr value = values.Value(tensor, BroadcastIndex(b_, t, index_));
    bound_.push_back({tensor, "", b_.Let(out, t.name + "_u", value)});
    return;
  }
  if (is_wide(tensor)) {
    bound_.push_back(
        {tensor, LoadVector(b_, out, tensor, BroadcastIndex(b_, t, index_), lanes_), {}});
    return;
  }
  if (producer < 0) return;
  const Node& node = b_.graph().nodes[static_cast<size_t>(producer)];
  if (node.op == GraphOp::kMap)
    for (const TensorId operand : node.inputs) Prefetch(out, operand);
  if (node.op == GraphOp::kGather) PrefetchGather(out, node);
}

// Rows of memory that a table names: one wide copy each, and zeroes where the table names none.
void SegmentRow::PrefetchGather(Block& out, const Node& gather) {
  const TensorId from = gather.inputs[0], table = gather.inputs[1], y = gather.outputs[0];
  const int64_t axis = gather.As<graph::GatherAttrs>().axis;
  const Tensor& t = b_.graph()[from];
  const bool same = t.dtype == b_.graph()[y].dtype && b_.graph()[table].dims.back() == 1;
  if (!same || !is_wide(from) || axis + 1 >= t.rank() || NumElements(t.dims) == 0) return;
  ValueScope values(b_, out);
  const Expr place =
      b_.Let(out, "place", values.Value(table, BroadcastIndex(b_, b_.graph()[table], index_)));
  const Expr extent = tile::Cast(place->type, b_.Extent(from, axis));
  Index source = BroadcastIndex(b_, t, index_);
  source[static_cast<size_t>(axis)] = b_.Let(out, "at_place", Clamped(b_, place, extent));
  const std::string registers = LoadVector(b_, out, from, source, lanes_);
  const std::string lane = b_.Name("l");
  Block zero, loop;
  zero.push_back({tile::Store{
      registers, tile::Var(lane, b_.index_type()),
      tile::Cast(t.dtype, tile::Cast(ArithmeticType(t.dtype), tile::Float(0, DType::kF32)))}});
  loop.push_back(
      {tile::For{lane, b_.index_type(), b_.Idx(lanes_), Bind::kUnroll, std::move(zero)}});
  late_.push_back(
      {tile::If{tile::Op(ScalarOp::kNot, {Inside(place, extent)}), std::move(loop), {}}});
  bound_.push_back({y, registers, {}});
}

void SegmentRow::Settle(Block& out) {
  std::ranges::move(late_, std::back_inserter(out));
  late_.clear();
}

Index SegmentRow::LaneIndex(const Expr& lane) const {
  Index at = index_;
  if (at.size() > 1) at.back() = at.back() + lane;
  return BroadcastIndex(b_, b_.graph()[x_], at);
}

Expr SegmentRow::Value(Block& out, const Expr& lane) {
  const Tensor& x = b_.graph()[x_];
  const DType type = ArithmeticType(x.dtype);
  const Expr zero = tile::Cast(type, tile::Float(0, DType::kF32));
  if (NumElements(x.dims) == 0) return zero;
  const Index at = LaneIndex(lane);
  ValueScope values(b_, out);
  for (const Bound& bound : bound_) {
    const Tensor& t = b_.graph()[bound.tensor];
    const Expr value =
        bound.registers.empty()
            ? bound.value
            : tile::Cast(ArithmeticType(t.dtype), tile::Load(bound.registers, t.dtype, lane));
    values.Bind(bound.tensor, BroadcastIndex(b_, t, at), value);
  }
  const Expr value = values.Value(x_, at);
  return inside_ ? tile::Select(inside_, value, zero) : value;
}

}  // namespace kiln::compiler
