#include "compiler/engines/conv_direct/tiles.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace kiln::compiler {

using tile::Block;
using tile::Expr;

namespace {

// An axis of extent 1 without taps, for what a 1-D convolution does not have.
AxisMap NoAxis() { return {.taps = {{{0, 0}}}}; }

AxisMap RowMap(const ConvShape& shape) {
  return shape.spatial >= 2 ? MapAxis(shape, shape.spatial - 2) : NoAxis();
}

}  // namespace

DirectSizes SizesFor(const Group& group, const ConvShape& shape, const DirectKnobs& knobs,
                     int64_t col_multiple) {
  const Dims& out = group.graph[shape.out].dims;
  const int64_t rank = static_cast<int64_t>(out.size());
  const int64_t row_phases = RowMap(shape).phases;
  const int64_t col_phases = MapAxis(shape, shape.spatial - 1).phases * col_multiple;
  DirectSizes s;
  s.rows = shape.spatial == 1 ? 1 : AlignUp(knobs.rows, row_phases);
  s.cols = AlignUp(knobs.cols, col_phases);
  s.row_tiles = shape.spatial == 1 ? 1 : CeilDiv(out[rank - 2], s.rows);
  s.col_blocks = CeilDiv(out[rank - 1], s.cols);
  s.planes = out[0] * (shape.spatial == 3 ? out[2] : 1);
  return s;
}

std::vector<int64_t> WindowOf(const AxisMap& map, int64_t count) {
  std::set<int64_t> inputs;
  for (int64_t i = 0; i < count; ++i)
    for (const TapAt& tap : map.TapsOf(i)) inputs.insert(map.InputOf(i, tap));
  return {inputs.begin(), inputs.end()};
}

ConvDirectTiles::ConvDirectTiles(const Group& group, const Target& target, const ConvShape& shape,
                                 const DirectSizes& sizes, const std::string& description)
    : group_(group),
      shape_(shape),
      sizes_(sizes),
      row_map_(RowMap(shape)),
      col_map_(MapAxis(shape, shape.spatial - 1)),
      row_window_(WindowOf(row_map_, sizes.rows)),
      col_window_(WindowOf(col_map_, sizes.cols)),
      b_(group, target, description) {
  for (const char* reserved : {"bx", "tx", "step"}) b_.Name(reserved);
}

ConvDirectTiles::Place ConvDirectTiles::PlaceAt(Block& out, const Expr& row_tile,
                                                const Expr& block) {
  const Dims& dims = group_.graph[shape_.out].dims;
  const bool deep = shape_.spatial == 3;
  const Expr images = b_.Extent(shape_.out, 0);
  const Expr depths = deep ? b_.Extent(shape_.out, 2) : b_.Idx(1);
  const Expr blocks = sizes_.col_blocks == 1 ? b_.Idx(1) : b_.Arg("col_blocks", sizes_.col_blocks);
  const Index at = b_.Unravel(out, block, {images, depths, blocks},
                              {dims[0], deep ? dims[2] : 1, sizes_.col_blocks}, "block");
  Place p;
  p.image = at[0];
  p.depth = at[1];
  p.row = b_.Let(out, "row", row_tile * b_.Idx(sizes_.rows));
  p.col = b_.Let(out, "col", at[2] * b_.Idx(sizes_.cols));
  p.in_row =
      b_.Let(out, "in_row", row_tile * b_.Idx(sizes_.rows / row_map_.phases * row_map_.step));
  p.in_col = b_.Let(out, "in_col", at[2] * b_.Idx(sizes_.cols / col_map_.phases * col_map_.step));
  p.valid = tile::Lt(block, b_.Arg("blocks", sizes_.col_blocks * sizes_.planes));
  return p;
}

std::vector<Expr> ConvDirectTiles::ColumnGuards(Block& out, const Place& place, const Expr& valid) {
  std::vector<Expr> guards;
  for (const int64_t offset : col_window_) {
    const Expr col = place.in_col + b_.Idx(offset);
    Expr inside = tile::Lt(col, b_.Extent(shape_.in, ColDim()));
    if (offset < 0) inside = tile::And(tile::Ge(col, b_.Idx(0)), inside);
    guards.push_back(b_.Let(out, "has_col", tile::And(valid, inside)));
  }
  return guards;
}

ConvDirectTiles::Plane ConvDirectTiles::PlaneAt(Block& out, const Place& place, int64_t tap) {
  if (shape_.spatial < 3) return {b_.Idx(0), nullptr};
  const int64_t stride = shape_.stride[0], shift = tap * shape_.dilation[0] - shape_.pad[0];
  const Expr extent = b_.Extent(shape_.in, 2);
  if (!shape_.is_dgrad()) {
    const Expr depth = b_.Let(out, "plane", place.depth * b_.Idx(stride) + b_.Idx(shift));
    return {depth, tile::And(tile::Ge(depth, b_.Idx(0)), tile::Lt(depth, extent))};
  }
  const Expr scaled = b_.Let(out, "scaled", place.depth - b_.Idx(shift));
  const Expr depth = b_.Let(out, "plane", scaled / b_.Idx(stride));
  Expr guard = tile::And(tile::Ge(scaled, b_.Idx(0)), tile::Lt(depth, extent));
  if (stride != 1)
    guard = tile::And(guard, tile::Op(ScalarOp::kEq, {depth * b_.Idx(stride), scaled}));
  return {depth, guard};
}

Expr ConvDirectTiles::RowGuard(const Place& place, int64_t offset, const Plane& plane) {
  if (shape_.spatial == 1) return nullptr;
  const Expr row = place.in_row + b_.Idx(offset);
  Expr inside = tile::Lt(row, b_.Extent(shape_.in, RowDim()));
  if (offset < 0) inside = tile::And(tile::Ge(row, b_.Idx(0)), inside);
  return plane.guard ? tile::And(plane.guard, inside) : inside;
}

Index ConvDirectTiles::InputIndex(const Place& place, const Plane& plane, const Expr& channel,
                                  int64_t row_offset, int64_t col_offset) const {
  Index index = {place.image, channel};
  if (shape_.spatial == 3) index.push_back(plane.depth);
  if (shape_.spatial >= 2) index.push_back(place.in_row + b_.Idx(row_offset));
  index.push_back(place.in_col + b_.Idx(col_offset));
  return index;
}

Index ConvDirectTiles::OutputIndex(const Place& place, const Expr& channel, int64_t i,
                                   int64_t j) const {
  Index index = {place.image, channel};
  if (shape_.spatial == 3) index.push_back(place.depth);
  if (shape_.spatial >= 2) index.push_back(place.row + b_.Idx(i));
  index.push_back(place.col + b_.Idx(j));
  return index;
}

Expr ConvDirectTiles::OutputGuard(const Place& place, int64_t i, int64_t j) {
  const Expr in_col = tile::Lt(place.col + b_.Idx(j), b_.Extent(shape_.out, ColDim()));
  if (shape_.spatial == 1) return in_col;
  return tile::And(tile::Lt(place.row + b_.Idx(i), b_.Extent(shape_.out, RowDim())), in_col);
}

Index DirectFilterIndex(const KernelBuilder& b, const ConvShape& shape, Expr filter, Expr channel,
                        int64_t kd, int64_t r, int64_t s) {
  Index index = {std::move(filter), std::move(channel)};
  const int64_t taps[] = {kd, r, s};
  for (int64_t axis = 0; axis < shape.spatial; ++axis)
    index.push_back(b.Idx(shape.FilterTap(axis, taps[3 - shape.spatial + axis])));
  return index;
}

}  // namespace kiln::compiler
