// Wgrad of convolutions with few channels a group on mma.m16n8k16, for f16 and bf16 with channels
// innermost: for each filter tap, rows are filters, columns the channels of x, and k runs over the
// outputs. Depthwise convolutions use an eighth of the products and are bound by memory still.
//
//   block    a slab of 32 channels of x and as many filters, which are whole groups; walks every
//            splits-th piece: a few output rows of one image, or a few small images
//   pieces   dy and x with its halo stand in shared memory pixel after pixel, by asynchronous
//            copies, the next piece while this one is multiplied; ldmatrix transposes both
//   warp     one half of the filters, and every second product of k: for each tap all columns whose
//            groups it meets; a tap is a shift of where x is read. With 32 channels a group and
//            small filters it is one filter row, all filters, half of the channels, and all of k:
//            then x is read once for both halves, and there is nothing to add up in the block
//   sums     scratch[split][tap][channel of the group][filter]; the second kernel adds the splits
//   in
//            a fixed order
//
// Pixels past the end of a piece are zeros of dy; they read x where a pixel of the piece does.
#include <algorithm>
#include <bit>

#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/conv_direct/designs.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/ordered_sum.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarp = 32;
constexpr int64_t kSlab = 32;          // channels
constexpr int64_t kPitch = kSlab + 8;  // elements of a staged pixel, against bank conflicts
constexpr int64_t kChunk = 8;
constexpr int64_t kMostShared = 100 * 1024;  // so that two blocks are resident

// An axis of one tap for what a 1-D convolution does not have.
struct AxisSize {
  int64_t taps = 1, stride = 1, dilation = 1, pad = 0;
};
AxisSize AxisOf(const ConvShape& s, int64_t axis) {
  if (axis < 0) return {};
  return {s.taps[axis], s.stride[axis], s.dilation[axis], s.pad[axis]};
}
int64_t Reach(const AxisSize& a, int64_t outputs) {
  return (outputs - 1) * a.stride + (a.taps - 1) * a.dilation + 1;
}

