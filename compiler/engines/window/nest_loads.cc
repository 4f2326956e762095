// The values of a nest that lie in memory: neighbours that a thread wants come by one copy.
#include <algorithm>

#include "compiler/engines/window/nest_places.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Block;
using tile::Expr;
using Place = WindowNest::Place;

// Neighbours of a tensor along the innermost axis, and which of them are wanted.
struct Row {
  TensorId id;
  Place first;
  int width;
  std::vector<int> lanes;
};

// Neighbours that one copy brings: a power of two to which every tile's first place is aligned.
int WidthOf(const graph::Graph& g, const WindowNest& nest, TensorId id) {
  const int64_t d = nest.axes.back().dim;
  if (g[id].dims[d] == 1 || WalkOf(g[id], d) != Walk::kContiguous) return 1;
  const int scale = nest.scales.at(id).back();
  int width = std::min(WidestVector(g, {id}, d), 16 / SizeOf(g[id].dtype));
  while (width > 1 && (scale % width != 0 || g[id].dims[d] % width != 0)) width /= 2;
  return width;
}

std::vector<Row> RowsOf(const graph::Graph& g, const WindowNest& nest) {
  const std::vector<TensorId> inputs = MemoryInputs(g);
  std::vector<Row> rows;
  for (const auto& [id, at] : nest.values) {
    if (std::ranges::find(inputs, id) == inputs.end()) continue;
    const int width = WidthOf(g, nest, id);
    Place first = at;
    const int lane = ((at.back() % width) + width) % width;
    first.back() -= lane;
    auto row =
        std::ranges::find_if(rows, [&](const Row& r) { return r.id == id && r.first == first; });
    if (row == rows.end()) row = rows.insert(rows.end(), {id, first, width, {}});
    row->lanes.push_back(lane);
  }
  for (Row& row : rows) {
    std::ranges::sort(row.lanes);
    if (row.lanes.size() > 1) continue;
    row.first.back() += row.lanes[0];
    row.lanes[0] = 0;
    row.width = 1;
  }
  return rows;
}

void Fetch(KernelBuilder& b, NestPlaces& places, Block& out, ValueScope& values, const Row& row) {
  const graph::Tensor& t = b.graph()[row.id];
  const std::string regs = b.Name(t.name + "_r");
  const Expr inside = places.Inside(out, row.id, row.first, row.width);
  const Expr offset = b.Offset(row.id, places.IndexOf(out, row.id, row.first));
  out.push_back({tile::Alloc{regs, t.dtype, tile::Space::kReg, row.width}});
  Block read, fill;
  if (row.width > 1)
    WideCopy(read, t.dtype, regs, b.Idx(0), b.Pointer(row.id), offset, row.width);
  else
    read.push_back({tile::Store{regs, b.Idx(0), tile::Load(b.Pointer(row.id), t.dtype, offset)}});
  if (inside) {
    const double padding = PaddingOf(b.graph(), row.id).value_or(0);
    const Expr value = IsFloat(t.dtype) ? tile::Float(padding) : tile::Int(0);
    for (int l = 0; l < row.width; ++l)
      fill.push_back({tile::Store{regs, b.Idx(l), tile::Cast(t.dtype, value)}});
    out.push_back({tile::If{inside, std::move(read), std::move(fill)}});
  } else {
    std::ranges::move(read, std::back_inserter(out));
  }
  for (const int l : row.lanes) {
    Place at = row.first;
    at.back() += l;
    const Expr value = tile::Cast(ArithmeticType(t.dtype), tile::Load(regs, t.dtype, b.Idx(l)));
    const Index index = places.IndexOf(out, row.id, at);
    values.Bind(row.id, index, b.Let(out, t.name + "_v", value));
  }
}

}  // namespace

void LoadNest(KernelBuilder& b, const WindowNest& nest, NestPlaces& places, Block& out,
              ValueScope& values) {
  for (const Row& row : RowsOf(b.graph(), nest)) Fetch(b, places, out, values, row);
}

}  // namespace kiln::compiler
