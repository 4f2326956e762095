// The last stage: wide results of each vector, then results that a row has one of.
#include <optional>

#include "compiler/engines/rows/stages.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Block;
using tile::Expr;

// Registers of the wide results that go out as vectors.
Arrays AllocResults(const RowsFrame& f, Block& out) {
  const graph::Graph& g = f.graph();
  Arrays results;
  for (const TensorId y : f.plan.wide_outputs) {
    if (f.plan.lanes == 1 || WalkOf(g[y], f.plan.row.inner) != Walk::kContiguous) continue;
    results[y] = f.b.Name(g[y].name + "_w");
    out.push_back({tile::Alloc{results[y], g[y].dtype, tile::Space::kReg, f.plan.lanes}});
  }
  return results;
}

void StoreVector(const RowsFrame& f, const RowsTile& tile, Block& out, const RowsPlan::Stage& stage,
                 const RowValues& of_row, const Place& place, RowsColumns* columns) {
  const graph::Graph& g = f.graph();
  const StageLeaves leaves = FetchLeaves(f, tile, out, stage, place);
  const Arrays results = AllocResults(f, out);
  EachLane(f, out, place.index, [&](Block& body, const Element& element) {
    ValueScope values(f.b, body);
    BindLeaves(f, body, values, leaves, of_row, place, element);
    for (const TensorId y : f.plan.wide_outputs) {
      const Index of_y = BroadcastIndex(f.b, g[y], element.index);
      const Expr value = tile::Cast(g[y].dtype, values.Value(y, of_y));
      const auto result = results.find(y);
      if (result == results.end())
        body.push_back({tile::Store{f.b.Pointer(y), f.b.Offset(y, of_y), value}});
      else
        body.push_back({tile::Store{result->second, element.lane, value}});
    }
    if (columns != nullptr) columns->Add(body, values, element.index, place.column + element.lane);
  });
  for (const auto& [y, regs] : results) {
    const Expr to = f.b.Let(out, g[y].name + "_at", f.b.Offset(y, place.index));
    WideCopy(out, g[y].dtype, f.b.Pointer(y), to, regs, f.b.Idx(0), f.plan.lanes);
  }
}

// Results that a row has one of: the first thread of its team stores them.
void StoreRowValues(const RowsFrame& f, const RowsTotals& totals, const RowsTile& tile,
                    Block& of_row, const Row& row) {
  Block inside;
  ValueScope values = RowScope(f, totals, tile, inside, row);
  for (const TensorId y : f.plan.row_outputs) {
    const graph::Tensor& t = f.graph()[y];
    const Index at = BroadcastIndex(f.b, t, row.kept);
    inside.push_back(
        {tile::Store{f.b.Pointer(y), f.b.Offset(y, at), tile::Cast(t.dtype, values.Value(y, at))}});
  }
  Block by_one;
  by_one.push_back(
      {tile::If{tile::Op(ScalarOp::kEq, {f.lane, f.b.Idx(0)}), std::move(inside), {}}});
  IfExists(f, of_row, row, std::move(by_one));
}

}  // namespace

void StoreStage(const RowsFrame& f, const RowsTotals& totals, Block& out, const RowsTile& tile,
                const RowsPlan::Stage& stage, RowsColumns* columns) {
  EachChunk(f, tile, out, stage,
            [&](Block& of_chunk, const Expr& chunk, const RowsTile& with_chunk) {
              EachRow(f, of_chunk, tile.number, [&](Block& of_row, const Row& row) {
                const RowValues values = RowValuesFor(f, totals, with_chunk, of_row, row, stage);
                Block inside;
                std::optional<Row> next;
                if (f.refills()) {
                  const Expr next_tile = f.b.Let(inside, "next", tile.number + f.blocks);
                  next = RowOf(f, inside, next_tile, row.slot);
                }
                EachVector(f, inside, row, chunk, [&](Block& of_vector, const Place& place) {
                  StoreVector(f, with_chunk, of_vector, stage, values, place, columns);
                  if (next) CopyVector(f, of_vector, tile.ring, f.b.Idx(0), *next, place);
                });
                IfExists(f, of_row, row, std::move(inside));
              });
            });
  if (f.plan.row_outputs.empty()) return;
  EachRow(f, out, tile.number,
          [&](Block& of_row, const Row& row) { StoreRowValues(f, totals, tile, of_row, row); });
}

}  // namespace kiln::compiler