// Blocks of a multiprocessor without a spill: by the sums of a warp, and by the conditions that few
// channels a group take at the end.
int64_t ResidentByRegisters(const WgradMmaPlan& p, const ConvShape& shape) {
  if (p.row_warps > 0) return 2;
  return p.taps_of_set * p.tiles <= 20 && shape.channels >= 4 ? 3 : 2;
}

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, const ConvShape& shape,
           const DirectKnobs& knobs)
      : group_(group),
        target_(target),
        shape_(shape),
        p_(WgradMmaPlanOf(group, target, shape, knobs)),
        row_(AxisOf(shape, shape.spatial - 2)),
        col_(AxisOf(shape, shape.spatial - 1)),
        type_(group.graph[shape.x].dtype),
        b_(group, target,
           fmt::format(
               "conv_direct: wgrad on tensor cores, pieces of {}x{}x{}, first of two stages",
               p_.images, p_.rows, p_.columns)) {
    for (const char* reserved : {"bx", "tx", "step"}) b_.Name(reserved);
  }

  Lowered Lower() {
    Lowered lowered;
    lowered.scratch_bytes.push_back(p_.splits * sum_rows() * padded_filters() * 4);
    Block body;
    Place(body);
    Declare(body);
    StartPiece(body, b_.Idx(0));
    Block loop;
    const Expr step = Var("step");
    StartPiece(loop, b_.Let(loop, "ahead", step + b_.Idx(1)));
    EnterPiece(loop, step);
    x_slot_ = b_.Let(loop, "x_slot", step % b_.Idx(2) * b_.Idx(x_elements()));
    dy_slot_ = b_.Let(loop, "dy_slot", step % b_.Idx(2) * b_.Idx(dy_elements()));
    loop.push_back({tile::WaitAsync{1}});
    loop.push_back({tile::Barrier{}});
    Loop(loop, "kk", b_.Idx(p_.pixels / 16 / p_.parts()), Bind::kSerial,
         [&](Block& one, const Expr& kk) {
           Multiply(one, b_.Let(one, "first", (kk * b_.Idx(p_.parts()) + part_) * b_.Idx(16)));
         });
    loop.push_back({tile::Barrier{}});
    body.push_back({tile::For{"step", t(), steps_, Bind::kSerial, std::move(loop)}});
    body.push_back({tile::WaitAsync{0}});
    WriteSums(body);
    const int64_t blocks = p_.splits * p_.tap_sets * p_.slabs;
    body = BlockAndThread(t(), b_.Arg("grid", blocks), threads(), std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, threads(), lowered,
              static_cast<int>(ResidentByRegisters(p_, shape_)));
    LowerOrderedSum(
        group_, target_, "conv_direct, wgrad on tensor cores: adds the splits",
        {.splits = p_.splits, .rows = sum_rows(), .columns = padded_filters()},
        [this](KernelBuilder& b, Block& out, const Expr& row, const Expr& filter, const Expr& first,
               const Expr& sum) { Store(b, out, row, filter, first, sum); },
        lowered);
    return lowered;
  }

 private:
  DType t() const { return b_.index_type(); }
  Expr Var(const std::string& name) const { return tile::Var(name, t()); }
  template <class F>
  void Loop(Block& out, const std::string& wish, Expr extent, Bind bind, F&& fill) {
    const std::string name = b_.Name(wish);
    Block body;
    fill(body, Var(name));
    out.push_back({tile::For{name, t(), std::move(extent), bind, std::move(body)}});
  }
  bool flat() const { return shape_.spatial == 1; }
  int64_t taps() const { return row_.taps * col_.taps; }
  int64_t sum_rows() const { return taps() * shape_.channels; }
  int64_t padded_filters() const { return p_.slabs * kSlab; }
  int threads() const { return static_cast<int>(p_.warps() * kWarp); }
  bool by_rows() const { return p_.row_warps > 0; }
  int64_t x_elements() const { return p_.images * p_.image_pitch * kPitch; }
  int64_t dy_elements() const { return p_.pixels * kPitch; }
  int64_t accumulators() const { return p_.halves() * p_.taps_of_set * p_.tiles * 4; }

  void Place(Block& body) {
    const auto slab = b_.Divide(body, Var("bx"), b_.Arg("slabs", p_.slabs), p_.slabs, "slab");
    first_channel_ = b_.Let(body, "first_channel", slab.remainder * b_.Idx(kSlab));
    first_tap_ =
        b_.Let(body, "first_tap", slab.quotient % b_.Idx(p_.tap_sets) * b_.Idx(p_.taps_of_set));
    split_ = b_.Let(body, "split", slab.quotient / b_.Idx(p_.tap_sets));
    splits_ = b_.Arg("splits", p_.splits);
    steps_ = b_.Arg("steps", CeilDiv(p_.pieces(), p_.splits));
    pieces_ = b_.Arg("pieces", p_.pieces());
    row_groups_ = p_.row_groups == 1 ? b_.Idx(1) : b_.Arg("row_groups", p_.row_groups);
    column_blocks_ = p_.column_blocks == 1 ? b_.Idx(1) : b_.Arg("column_blocks", p_.column_blocks);
    image_groups_ = b_.Arg("image_groups", p_.image_groups);
    lane_ = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarp));
    const Expr warp = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarp));
    half_ = by_rows() ? b_.Idx(0) : b_.Let(body, "half", warp % b_.Idx(2));
    part_ = by_rows() ? b_.Idx(0) : b_.Let(body, "part", warp / b_.Idx(2));
    channel_half_ = by_rows() ? b_.Let(body, "channel_half", warp % b_.Idx(2)) : half_;
    if (by_rows()) {
      filter_row_ = b_.Let(body, "filter_row", warp / b_.Idx(2));
      first_tap_ = b_.Let(body, "first_tap", filter_row_ * b_.Idx(p_.taps_of_set));
    }
    g_ = b_.Let(body, "g", lane_ / b_.Idx(4));
    t4_ = b_.Let(body, "t4", lane_ % b_.Idx(4));
  }

  void Declare(Block& body) {
    x_ = b_.Name("x_pixels");
    dy_ = b_.Name("dy_pixels");
    body.push_back({tile::Alloc{x_, type_, tile::Space::kShared, 2 * x_elements()}});
    body.push_back({tile::Alloc{dy_, type_, tile::Space::kShared, 2 * dy_elements()}});
    acc_ = b_.Name("acc");
    body.push_back({tile::Alloc{acc_, DType::kF32, tile::Space::kReg, accumulators()}});
    Loop(body, "z", b_.Idx(accumulators()), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{acc_, z, tile::Cast(DType::kF32, tile::Float(0))}});
    });
    // Taps past the last repeat it, and are not written.
    const int64_t down = row_.dilation * p_.row_pitch * kPitch;
    for (int64_t i = 0; i < p_.taps_of_set; ++i) {
      if (by_rows()) {
        shifts_.push_back(b_.Idx(i * col_.dilation * kPitch));
        continue;
      }
      Expr tap = b_.Idx(i);
      if (p_.tap_sets > 1)
        tap = b_.Let(body, "tap",
                     tile::Op(ScalarOp::kMin, {first_tap_ + b_.Idx(i), b_.Idx(taps() - 1)}));
      const Expr r = p_.tap_sets > 1 ? tap / b_.Idx(col_.taps) : b_.Idx(i / col_.taps);
      const Expr s = p_.tap_sets > 1 ? tap % b_.Idx(col_.taps) : b_.Idx(i % col_.taps);
      shifts_.push_back(
          p_.tap_sets > 1
              ? b_.Let(body, "shift", r * b_.Idx(down) + s * b_.Idx(col_.dilation * kPitch))
              : b_.Idx(i / col_.taps * down + i % col_.taps * col_.dilation * kPitch));
    }
  }

  // ---- pieces
  void EnterPiece(Block& out, const Expr& step) {
    const Expr piece = b_.Let(out, "piece", step * splits_ + split_);
    const Index at = b_.Unravel(out, piece, {image_groups_, row_groups_, column_blocks_},
                                {p_.image_groups, p_.row_groups, p_.column_blocks}, "piece");
    first_image_ = b_.Let(out, "first_image", at[0] * b_.Idx(p_.images));
    first_row_ = b_.Let(out, "first_row", at[1] * b_.Idx(p_.rows));
    first_col_ = b_.Let(out, "first_col", at[2] * b_.Idx(p_.columns));
    exists_ = b_.Let(out, "exists", tile::And(tile::Lt(piece, pieces_), tile::Lt(step, steps_)));
    const auto here = [&](const char* name, int64_t most, const Expr& left) {
      return most == 1 ? b_.Idx(1)
                       : b_.Let(out, name, tile::Op(ScalarOp::kMin, {b_.Idx(most), left}));
    };
    images_here_ = here("images_here", p_.images, b_.Extent(shape_.y, 0) - first_image_);
    rows_here_ =
        flat() ? b_.Idx(1) : here("rows_here", p_.rows, b_.Extent(shape_.y, 2) - first_row_);
    cols_here_ =
        here("cols_here", p_.columns, b_.Extent(shape_.y, shape_.spatial + 1) - first_col_);
  }

  struct Pixel {
    Expr image, row, col;  // in the piece
  };
  Pixel Split(Block& out, const Expr& number, int64_t rows, int64_t columns) {
    const Expr line = b_.Let(out, "line", number / b_.Idx(columns));
    Pixel p;
    p.col = b_.Let(out, "col", number - line * b_.Idx(columns));
    p.image = b_.Let(out, "image", line / b_.Idx(rows));
    p.row = b_.Let(out, "row", line - p.image * b_.Idx(rows));
    return p;
  }

  void StartPiece(Block& out, const Expr& step) {
    EnterPiece(out, step);
    const Expr slot = b_.Let(out, "to_slot", step % b_.Idx(2));
    StartX(out, slot);
    StartDy(out, slot);
    out.push_back({tile::CommitAsync{}});
  }

  // A thread's chunk of channels is the same for all its pixels.
  template <class F>
  void EachPixel(Block& out, int64_t pixels, F&& copy) {
    constexpr int64_t kAlong = kSlab / kChunk;
    const int64_t step = threads() / kAlong;
    const Expr local = b_.Let(out, "local", Var("tx") % b_.Idx(kAlong) * b_.Idx(kChunk));
    const Expr channel = b_.Let(out, "channel", first_channel_ + local);
    Loop(out, "i", b_.Idx(CeilDiv(pixels, step)), Bind::kSerial, [&](Block& one, const Expr& i) {
      const Expr number = b_.Let(one, "number", i * b_.Idx(step) + Var("tx") / b_.Idx(kAlong));
      Block inside;
      copy(inside, number, local, channel);
      one.push_back({tile::If{tile::Lt(number, b_.Idx(pixels)), std::move(inside), {}}});
    });
  }

  void StartX(Block& out, const Expr& slot) {
    const Expr first_h =
        b_.Let(out, "first_h", first_row_ * b_.Idx(row_.stride) - b_.Idx(row_.pad));
    const Expr first_w =
        b_.Let(out, "first_w", first_col_ * b_.Idx(col_.stride) - b_.Idx(col_.pad));
    const Expr to = b_.Let(out, "x_to", slot * b_.Idx(x_elements()));
    EachPixel(out, p_.images * p_.staged_rows * p_.staged_columns,
              [&](Block& one, const Expr& number, const Expr& local, const Expr& channel) {
                const Pixel at = Split(one, number, p_.staged_rows, p_.staged_columns);
                Expr valid = tile::And(exists_, tile::Lt(channel, b_.Extent(shape_.x, 1)));
                valid = tile::And(valid, tile::Lt(at.image, images_here_));
                Index index = {first_image_ + at.image, channel};
                const Expr pixel =
                    at.image * b_.Idx(p_.image_pitch) + at.row * b_.Idx(p_.row_pitch) + at.col;
                const auto walk = [&](const char* name, const Expr& place, int64_t dim) {
                  index.push_back(b_.Let(one, name, place));
                  valid =
                      tile::And(valid, tile::And(tile::Ge(index.back(), b_.Idx(0)),
                                                 tile::Lt(index.back(), b_.Extent(shape_.x, dim))));
                };
                if (!flat()) walk("h", first_h + at.row, 2);
                walk("w_at", first_w + at.col, shape_.spatial + 1);
                one.push_back(
                    {tile::CopyAsync{x_, to + pixel * b_.Idx(kPitch) + local, b_.Pointer(shape_.x),
                                     b_.Offset(shape_.x, index), static_cast<int>(kChunk), valid}});
              });
  }

  void StartDy(Block& out, const Expr& slot) {
    const Expr to = b_.Let(out, "dy_to", slot * b_.Idx(dy_elements()));
    EachPixel(out, p_.pixels,
              [&](Block& one, const Expr& number, const Expr& local, const Expr& channel) {
                const Pixel at = Split(one, number, p_.rows, p_.columns);
                Expr valid = tile::And(exists_, tile::Lt(channel, b_.Extent(shape_.y, 1)));
                valid = tile::And(valid, tile::Lt(at.image, images_here_));
                valid = tile::And(valid, tile::Lt(at.row, rows_here_));
                valid = tile::And(valid, tile::Lt(at.col, cols_here_));
                Index index = {first_image_ + at.image, channel};
                if (!flat()) index.push_back(first_row_ + at.row);
                index.push_back(first_col_ + at.col);
                one.push_back({tile::CopyAsync{dy_, to + number * b_.Idx(kPitch) + local,
                                               b_.Pointer(shape_.y), b_.Offset(shape_.y, index),
                                               static_cast<int>(kChunk), valid}});
              });
  }

  // ---- 16 outputs
  void Multiply(Block& body, const Expr& first) {
    const std::string a = b_.Name("dy_fragment");
    body.push_back({tile::Alloc{a, type_, tile::Space::kReg, 8 * p_.halves()}});
    // Matrix i of four: of dy pixels (i / 2) * 8 on, filters (i % 2) * 8 on; of x the other way
    // round.
    const Expr matrix = lane_ / b_.Idx(8), low = lane_ % b_.Idx(8);
    const Expr dy_pixel = first + matrix / b_.Idx(2) * b_.Idx(8) + low;
    const Expr dy_at =
        dy_slot_ + dy_pixel * b_.Idx(kPitch) + half_ * b_.Idx(16) + matrix % b_.Idx(2) * b_.Idx(8);
    const Expr dy_first = b_.Let(body, "dy_at", dy_at);
    for (int64_t h = 0; h < p_.halves(); ++h)
      body.push_back({tile::LoadMatrix{a, b_.Idx(h * 8), dy_, dy_first + b_.Idx(h * 16), 4, true}});
    const Expr number = b_.Let(body, "number", first + matrix % b_.Idx(2) * b_.Idx(8) + low);
    const Pixel at = Split(body, number, p_.rows, p_.columns);
    const auto within = [&](const Expr& i, const Expr& count) {
      const Expr last = tile::Op(ScalarOp::kMax, {count - b_.Idx(1), b_.Idx(0)});
      return tile::Op(ScalarOp::kMin, {i, last});
    };
    const Expr place = within(at.image, images_here_) * b_.Idx(p_.image_pitch) +
                       within(at.row, rows_here_) * b_.Idx(row_.stride * p_.row_pitch) +
                       within(at.col, cols_here_) * b_.Idx(col_.stride);
    // With 32 channels a group the filters of a warp meet all columns, else the 16 beside them.
    Expr column = matrix / b_.Idx(2) * b_.Idx(8);
    if (by_rows()) {
      const int64_t down = row_.dilation * p_.row_pitch * kPitch;
      column = column + filter_row_ * b_.Idx(down);
    }
    if (p_.tiles == 2) column = column + channel_half_ * b_.Idx(16);
    const Expr base = b_.Let(body, "x_at", x_slot_ + place * b_.Idx(kPitch) + column);
    for (int64_t tap = 0; tap < p_.taps_of_set; ++tap) {
      for (int64_t j = 0; j < p_.tiles; j += 2) {
        const std::string x = b_.Name("x_fragment");
        body.push_back({tile::Alloc{x, type_, tile::Space::kReg, 8}});
        body.push_back(
            {tile::LoadMatrix{x, b_.Idx(0), x_, base + shifts_[tap] + b_.Idx(j * 8), 4, true}});
        for (int64_t h = 0; h < p_.halves(); ++h)
          for (int64_t k = 0; k < 2; ++k)
            body.push_back({tile::Mma{acc_, b_.Idx(SumAt(h, tap, j + k)), a, b_.Idx(h * 8), x,
                                      b_.Idx(k * 4)}});
      }
    }
  }

  int64_t SumAt(int64_t half, int64_t tap, int64_t tile) const {
    return ((half * p_.taps_of_set + tap) * p_.tiles + tile) * 4;
  }

  void WriteOwnSums(Block& body) {
    const std::string sums = b_.Scratch(0, DType::kF32, false);
    const Expr pitch = b_.Arg("sums_pitch", padded_filters());
    for (int64_t h = 0; h < p_.halves(); ++h)
      for (int64_t tap = 0; tap < p_.taps_of_set; ++tap)
        for (int64_t e = 0; e < p_.tiles * 4; ++e)
          WriteSum(body, b_.Idx(h), tap, e, Sum(SumAt(h, tap, 0) + e), sums, pitch);
  }

  // ---- sums: the second part of k hands its own to the first, tap by tap
  void WriteSums(Block& body) {
    if (by_rows()) return WriteOwnSums(body);
    const int64_t size = p_.tiles * 4;
    const std::string shared = b_.Name("part_sums"), sums = b_.Scratch(0, DType::kF32, false);
    body.push_back({tile::Alloc{shared, DType::kF32, tile::Space::kShared, 2 * kWarp * size}});
    const Expr pitch = b_.Arg("sums_pitch", padded_filters());
    const Expr is_first = b_.Let(body, "is_first", tile::Op(ScalarOp::kEq, {part_, b_.Idx(0)}));
    const Expr is_second = b_.Let(body, "is_second", tile::Op(ScalarOp::kEq, {part_, b_.Idx(1)}));
    const Expr mine = b_.Let(body, "mine", half_ * b_.Idx(kWarp) + lane_);
    const auto sum_at = [&](int64_t e) { return b_.Idx(e * 2 * kWarp) + mine; };
    for (int64_t tap = 0; tap < p_.taps_of_set; ++tap) {
      Block hand, write;
      for (int64_t e = 0; e < size; ++e)
        hand.push_back({tile::Store{shared, sum_at(e), Sum(tap * size + e)}});
      body.push_back({tile::If{is_second, std::move(hand), {}}});
      body.push_back({tile::Barrier{}});
      for (int64_t e = 0; e < size; ++e)
        WriteSum(write, half_, tap, e,
                 Sum(tap * size + e) + tile::Load(shared, DType::kF32, sum_at(e)), sums, pitch);
      Expr guard = is_first;
      if (p_.tap_sets > 1)
        guard = tile::And(guard, tile::Lt(first_tap_ + b_.Idx(tap), b_.Idx(taps())));
      body.push_back({tile::If{guard, std::move(write), {}}});
      body.push_back({tile::Barrier{}});
    }
  }
  Expr Sum(int64_t slot) const { return tile::Load(acc_, DType::kF32, b_.Idx(slot)); }

  // Only what filters and channels of one group have in common.
  void WriteSum(Block& out, const Expr& half, int64_t tap, int64_t e, const Expr& sum,
                const std::string& sums, const Expr& pitch) {
    const Expr filter = half * b_.Idx(16) + b_.Idx(e % 4 / 2 * 8) + g_;  // of the slab
    Expr channel = b_.Idx(e / 4 * 8 + e % 2) + t4_ * b_.Idx(2);
    if (p_.tiles == 2) channel = channel + channel_half_ * b_.Idx(16);
    const Expr per_group = b_.Idx(shape_.channels);
    const Expr row =
        split_ * b_.Idx(sum_rows()) + (first_tap_ + b_.Idx(tap)) * per_group + channel % per_group;
    Block inside;
    inside.push_back({tile::Store{sums, row * pitch + first_channel_ + filter, sum}});
    out.push_back({tile::If{tile::Op(ScalarOp::kEq, {filter / per_group, channel / per_group}),
                            std::move(inside),
                            {}}});
  }

  void Store(KernelBuilder& b, Block& out, const Expr& row, const Expr& filter, const Expr& first,
             const Expr& sum) {
    const Expr tap = b.Let(out, "tap", row / b.Idx(shape_.channels));
    Index index = {filter, b.Let(out, "c", row % b.Idx(shape_.channels))};
    const auto at = [&](const Expr& i, int64_t count) {
      return b.Let(out, "at", shape_.flip ? b.Idx(count - 1) - i : i);
    };
    if (!flat()) index.push_back(at(tap / b.Idx(col_.taps), row_.taps));
    index.push_back(at(flat() ? tap : tap % b.Idx(col_.taps), col_.taps));
    const Expr guard = tile::And(first, tile::Lt(filter, b.Extent(shape_.w, 0)));
    StoreTotal(b, out, group_.graph, shape_.w, index, guard, sum);
  }

  const Group& group_;
  const Target& target_;
  ConvShape shape_;
  WgradMmaPlan p_;
  AxisSize row_, col_;
  DType type_;
  KernelBuilder b_;
  Expr first_channel_, first_tap_, split_, splits_, steps_, pieces_;
  Expr row_groups_, column_blocks_, image_groups_;
  Expr lane_, half_, part_, channel_half_, filter_row_, g_, t4_;
  Expr first_image_, first_row_, first_col_, exists_, images_here_, rows_here_, cols_here_;
  Expr x_slot_, dy_slot_;
  std::vector<Expr> shifts_;  // of the block's taps
  std::string x_, dy_, acc_;
};

