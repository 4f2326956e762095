#include "compiler/engines/conv_first_layer/tiles.h"

#include <algorithm>

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

namespace {

constexpr int64_t kChunk = 8, kMostColumns = 128, kSlab = 32;

int64_t RowGroups(const Group& group, const ConvShape& shape, const FirstLayerPlan& p) {
  return shape.spatial == 1 ? 1 : CeilDiv(group.graph[shape.y].dims[2], p.rows);
}

// Rows of x are runs of whole 16-byte chunks, with nothing between their elements.
bool HasWideRows(const Group& group, const ConvShape& s) {
  const graph::Tensor& x = group.graph[s.x];
  const int64_t last = x.rank() - 1;
  if (!InMemoryAligned(group, s.x) || (x.dims[1] != 1 && x.strides[1] != 1)) return false;
  if (x.strides[last] != s.channels || x.dims[last] * s.channels % kChunk != 0) return false;
  if (s.spatial == 2 && x.dims[2] != 1 && x.strides[2] % kChunk != 0) return false;
  return x.dims[0] == 1 || x.strides[0] % kChunk == 0;
}

}  // namespace

FirstLayerPlan PlanOf(const Group& group, const ConvShape& s, const FirstLayerKnobs& knobs) {
  const Dims& y = group.graph[s.y].dims;
  FirstLayerPlan p{};
  const bool flat = s.spatial == 1;
  const int64_t last = s.spatial - 1;
  p.row_taps = flat ? 1 : s.taps[0];
  p.row_stride = flat ? 1 : s.stride[0];
  p.row_dilation = flat ? 1 : s.dilation[0];
  p.row_pad = flat ? 0 : s.pad[0];
  p.stride = s.stride[last];
  p.dilation = s.dilation[last];
  p.taps = s.taps[last];
  p.pad = s.pad[last];
  p.rows = flat ? 1 : knobs.rows;
  p.steps = knobs.steps;
  const int64_t q = std::max<int64_t>(y.back(), 1);
  p.column_blocks = CeilDiv(q, kMostColumns);
  p.columns = CeilDiv(q, p.column_blocks);
  p.sets = y[1] > kSlab ? 8 : 4;
  p.slabs = CeilDiv(y[1], p.sets * 8);
  const bool tight = p.dilation == 1 && p.stride * s.channels % 2 == 0;
  p.pixel = tight ? s.channels : s.channels <= 2 ? 2 : 4;
  p.wide = tight && HasWideRows(group, s);
  if (p.wide) {
    p.margin = AlignUp(p.pad * p.pixel, kChunk);
    p.lead = p.margin - p.pad * p.pixel;
    p.shift = p.lead % 2;
    // Blocks of columns begin at whole chunks.
    if (p.column_blocks > 1) p.columns = AlignUp(p.columns, kChunk);
  }
  p.chunks = CeilDiv(p.end_slot(), kChunk);
  p.products = CeilDiv(p.row_taps * p.chunks, 2);
  p.staged_rows = (p.rows - 1) * p.row_stride + (p.row_taps - 1) * p.row_dilation + 1;
  // In whole fragments of pixels, so that nearby widths share a text.
  const int64_t reach = (CeilDiv(p.chunks * kChunk, p.pixel) - 1) * p.dilation + 1;
  p.staged_columns = AlignUp((AlignUp(p.columns, 16) - 1) * p.stride + reach, 2);
  p.pitch = p.staged_columns * p.pixel;
  if (p.wide) {
    const int64_t last_run = (AlignUp(p.columns, 16) - 1) * p.stride * p.pixel;
    p.pitch = AlignUp(p.first_place() + last_run + p.chunks * kChunk, kChunk);
  }
  return p;
}

int64_t PiecesOf(const Group& group, const ConvShape& shape, const FirstLayerPlan& plan) {
  return group.graph[shape.y].dims[0] * RowGroups(group, shape, plan) * plan.column_blocks;
}

