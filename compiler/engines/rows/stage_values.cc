#include "compiler/engines/rows/stage_values.h"

#include <algorithm>

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;

ValueScope RowScope(const RowsFrame& f, const RowsTotals& totals, const RowsTile& tile, Block& out,
                    const Row& row) {
  const graph::Graph& g = f.graph();
  ValueScope values(f.b, out);
  for (const auto& [id, regs] : tile.inputs) {
    const Expr value = tile::Load(regs, g[id].dtype, row.slot);
    values.Bind(id, BroadcastIndex(f.b, g[id], row.kept),
                tile::Cast(ArithmeticType(g[id].dtype), value));
  }
  for (const auto& [r, total] : totals.registers()) {
    const TensorId result = f.reduce(r).outputs[0];
    values.Bind(result, BroadcastIndex(f.b, g[result], row.kept),
                RoundThrough(g[result].dtype, totals.Of(r, row.slot)));
  }
  return values;
}

RowValues RowValuesFor(const RowsFrame& f, const RowsTotals& totals, const RowsTile& tile,
                       Block& out, const Row& row, const RowsPlan::Stage& stage) {
  const graph::Graph& g = f.graph();
  ValueScope values = RowScope(f, totals, tile, out, row);
  RowValues result;
  for (const TensorId id : stage.row_values) {
    const Expr value = values.Value(id, BroadcastIndex(f.b, g[id], row.kept));
    result.known.emplace_back(id, f.b.Let(out, g[id].name + "_row", value));
  }
  for (const graph::NodeId n : stage.quotients) {
    const TensorId id = g.nodes[n].inputs[1];
    const Expr value =
        tile::Cast(DType::kF32, values.Value(id, BroadcastIndex(f.b, g[id], row.kept)));
    // The reciprocal of the smallest numbers is none: numerator and denominator are scaled.
    const Expr is_tiny = tile::Lt(tile::Op(ScalarOp::kAbs, {value}), tile::Float(0x1p-100));
    const Expr scale =
        f.b.Let(out, "scale", tile::Select(is_tiny, tile::Float(0x1p64), tile::Float(1)));
    result.quotients.push_back(
        {n, scale, f.b.Let(out, "reciprocal", tile::Float(1) / (value * scale))});
  }
  return result;
}

StageLeaves FetchLeaves(const RowsFrame& f, const RowsTile& tile, Block& out,
                        const RowsPlan::Stage& stage, const Place& place) {
  StageLeaves leaves{.stage = stage, .held = tile.held, .others = {}};
  for (const TensorId leaf : stage.leaves) {
    if (tile.held.contains(leaf)) continue;
    const Tensor& t = f.graph()[leaf];
    const std::string& regs = leaves.others[leaf] = f.b.Name(t.name + "_r");
    out.push_back({tile::Alloc{regs, t.dtype, tile::Space::kReg, f.plan.lanes}});
    if (const auto ring = tile.ring.find(leaf); ring != tile.ring.end())
      WideCopy(out, t.dtype, regs, f.b.Idx(0), ring->second, tile.ring_at + place.in_ring,
               f.plan.lanes);
    else
      Fetch(f, out, leaf, place.index, regs, f.b.Idx(0));
  }
  return leaves;
}

void BindLeaves(const RowsFrame& f, Block& out, ValueScope& values, const StageLeaves& leaves,
                const RowValues& of_row, const Place& place, const Element& element) {
  const graph::Graph& g = f.graph();
  for (const auto& [id, value] : of_row.known)
    values.Bind(id, BroadcastIndex(f.b, g[id], element.index), value);
  for (const TensorId leaf : leaves.stage.leaves) {
    const Tensor& t = g[leaf];
    const auto other = leaves.others.find(leaf);
    const Expr loaded = other != leaves.others.end()
                            ? tile::Load(other->second, t.dtype, element.lane)
                            : tile::Load(leaves.held.at(leaf), t.dtype, place.slot + element.lane);
    values.Bind(leaf, BroadcastIndex(f.b, t, element.index),
                tile::Cast(ArithmeticType(t.dtype), loaded));
  }
  for (const RowValues::Quotient& q : of_row.quotients) {
    const graph::Node& quotient = g.nodes[q.node];
    const TensorId x = quotient.inputs[0], y = quotient.outputs[0];
    const Expr numerator =
        tile::Cast(DType::kF32, values.Value(x, BroadcastIndex(f.b, g[x], element.index)));
    const Expr value =
        f.b.Let(out, g[y].name + "_q", tile::Cast(g[y].dtype, numerator * q.scale * q.reciprocal));
    values.Bind(y, BroadcastIndex(f.b, g[y], element.index),
                tile::Cast(ArithmeticType(g[y].dtype), value));
  }
}

void EachChunk(const RowsFrame& f, const RowsTile& tile, Block& out, const RowsPlan::Stage& stage,
               const std::function<void(Block&, const Expr&, const RowsTile&)>& emit) {
  if (!f.shape.streams) return emit(out, f.b.Idx(0), tile);
  const std::string var = f.b.Name("chunk");
  Block body;
  std::vector<TensorId> needed = f.plan.held;
  std::erase_if(needed, [&](TensorId id) {
    return std::ranges::find(stage.leaves, id) == stage.leaves.end();
  });
  const Expr chunk = tile::Var(var, f.b.index_type());
  RowsTile of_chunk = tile;
  Hold(f, body, needed, chunk, of_chunk);
  emit(body, chunk, of_chunk);
  const Expr chunks = CeilDivExpr(f.vectors, int64_t{f.shape.vectors} * f.shape.team);
  out.push_back({tile::For{var, f.b.index_type(), chunks, tile::Bind::kSerial, std::move(body)}});
}

}  // namespace kiln::compiler