// Short rows: outputs that are 8 apart, and no others, read x from the same banks if the step to
// the next row is as many pixels, modulo 8, as the outputs of a row take; likewise images.
void Spread(WgradMmaPlan& p, const AxisSize& row, const AxisSize& col) {
  const auto fit = [](int64_t least, int64_t stride, int64_t wanted) {
    for (int64_t pitch = least; pitch < least + 8; ++pitch)
      if ((pitch * stride - wanted) % 8 == 0) return pitch;
    return least;
  };
  p.row_pitch = fit(p.staged_columns, row.stride, p.columns * col.stride);
  p.image_pitch = fit(p.staged_rows * p.row_pitch, 1, p.rows * p.columns * col.stride);
}

void FitPiece(WgradMmaPlan& p, const AxisSize& row, const AxisSize& col) {
  p.staged_rows = Reach(row, p.rows);
  p.staged_columns = Reach(col, p.columns);
  p.row_pitch = p.staged_columns;
  p.image_pitch = p.staged_rows * p.row_pitch;
  if (p.columns < 16 && col.stride % 2 == 1) Spread(p, row, col);
  p.pixels = AlignUp(p.images * p.rows * p.columns, 16 * p.parts());
  const int64_t staged = p.images * p.image_pitch + p.pixels;
  p.shared_bytes = 2 * staged * kPitch * 2;
  if (p.row_warps == 0) p.shared_bytes += 2 * kWarp * p.tiles * 4 * 4;
  p.fits = p.shared_bytes <= kMostShared;
}

}  // namespace

