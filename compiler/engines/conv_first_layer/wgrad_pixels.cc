#include "compiler/engines/conv_first_layer/wgrad_pixels.h"

#include <utility>

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

WgradPixels::WgradPixels(const FirstLayerContext& context, const FirstLayerWgradSizes& sizes,
                         const FirstLayerRows& rows, Expr first_filter)
    : x_(context),
      s_(sizes),
      rows_(rows),
      read_(context.group, {context.shape.y}, -1, 8),
      first_filter_(std::move(first_filter)) {}

int64_t WgradPixels::pitch() const { return s_.tiles * 16 + kFirstLayerDyPad; }

void WgradPixels::Allocate(Block& body, int64_t slots) {
  dy_ = SharedArray(x_.b, body, "dy_pixels", x_.type(), slots * elements());
  places_ = SharedArray(x_.b, body, "x_places", x_.b.index_type(), s_.pixels);
}

WgradPixels::Counts WgradPixels::Count(Block& out, const FirstLayerPiece& piece) const {
  KernelBuilder& b = x_.b;
  const auto least = [](const Expr& most, const Expr& left) {
    return tile::Op(ScalarOp::kMin, {most, left});
  };
  const bool is_flat = x_.shape.spatial == 1;
  Expr rows = b.Idx(1);
  if (!is_flat) rows = least(b.Idx(x_.p.rows), b.Extent(x_.shape.y, 2) - piece.first_row);
  Counts here;
  here.rows = b.Let(out, "rows_here", rows);
  const Expr cols = b.Extent(x_.shape.y, x_.shape.spatial + 1) - piece.first_col;
  here.cols = b.Let(out, "cols_here", least(rows_.columns(), cols));
  return here;
}

WgradPixels::Pixel WgradPixels::PixelAt(Block& out, const Expr& number) const {
  const auto at = x_.b.Divide(out, number, rows_.columns(), x_.p.columns, "pixel_col");
  return {at.quotient, at.remainder};
}

WgradPixels::Vector WgradPixels::VectorAt(Block& out, const FirstLayerPiece& piece,
                                          const Counts& here, const Expr& i) const {
  KernelBuilder& b = x_.b;
  const int64_t vectors = s_.tiles * 2;  // of 8 filters
  const Expr flat = b.Let(out, "flat", i * b.Idx(kFirstLayerThreads) + Var(b, "tx"));
  Vector v;
  v.number = b.Let(out, "number", flat / b.Idx(vectors));
  const Expr local = b.Let(out, "local", flat % b.Idx(vectors) * b.Idx(8));
  v.to = v.number * b.Idx(pitch()) + local;
  const Pixel pixel = PixelAt(out, v.number);
  const Expr filter = b.Let(out, "filter", first_filter_ + local);
  v.guard = tile::And(piece.exists, tile::Lt(pixel.row, here.rows));
  v.guard = tile::And(v.guard, tile::Lt(pixel.col, here.cols));
  v.guard = tile::And(v.guard, tile::Lt(filter, b.Extent(x_.shape.y, 1)));
  v.at = {piece.image, filter};
  if (x_.shape.spatial == 2) v.at.push_back(piece.first_row + pixel.row);
  v.at.push_back(piece.first_col + pixel.col);
  return v;
}

void WgradPixels::Start(Block& body, const FirstLayerPiece& piece, const Counts& here,
                        const Expr& to) const {
  KernelBuilder& b = x_.b;
  Loop(b, body, "i", b.Idx(turns()), Bind::kSerial, [&](Block& one, const Expr& i) {
    const Vector v = VectorAt(one, piece, here, i);
    Block copy;
    copy.push_back({tile::CopyAsync{dy_, to + v.to, b.Pointer(x_.shape.y),
                                    b.Offset(x_.shape.y, v.at), 8, v.guard}});
    When(one, tile::Lt(v.number, b.Idx(s_.pixels)), std::move(copy));
  });
}

void WgradPixels::Stage(Block& body, const FirstLayerPiece& piece, const Counts& here) const {
  KernelBuilder& b = x_.b;
  const DType type = x_.type();
  Loop(b, body, "i", b.Idx(turns()), Bind::kSerial, [&](Block& one, const Expr& i) {
    const std::string regs = Registers(b, one, "dy_regs", type, 8);
    Clear(b, one, regs, type, 8);
    const Vector v = VectorAt(one, piece, here, i);
    Block read;
    read_.Read(b, read, v.at, regs, b.Idx(0), type);
    When(one, v.guard, std::move(read));
    Block store;
    WideCopy(store, type, dy_, v.to, regs, b.Idx(0), 8);
    When(one, tile::Lt(v.number, b.Idx(s_.pixels)), std::move(store));
  });
}

void WgradPixels::FillPlaces(Block& body, const Counts& here) const {
  KernelBuilder& b = x_.b;
  const FirstLayerPlan& p = x_.p;
  const auto within = [&](const Expr& i, const Expr& count) {
    const Expr last = tile::Op(ScalarOp::kMax, {count - b.Idx(1), b.Idx(0)});
    return tile::Op(ScalarOp::kMin, {i, last});
  };
  Loop(b, body, "i", b.Idx(CeilDiv(s_.pixels, kFirstLayerThreads)), Bind::kSerial,
       [&](Block& one, const Expr& i) {
         const Expr number = b.Let(one, "number", i * b.Idx(kFirstLayerThreads) + Var(b, "tx"));
         Block fill;
         const Pixel at = PixelAt(fill, number);
         const Expr place = within(at.row, here.rows) * b.Idx(p.row_stride * p.pitch) +
                            within(at.col, here.cols) * b.Idx(p.stride * p.pixel);
         fill.push_back({tile::Store{places_, number, place}});
         When(one, tile::Lt(number, b.Idx(s_.pixels)), std::move(fill));
       });
}

}  // namespace kiln::compiler
