#include "compiler/engines/window/nest_places.h"

#include <algorithm>
#include <limits>

namespace kiln::compiler {

using graph::Node;
using graph::PaddingTap;
using graph::TensorId;
using tile::Block;
using tile::Expr;

// The element at offset 0 of a tensor of that scale.
const Expr& NestPlaces::Base(Block& out, size_t axis, int scale) {
  Expr& base = bases_[{axis, scale}];
  if (!base) base = b_.Let(out, "from", tile_at_[nest_.axes[axis].dim] * b_.Idx(scale));
  return base;
}

Index NestPlaces::IndexOf(Block& out, TensorId id, const Place& at) {
  Index index = tile_at_;
  for (size_t k = 0; k < at.size(); ++k) {
    const Expr& base = Base(out, k, nest_.scales.at(id)[k]);
    index[nest_.axes[k].dim] = at[k] == 0 ? base : base + b_.Idx(at[k]);
  }
  for (size_t d = 0; d < index.size(); ++d)
    if (g_[id].dims[d] == 1) index[d] = b_.Idx(0);
  return index;
}

Expr NestPlaces::Inside(Block& out, TensorId id, const Place& at, int count) {
  Expr inside;
  for (size_t k = 0; k < at.size(); ++k) {
    const int64_t d = nest_.axes[k].dim, extent = g_[id].dims[d];
    if (extent == 1) continue;
    const Expr here = InsideAxis(out, id, k, at[k], k == inner() ? count : 1);
    if (here) inside = inside ? tile::And(inside, here) : here;
  }
  if (!inside || inside->kind == tile::ExprKind::kVar) return inside;
  Expr& known = inside_[{id, at}];
  if (!known) known = b_.Let(out, "exists", inside);
  return known;
}

Expr NestPlaces::InsideAxis(Block& out, TensorId id, size_t k, int offset, int count) {
  const int64_t d = nest_.axes[k].dim, extent = g_[id].dims[d];
  const int scale = nest_.scales.at(id)[k];
  const int64_t tiles = CeilDiv(g_[lead_].dims[d], int64_t{nest_.axes[k].tile});
  Expr& known = inside_axis_[{k, scale, offset, extent}];
  if (known) return known;
  const Expr at = Base(out, k, scale) + b_.Idx(offset);
  Expr inside;
  if (offset < 0) inside = tile::Ge(at, b_.Idx(0));
  if ((tiles - 1) * scale + offset + count > extent) {
    const Expr below = tile::Lt(at, b_.Extent(id, d));
    inside = inside ? tile::And(inside, below) : below;
  }
  if (inside) known = b_.Let(out, "inside", inside);
  return known;
}

double PaddingValueOf(const Node& window) {
  const PaddingTap padding = graph::PaddingTapOf(window.As<graph::ResampleAttrs>());
  const bool lowest = IsForward(window) && (padding == PaddingTap::kNegInf ||
                                            (IsMax(window) && padding == PaddingTap::kSkipped));
  return lowest ? -std::numeric_limits<double>::infinity() : 0;
}

std::optional<double> PaddingOf(const graph::Graph& g, TensorId id) {
  const DType type = g[id].dtype;
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16) return std::nullopt;
  std::optional<double> padding;
  for (const Node& node : g.nodes) {
    if (std::ranges::find(node.inputs, id) == node.inputs.end()) continue;
    if (!Has(node, graph::kWindow) || node.inputs[0] != id) return std::nullopt;
    const double value = PaddingValueOf(node);
    if (padding && *padding != value) return std::nullopt;
    padding = value;
  }
  return padding;
}

}  // namespace kiln::compiler