WgradMmaPlan WgradMmaPlanOf(const Group& group, const Target& target, const ConvShape& shape,
                            const DirectKnobs& knobs) {
  constexpr int64_t kMostColumns = 64, kMostTiles = 36;  // tiles of a warp, 4 registers each
  const Dims& y = group.graph[shape.y].dims;
  const AxisSize row = AxisOf(shape, shape.spatial - 2), col = AxisOf(shape, shape.spatial - 1);
  const int64_t images = y[0], rows = shape.spatial == 1 ? 1 : y[2], columns = y.back();
  WgradMmaPlan p;
  p.tiles = shape.channels > 16 ? 4 : 2;
  const int64_t most_taps = p.tiles == 2 ? 15 : kMostTiles / 4;
  p.tap_sets = CeilDiv(row.taps * col.taps, most_taps);
  p.taps_of_set = CeilDiv(row.taps * col.taps, p.tap_sets);
  // Two warps for each filter row, with 16 channels each: 3 taps with all filters are 48 sums.
  if (p.tiles == 4 && col.taps <= 3 && row.taps >= 2 && row.taps <= 4) {
    p.tiles = 2;
    p.row_warps = 2 * row.taps;
    p.tap_sets = 1;
    p.taps_of_set = col.taps;
  }
  p.column_blocks = CeilDiv(columns, kMostColumns);
  p.columns = std::max<int64_t>(CeilDiv(columns, std::max<int64_t>(p.column_blocks, 1)), 1);
  const int64_t wanted = int64_t{knobs.rows} * 64;  // outputs
  p.rows = std::clamp<int64_t>(wanted / p.columns, 1, std::max<int64_t>(rows, 1));
  if (p.rows == rows)
    p.images = std::clamp<int64_t>(wanted / (p.rows * p.columns), 1, std::max<int64_t>(images, 1));
  for (FitPiece(p, row, col); !p.fits; FitPiece(p, row, col)) {
    int64_t& largest = p.images > 1 ? p.images : p.rows > 1 ? p.rows : p.columns;
    if (largest <= 1) break;
    largest = CeilDiv(largest, 2);
  }
  p.row_groups = CeilDiv(rows, p.rows);
  p.column_blocks = CeilDiv(columns, p.columns);
  p.image_groups = CeilDiv(images, p.images);
  p.slabs = CeilDiv(group.graph[shape.y].dims[1], kSlab);
  // Whole waves: blocks have equal work.
  const int64_t registers = ResidentByRegisters(p, shape);
  p.resident = std::clamp<int64_t>(target.shared_bytes_per_block / p.shared_bytes, 1, registers);
  const int64_t blocks = std::max<int64_t>(p.resident * knobs.steps / 4, 1) *
                         std::max<int64_t>(target.multiprocessors, 1);
  const int64_t least =
      CeilDiv(p.pieces() * p.pixels, MostProductsAlone(DType::kF16, WidestOutput(group.graph)));
  p.splits =
      std::clamp<int64_t>(std::max(blocks / std::max<int64_t>(p.slabs * p.tap_sets, 1), least), 1,
                          std::max<int64_t>(p.pieces(), 1));
  return p;
}

bool TakesWgradMma(const Group& group, const Target& target, const ConvShape& shape) {
  const graph::Graph& g = group.graph;
  const DType type = g[shape.x].dtype;
  if (target.sm_version < 80 || type != g[shape.y].dtype || shape.spatial > 2) return false;
  if (type != DType::kF16 && type != DType::kBF16) return false;
  if (shape.channels != shape.filters || shape.channels < 1 || shape.channels > kSlab) return false;
  if (!std::has_single_bit(static_cast<uint64_t>(shape.channels))) return false;
  if (ArithmeticType(ContractionOf(group).compute) != DType::kF32) return false;
  if (NumElements(g[shape.y].dims) == 0 || NumElements(g[shape.x].dims) == 0) return false;
  return ComesByPieces(group, shape.x, kChunk) && ComesByPieces(group, shape.y, kChunk) &&
         WgradMmaPlanOf(group, target, shape, {.rows = 1, .cols = 1, .steps = 1, .run = 8}).fits;
}

Lowered LowerDirectWgradMma(const Group& group, const Target& target, const ConvShape& shape,
                            const DirectKnobs& knobs) {
  return Schedule(group, target, shape, knobs).Lower();
}

}  // namespace kiln::compiler
