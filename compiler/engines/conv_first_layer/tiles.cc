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

FirstLayerTiles::FirstLayerTiles(const Group& group, const Target& target, const ConvShape& shape,
                                 const FirstLayerPlan& plan, const std::string& description)
    : group_(group),
      shape_(shape),
      p_(plan),
      b_(group, target, description),
      type_(group.graph[shape.x].dtype) {
  for (const char* reserved : {"bx", "tx", "step"}) b_.Name(reserved);
}

void FirstLayerTiles::EnterPiece(Block& loop, const Expr& piece, const Expr& also) {
  const int64_t row_groups = RowGroups(group_, shape_, p_);
  if (!columns_) {
    columns_ = b_.Arg("columns", p_.columns);
    row_groups_ = b_.Arg("row_groups", row_groups);
    column_blocks_ = p_.column_blocks == 1 ? b_.Idx(1) : b_.Arg("column_blocks", p_.column_blocks);
    pieces_ = b_.Arg("pieces", PiecesOf(group_, shape_, p_));
  }
  const Index at =
      b_.Unravel(loop, piece, {b_.Extent(shape_.y, 0), row_groups_, column_blocks_},
                 {group_.graph[shape_.y].dims[0], row_groups, p_.column_blocks}, "piece");
  image_ = at[0];
  first_row_ = b_.Let(loop, "first_row", at[1] * b_.Idx(p_.rows));
  first_col_ = b_.Let(loop, "first_col", at[2] * columns_);
  Expr exists = tile::Lt(piece, pieces_);
  if (also) exists = tile::And(exists, also);
  exists_ = b_.Let(loop, "exists", exists);
}

void FirstLayerTiles::StartRows(Block& body, const Expr& to) {
  const int64_t along = p_.pitch / kChunk, count = p_.staged_rows * along;
  const int64_t rank = shape_.spatial + 2;
  const Expr first_h =
      b_.Let(body, "first_h", first_row_ * b_.Idx(p_.row_stride) - b_.Idx(p_.row_pad));
  const Expr first =
      b_.Let(body, "first_element", first_col_ * b_.Idx(p_.stride * p_.pixel) - b_.Idx(p_.margin));
  const Expr row_size =
      b_.Let(body, "row_size", b_.Extent(shape_.x, rank - 1) * b_.Idx(shape_.channels));
  Loop(body, "i", b_.Idx(CeilDiv(count, kThreads)), Bind::kSerial, [&](Block& one, const Expr& i) {
    const Expr place = b_.Let(one, "chunk", i * b_.Idx(kThreads) + Var("tx"));
    const Expr row = b_.Let(one, "staged_row", place / b_.Idx(along));
    const Expr at = b_.Let(one, "element", first + (place - row * b_.Idx(along)) * b_.Idx(kChunk));
    Index index = {image_, b_.Idx(0)};
    Expr valid = tile::And(exists_, tile::And(tile::Ge(at, b_.Idx(0)), tile::Lt(at, row_size)));
    if (shape_.spatial == 2) {
      index.push_back(b_.Let(one, "h", first_h + row));
      valid = tile::And(valid, tile::And(tile::Ge(index.back(), b_.Idx(0)),
                                         tile::Lt(index.back(), b_.Extent(shape_.x, 2))));
    }
    index.push_back(b_.Idx(0));
    Block copy;
    copy.push_back(
        {tile::CopyAsync{staged_, to + place * b_.Idx(kChunk), b_.Pointer(shape_.x),
                         b_.Offset(shape_.x, index) + at, static_cast<int>(kChunk), valid}});
    one.push_back({tile::If{tile::Lt(place, b_.Idx(count)), std::move(copy), {}}});
  });
}

void FirstLayerTiles::StageRows(Block& body) {
  constexpr int kAtOnce = 4;  // pixels of a thread whose reads are under way together
  const int64_t count = p_.staged_rows * p_.staged_columns;
  const Expr first_h =
      b_.Let(body, "first_h", first_row_ * b_.Idx(p_.row_stride) - b_.Idx(p_.row_pad));
  const Expr first_w = b_.Let(body, "first_w", first_col_ * b_.Idx(p_.stride) - b_.Idx(p_.pad));
  Loop(body, "i", b_.Idx(CeilDiv(count, kThreads * kAtOnce)), Bind::kSerial,
       [&](Block& some, const Expr& i) {
         const std::string pixels = b_.Name("pixels");
         some.push_back({tile::Alloc{pixels, type_, tile::Space::kReg, kAtOnce * p_.pixel}});
         const auto place = [&](const Expr& u) {
           return (i * b_.Idx(kAtOnce) + u) * b_.Idx(kThreads) + Var("tx");
         };
         Loop(some, "u", b_.Idx(kAtOnce), Bind::kUnroll, [&](Block& one, const Expr& u) {
           ReadPixel(one, b_.Let(one, "staged", place(u)), first_h, first_w, pixels,
                     u * b_.Idx(p_.pixel));
         });
         Loop(some, "u", b_.Idx(kAtOnce), Bind::kUnroll, [&](Block& one, const Expr& u) {
           const Expr to = b_.Let(one, "staged", place(u));
           Block inside;
           for (int64_t c = 0; c < p_.pixel; ++c)
             inside.push_back(
                 {tile::Store{staged_, to * b_.Idx(p_.pixel) + b_.Idx(c),
                              tile::Load(pixels, type_, u * b_.Idx(p_.pixel) + b_.Idx(c))}});
           one.push_back({tile::If{tile::Lt(to, b_.Idx(count)), std::move(inside), {}}});
         });
       });
}

// Pixel `place` of the staged rows, or zeros, to pixel[to ..].
void FirstLayerTiles::ReadPixel(Block& out, const Expr& place, const Expr& first_h,
                                const Expr& first_w, const std::string& pixel, const Expr& to) {
  const Expr row = b_.Let(out, "staged_row", place / b_.Idx(p_.staged_columns));
  const Expr h = b_.Let(out, "h", first_h + row);
  const Expr w = b_.Let(out, "w_at", first_w + place % b_.Idx(p_.staged_columns));
  for (int64_t c = 0; c < p_.pixel; ++c)
    out.push_back({tile::Store{pixel, to + b_.Idx(c), Zero(type_)}});
  const int64_t rank = shape_.spatial + 2;
  Expr guard = tile::And(
      exists_, tile::And(tile::Ge(w, b_.Idx(0)), tile::Lt(w, b_.Extent(shape_.x, rank - 1))));
  if (shape_.spatial == 2)
    guard =
        tile::And(guard, tile::And(tile::Ge(h, b_.Idx(0)), tile::Lt(h, b_.Extent(shape_.x, 2))));
  guard = tile::And(guard, tile::Lt(row, b_.Idx(p_.staged_rows)));
  Block inside;
  ValueScope values(b_, inside);
  for (int64_t c = 0; c < shape_.channels; ++c) {
    Index index = {image_, b_.Idx(c)};
    if (shape_.spatial == 2) index.push_back(h);
    index.push_back(w);
    inside.push_back(
        {tile::Store{pixel, to + b_.Idx(c), tile::Cast(type_, values.Value(shape_.x, index))}});
  }
  out.push_back({tile::If{guard, std::move(inside), {}}});
}

}  // namespace kiln::compiler