FirstLayerLane EnterLane(KernelBuilder& b, Block& body) {
  FirstLayerLane at;
  at.lane = b.Let(body, "lane", Var(b, "tx") % b.Idx(kWarpLanes));
  at.warp = b.Let(body, "warp", Var(b, "tx") / b.Idx(kWarpLanes));
  at.g = b.Let(body, "g", at.lane / b.Idx(4));
  at.t4 = b.Let(body, "t4", at.lane % b.Idx(4));
  return at;
}

void FirstLayerRows::Allocate(Block& body, int64_t slots) {
  array_ = SharedArray(x_.b, body, "x_rows", x_.type(), slots * x_.p.staged_elements());
}

FirstLayerPiece FirstLayerRows::Enter(Block& out, const Expr& piece, const Expr& also) {
  KernelBuilder& b = x_.b;
  const FirstLayerPlan& p = x_.p;
  const int64_t row_groups = RowGroups(x_.group, x_.shape, p);
  if (!columns_) {
    columns_ = b.Arg("columns", p.columns);
    row_groups_ = b.Arg("row_groups", row_groups);
    column_blocks_ = p.column_blocks == 1 ? b.Idx(1) : b.Arg("column_blocks", p.column_blocks);
    pieces_ = b.Arg("pieces", PiecesOf(x_.group, x_.shape, p));
  }
  const graph::TensorId y = x_.shape.y;
  const Index at = b.Unravel(out, piece, {b.Extent(y, 0), row_groups_, column_blocks_},
                             {x_.group.graph[y].dims[0], row_groups, p.column_blocks}, "piece");
  FirstLayerPiece entered;
  entered.image = at[0];
  entered.first_row = b.Let(out, "first_row", at[1] * b.Idx(p.rows));
  entered.first_col = b.Let(out, "first_col", at[2] * columns_);
  Expr exists = tile::Lt(piece, pieces_);
  if (also) exists = tile::And(exists, also);
  entered.exists = b.Let(out, "exists", exists);
  return entered;
}

void FirstLayerRows::Start(Block& body, const FirstLayerPiece& piece, const Expr& to) const {
  KernelBuilder& b = x_.b;
  const ConvShape& shape = x_.shape;
  const FirstLayerPlan& p = x_.p;
  const int64_t along = p.pitch / kChunk, count = p.staged_rows * along;
  const int64_t rank = shape.spatial + 2;
  const Expr first_h =
      b.Let(body, "first_h", piece.first_row * b.Idx(p.row_stride) - b.Idx(p.row_pad));
  const Expr first =
      b.Let(body, "first_element", piece.first_col * b.Idx(p.stride * p.pixel) - b.Idx(p.margin));
  const Expr row_size =
      b.Let(body, "row_size", b.Extent(shape.x, rank - 1) * b.Idx(shape.channels));
  Loop(b, body, "i", b.Idx(CeilDiv(count, kFirstLayerThreads)), Bind::kSerial,
       [&](Block& one, const Expr& i) {
         const Expr place = b.Let(one, "chunk", i * b.Idx(kFirstLayerThreads) + Var(b, "tx"));
         const Expr row = b.Let(one, "staged_row", place / b.Idx(along));
         const Expr in_row = (place - row * b.Idx(along)) * b.Idx(kChunk);
         const Expr at = b.Let(one, "element", first + in_row);
         Index index = {piece.image, b.Idx(0)};
         Expr valid =
             tile::And(piece.exists, tile::And(tile::Ge(at, b.Idx(0)), tile::Lt(at, row_size)));
         if (shape.spatial == 2) {
           const Expr h = b.Let(one, "h", first_h + row);
           index.push_back(h);
           valid = tile::And(valid,
                             tile::And(tile::Ge(h, b.Idx(0)), tile::Lt(h, b.Extent(shape.x, 2))));
         }
         index.push_back(b.Idx(0));
         Block copy;
         copy.push_back(
             {tile::CopyAsync{array_, to + place * b.Idx(kChunk), b.Pointer(shape.x),
                              b.Offset(shape.x, index) + at, static_cast<int>(kChunk), valid}});
         When(one, tile::Lt(place, b.Idx(count)), std::move(copy));
       });
}

