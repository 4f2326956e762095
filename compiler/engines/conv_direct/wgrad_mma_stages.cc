#include "compiler/engines/conv_direct/wgrad_mma_stages.h"

#include <utility>

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

WgradMmaStages::WgradMmaStages(const WgradMmaContext& context) : x_(context) {
  KernelBuilder& b = x_.b;
  const WgradMmaPlan& p = x_.p;
  splits_ = b.Arg("splits", p.splits);
  steps_ = b.Arg("steps", CeilDiv(p.pieces(), p.splits));
  pieces_ = b.Arg("pieces", p.pieces());
  row_groups_ = p.row_groups == 1 ? b.Idx(1) : b.Arg("row_groups", p.row_groups);
  column_blocks_ = p.column_blocks == 1 ? b.Idx(1) : b.Arg("column_blocks", p.column_blocks);
  image_groups_ = b.Arg("image_groups", p.image_groups);
}

void WgradMmaStages::Allocate(Block& body) {
  x_array_ = SharedArray(x_.b, body, "x_pixels", x_.type(), 2 * x_.x_elements());
  dy_array_ = SharedArray(x_.b, body, "dy_pixels", x_.type(), 2 * x_.dy_elements());
}

WgradMmaPiece WgradMmaStages::Enter(Block& out, const WgradMmaThread& thread,
                                    const Expr& step) const {
  KernelBuilder& b = x_.b;
  const WgradMmaPlan& p = x_.p;
  const graph::TensorId y = x_.shape.y;
  const Expr number = b.Let(out, "piece", step * splits_ + thread.split);
  const Index at = b.Unravel(out, number, {image_groups_, row_groups_, column_blocks_},
                             {p.image_groups, p.row_groups, p.column_blocks}, "piece");
  WgradMmaPiece piece;
  piece.first_image = b.Let(out, "first_image", at[0] * b.Idx(p.images));
  piece.first_row = b.Let(out, "first_row", at[1] * b.Idx(p.rows));
  piece.first_col = b.Let(out, "first_col", at[2] * b.Idx(p.columns));
  piece.exists = b.Let(out, "exists", tile::And(tile::Lt(number, pieces_), tile::Lt(step, steps_)));
  const auto here = [&](const char* name, int64_t most, const Expr& left) {
    return most == 1 ? b.Idx(1) : b.Let(out, name, tile::Op(ScalarOp::kMin, {b.Idx(most), left}));
  };
  piece.images = here("images_here", p.images, b.Extent(y, 0) - piece.first_image);
  piece.rows =
      x_.is_flat() ? b.Idx(1) : here("rows_here", p.rows, b.Extent(y, 2) - piece.first_row);
  piece.cols = here("cols_here", p.columns, b.Extent(y, x_.shape.spatial + 1) - piece.first_col);
  return piece;
}

WgradMmaPixel SplitPixel(KernelBuilder& b, Block& out, const Expr& number, int64_t rows,
                         int64_t columns) {
  const Expr line = b.Let(out, "line", number / b.Idx(columns));
  WgradMmaPixel p;
  p.col = b.Let(out, "col", number - line * b.Idx(columns));
  p.image = b.Let(out, "image", line / b.Idx(rows));
  p.row = b.Let(out, "row", line - p.image * b.Idx(rows));
  return p;
}

void WgradMmaStages::Start(Block& out, const WgradMmaThread& thread, const Expr& step) const {
  const WgradMmaPiece piece = Enter(out, thread, step);
  const Expr slot = x_.b.Let(out, "to_slot", step % x_.b.Idx(2));
  StartX(out, thread, piece, slot);
  StartDy(out, thread, piece, slot);
  out.push_back({tile::CommitAsync{}});
}

