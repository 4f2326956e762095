#include "compiler/engines/rows/operands.h"

#include <algorithm>

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;

void AllocHeld(const RowsFrame& f, Block& out, const std::vector<TensorId>& leaves, Arrays& held) {
  for (const TensorId leaf : leaves) {
    const Tensor& t = f.graph()[leaf];
    held[leaf] = f.b.Name(t.name + "_r");
    out.push_back({tile::Alloc{held[leaf], t.dtype, tile::Space::kReg, f.HeldElements()}});
  }
}

void ReadHeld(const RowsFrame& f, Block& out, const Expr& tile, const std::vector<TensorId>& leaves,
              const Expr& chunk, const Arrays& held) {
  EachRow(f, out, tile, [&](Block& of_row, const Row& row) {
    EachVector(f, of_row, row, chunk, [&](Block& body, const Place& place) {
      for (const TensorId leaf : leaves)
        Fetch(f, body, leaf, place.index, held.at(leaf), place.slot);
    });
  });
}

void Hold(const RowsFrame& f, Block& out, const std::vector<TensorId>& leaves, const Expr& chunk,
          RowsTile& tile) {
  AllocHeld(f, out, leaves, tile.held);
  ReadHeld(f, out, tile.number, leaves, chunk, tile.held);
}

void Fetch(const RowsFrame& f, Block& out, TensorId leaf, const Index& index,
           const std::string& regs, const Expr& slot) {
  FetchLanes(f.b, out, leaf, index, f.plan.row.inner, f.plan.lanes, regs, slot);
}

Arrays AllocRowInputs(const RowsFrame& f, Block& out) {
  Arrays inputs;
  const graph::Graph& g = f.graph();
  for (const TensorId id : MemoryInputs(g)) {
    const Tensor& t = g[id];
    const bool is_row_value =
        t.rank() == g[f.plan.row.input].rank() && NumElements(t.dims) == f.plan.row.rows &&
        std::ranges::all_of(f.plan.row.reduced, [&](int64_t d) { return t.dims[d] == 1; });
    if (!is_row_value) continue;
    inputs[id] = f.b.Name(t.name + "_of_row");
    out.push_back({tile::Alloc{inputs[id], t.dtype, tile::Space::kReg, f.shape.rows}});
  }
  return inputs;
}

void ReadRowInputs(const RowsFrame& f, Block& out, const Expr& tile, const Arrays& inputs) {
  EachRow(f, out, tile, [&](Block& of_row, const Row& row) {
    for (const auto& [id, regs] : inputs) {
      const Tensor& t = f.graph()[id];
      const Expr at = f.b.Offset(id, BroadcastIndex(f.b, t, row.kept));
      of_row.push_back({tile::Store{regs, row.slot, tile::Load(f.b.Pointer(id), t.dtype, at)}});
    }
  });
}

void MoveRowInputs(const RowsFrame& f, Block& out, const Expr& tile, const Arrays& inputs,
                   const Arrays& next) {
  EachRow(f, out, tile, [&](Block& of_row, const Row& row) {
    for (const auto& [id, regs] : inputs)
      of_row.push_back(
          {tile::Store{regs, row.slot, tile::Load(next.at(id), f.graph()[id].dtype, row.slot)}});
  });
}

void CopyVector(const RowsFrame& f, Block& out, const Arrays& ring, const Expr& base,
                const Row& row, const Place& place) {
  Index index = place.index;
  for (const int64_t d : f.plan.row.kept) index[d] = row.kept[d];
  for (const TensorId leaf : f.plan.held)
    out.push_back(
        {tile::CopyAsync{ring.at(leaf), base + place.in_ring, f.b.Pointer(leaf),
                         f.b.Offset(leaf, index), f.plan.lanes, tile::Lt(row.number, f.count)}});
}

void CopyToRing(const RowsFrame& f, Block& out, const Arrays& ring, const Expr& tile,
                const Expr& slot) {
  const Expr base = f.b.Let(out, "ring_to", slot * f.b.Idx(f.plan.row.length));
  EachRow(f, out, tile, [&](Block& of_row, const Row& row) {
    EachVector(f, of_row, row, f.b.Idx(0), [&](Block& body, const Place& place) {
      CopyVector(f, body, ring, base, row, place);
    });
  });
  out.push_back({tile::CommitAsync{}});
}

}  // namespace kiln::compiler