void FirstLayerRows::Stage(Block& body, const FirstLayerPiece& piece) const {
  constexpr int kAtOnce = 4;  // pixels of a thread whose reads are under way together
  KernelBuilder& b = x_.b;
  const FirstLayerPlan& p = x_.p;
  const DType type = x_.type();
  const int64_t count = p.staged_rows * p.staged_columns;
  Origin origin;
  origin.h = b.Let(body, "first_h", piece.first_row * b.Idx(p.row_stride) - b.Idx(p.row_pad));
  origin.w = b.Let(body, "first_w", piece.first_col * b.Idx(p.stride) - b.Idx(p.pad));
  Loop(b, body, "i", b.Idx(CeilDiv(count, kFirstLayerThreads * kAtOnce)), Bind::kSerial,
       [&](Block& some, const Expr& i) {
         const std::string pixels = Registers(b, some, "pixels", type, kAtOnce * p.pixel);
         const auto place = [&](const Expr& u) {
           return (i * b.Idx(kAtOnce) + u) * b.Idx(kFirstLayerThreads) + Var(b, "tx");
         };
         Loop(b, some, "u", b.Idx(kAtOnce), Bind::kUnroll, [&](Block& one, const Expr& u) {
           const Expr at = b.Let(one, "staged", place(u));
           ReadPixel(one, piece, origin, at, pixels, u * b.Idx(p.pixel));
         });
         Loop(b, some, "u", b.Idx(kAtOnce), Bind::kUnroll, [&](Block& one, const Expr& u) {
           const Expr to = b.Let(one, "staged", place(u));
           Block inside;
           for (int64_t c = 0; c < p.pixel; ++c)
             inside.push_back(
                 {tile::Store{array_, to * b.Idx(p.pixel) + b.Idx(c),
                              tile::Load(pixels, type, u * b.Idx(p.pixel) + b.Idx(c))}});
           When(one, tile::Lt(to, b.Idx(count)), std::move(inside));
         });
       });
}

// pixel[to ..] = pixel `place` of the staged rows, or zeros.
void FirstLayerRows::ReadPixel(Block& out, const FirstLayerPiece& piece, const Origin& origin,
                               const Expr& place, const std::string& pixel, const Expr& to) const {
  KernelBuilder& b = x_.b;
  const ConvShape& shape = x_.shape;
  const FirstLayerPlan& p = x_.p;
  const Expr row = b.Let(out, "staged_row", place / b.Idx(p.staged_columns));
  const Expr h = b.Let(out, "h", origin.h + row);
  const Expr w = b.Let(out, "w_at", origin.w + place % b.Idx(p.staged_columns));
  for (int64_t c = 0; c < p.pixel; ++c)
    out.push_back({tile::Store{pixel, to + b.Idx(c), ZeroOf(x_.type())}});
  const auto exists = [&](const Expr& i, int64_t dim) {
    return tile::And(tile::Ge(i, b.Idx(0)), tile::Lt(i, b.Extent(shape.x, dim)));
  };
  Expr guard = tile::And(piece.exists, exists(w, shape.spatial + 1));
  if (shape.spatial == 2) guard = tile::And(guard, exists(h, 2));
  guard = tile::And(guard, tile::Lt(row, b.Idx(p.staged_rows)));
  Block inside;
  ValueScope values(b, inside);
  for (int64_t c = 0; c < shape.channels; ++c) {
    Index index = {piece.image, b.Idx(c)};
    if (shape.spatial == 2) index.push_back(h);
    index.push_back(w);
    inside.push_back(
        {tile::Store{pixel, to + b.Idx(c), tile::Cast(x_.type(), values.Value(shape.x, index))}});
  }
  When(out, guard, std::move(inside));
}

}  // namespace kiln::compiler