// copy(block, pixel, first element of the thread's chunk, its channel) for a thread's share of the
// pixels. Its chunk of channels is the same for all of them.
template <class F>
void WgradMmaStages::EachPixel(Block& out, const WgradMmaThread& thread, int64_t pixels,
                               F&& copy) const {
  constexpr int64_t kAlong = kWgradSlab / kWgradChunk;
  KernelBuilder& b = x_.b;
  const int64_t step = x_.threads() / kAlong;
  const Expr local = b.Let(out, "local", Var(b, "tx") % b.Idx(kAlong) * b.Idx(kWgradChunk));
  const Expr channel = b.Let(out, "channel", thread.first_channel + local);
  Loop(b, out, "i", b.Idx(CeilDiv(pixels, step)), Bind::kSerial, [&](Block& one, const Expr& i) {
    const Expr number = b.Let(one, "number", i * b.Idx(step) + Var(b, "tx") / b.Idx(kAlong));
    Block inside;
    copy(inside, number, local, channel);
    When(one, tile::Lt(number, b.Idx(pixels)), std::move(inside));
  });
}

void WgradMmaStages::StartX(Block& out, const WgradMmaThread& thread, const WgradMmaPiece& piece,
                            const Expr& slot) const {
  KernelBuilder& b = x_.b;
  const ConvShape& shape = x_.shape;
  const WgradMmaPlan& p = x_.p;
  const Expr first_h =
      b.Let(out, "first_h", piece.first_row * b.Idx(x_.row.stride) - b.Idx(x_.row.pad));
  const Expr first_w =
      b.Let(out, "first_w", piece.first_col * b.Idx(x_.col.stride) - b.Idx(x_.col.pad));
  const Expr to = b.Let(out, "x_to", slot * b.Idx(x_.x_elements()));
  const auto copy = [&](Block& one, const Expr& number, const Expr& local, const Expr& channel) {
    const WgradMmaPixel at = SplitPixel(b, one, number, p.staged_rows, p.staged_columns);
    Expr valid = tile::And(piece.exists, tile::Lt(channel, b.Extent(shape.x, 1)));
    valid = tile::And(valid, tile::Lt(at.image, piece.images));
    Index index = {piece.first_image + at.image, channel};
    const Expr pixel = at.image * b.Idx(p.image_pitch) + at.row * b.Idx(p.row_pitch) + at.col;
    const auto walk = [&](const char* name, const Expr& place, int64_t dim) {
      const Expr i = b.Let(one, name, place);
      index.push_back(i);
      valid =
          tile::And(valid, tile::And(tile::Ge(i, b.Idx(0)), tile::Lt(i, b.Extent(shape.x, dim))));
    };
    if (!x_.is_flat()) walk("h", first_h + at.row, 2);
    walk("w_at", first_w + at.col, shape.spatial + 1);
    one.push_back(
        {tile::CopyAsync{x_array_, to + pixel * b.Idx(kWgradPitch) + local, b.Pointer(shape.x),
                         b.Offset(shape.x, index), static_cast<int>(kWgradChunk), valid}});
  };
  EachPixel(out, thread, p.images * p.staged_rows * p.staged_columns, copy);
}

void WgradMmaStages::StartDy(Block& out, const WgradMmaThread& thread, const WgradMmaPiece& piece,
                             const Expr& slot) const {
  KernelBuilder& b = x_.b;
  const graph::TensorId y = x_.shape.y;
  const Expr to = b.Let(out, "dy_to", slot * b.Idx(x_.dy_elements()));
  const auto copy = [&](Block& one, const Expr& number, const Expr& local, const Expr& channel) {
    const WgradMmaPixel at = SplitPixel(b, one, number, x_.p.rows, x_.p.columns);
    Expr valid = tile::And(piece.exists, tile::Lt(channel, b.Extent(y, 1)));
    valid = tile::And(valid, tile::Lt(at.image, piece.images));
    valid = tile::And(valid, tile::Lt(at.row, piece.rows));
    valid = tile::And(valid, tile::Lt(at.col, piece.cols));
    Index index = {piece.first_image + at.image, channel};
    if (!x_.is_flat()) index.push_back(piece.first_row + at.row);
    index.push_back(piece.first_col + at.col);
    one.push_back(
        {tile::CopyAsync{dy_array_, to + number * b.Idx(kWgradPitch) + local, b.Pointer(y),
                         b.Offset(y, index), static_cast<int>(kWgradChunk), valid}});
  };
  EachPixel(out, thread, x_.p.pixels, copy);
}

}  // namespace kiln::compiler
