// Wgrad of conv_first_layer on mma.m16n8k16: rows are filters, columns the slots of filter rows (as
// fprop's k), and k runs over the outputs.
//
//   block    64 filters times all columns; walks every splits-th piece and keeps its sums in
//            registers, which it writes as f32 in the end
//   A        dy of the piece in shared memory, pixel after pixel, transposed by ldmatrix
//   places   where each pixel of the piece reads x, made once a piece for all warps
//   B        x from the staged rows, two elements at a time: of a pair of chunks, the 16 slots by
//            twos are 8 columns of two tiles, the even slots in one and the odd ones in the other
//   async    where both operands lie so: the next piece comes into the other half of shared memory
//   sums     scratch[split][column][filter]; the second kernel adds the splits in a fixed order
//
// Pixels past the end of a piece are zeros of dy; they read x where a pixel of the piece does, so
// that a NaN reaches only sums that it belongs to.
#include "compiler/engines/conv_first_layer/wgrad.h"

#include <algorithm>

#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/lane_access.h"
#include "compiler/kernel/ordered_sum.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

// As many as asked for, at least as many as keep sums short.
int64_t SplitsOf(const graph::Graph& g, int64_t pieces, int64_t pixels, int64_t wanted) {
  const int64_t most = MostProductsAlone(DType::kF16, WidestOutput(g));
  const int64_t least = CeilDiv(pieces * pixels, most);
  return std::max<int64_t>(std::min(std::max(wanted, least), pieces), 1);
}

constexpr int64_t kDyPad = 8;  // elements a pixel, against bank conflicts of ldmatrix

class Schedule : private FirstLayerTiles {
 public:
  Schedule(const Group& group, const Target& target, const ConvShape& shape,
           const FirstLayerPlan& plan, int64_t splits)
      : FirstLayerTiles(
            group, target, shape, plan,
            fmt::format("conv_first_layer, wgrad: rows={}, first of two stages", plan.rows)),
        target_(target),
        s_(WgradSizesOf(group, shape, plan)),
        splits_(SplitsOf(group.graph, PiecesOf(group, shape, plan), s_.pixels, splits)),
        dy_(group, {shape.y}, -1, 8) {}

  Lowered Lower() {
    Lowered lowered;
    lowered.scratch_bytes.push_back(splits_ * s_.columns * kChunk * padded_filters() * 4);
    Block body;
    const auto where = b_.Divide(body, Var("bx"), b_.Arg("slabs", s_.slabs), s_.slabs, "slab");
    split_ = where.quotient;
    lane_ = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarp));
    warp_ = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarp));
    g_ = b_.Let(body, "g", lane_ / b_.Idx(4));
    t4_ = b_.Let(body, "t4", lane_ % b_.Idx(4));
    first_filter_ = b_.Let(body, "first_filter", where.remainder * b_.Idx(s_.tiles * 16));
    Declare(body);
    split_count_ = b_.Arg("splits", splits_);
    if (s_.async) StartPiece(body, b_.Idx(0));
    Block loop;
    const Expr step = Var("step");
    if (s_.async) StartPiece(loop, b_.Let(loop, "ahead", step + b_.Idx(1)));
    EnterPiece(loop, b_.Let(loop, "piece", step * split_count_ + split_));
    x_slot_ = dy_slot_ = b_.Idx(0);
    CountPixels(loop);
    if (s_.async) {
      x_slot_ = b_.Let(loop, "x_slot", step % b_.Idx(2) * b_.Idx(p_.staged_elements()));
      dy_slot_ = b_.Let(loop, "dy_slot", step % b_.Idx(2) * b_.Idx(s_.pixels * pitch()));
      loop.push_back({tile::WaitAsync{1}});
    } else {
      if (p_.wide) {
        StartRows(loop, b_.Idx(0));
        loop.push_back({tile::CommitAsync{}});
      } else {
        StageRows(loop);
      }
      StageDy(loop);
      if (p_.wide) loop.push_back({tile::WaitAsync{0}});
    }
    FillPlaces(loop);
    loop.push_back({tile::Barrier{}});
    Loop(loop, "kk", b_.Idx(s_.pixels / 16), Bind::kSerial,
         [&](Block& one, const Expr& kk) { Multiply(one, kk * b_.Idx(16)); });
    loop.push_back({tile::Barrier{}});
    const int64_t steps = CeilDiv(PiecesOf(group_, shape_, p_), splits_);
    if (!steps_) steps_ = b_.Arg("steps", steps);
    body.push_back({tile::For{"step", t(), steps_, Bind::kSerial, std::move(loop)}});
    if (s_.async) body.push_back({tile::WaitAsync{0}});
    WriteSums(body);
    const int64_t blocks = splits_ * s_.slabs;
    body = BlockAndThread(t(), b_.Arg("grid", blocks), kThreads, std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, kThreads, lowered);
    LowerOrderedSum(
        group_, target_, "conv_first_layer, wgrad: adds the splits",
        {.splits = splits_, .rows = s_.columns * kChunk, .columns = padded_filters()},
        [this](KernelBuilder& b, Block& out, const Expr& row, const Expr& filter, const Expr& first,
               const Expr& sum) { Store(b, out, row, filter, first, sum); },
        lowered);
    return lowered;
  }

 private:
  int64_t padded_filters() const { return s_.slabs * s_.tiles * 16; }
  int64_t pitch() const { return s_.tiles * 16 + kDyPad; }
  int64_t slots() const { return s_.async ? 2 : 1; }

  void Declare(Block& body) {
    staged_ = b_.Name("x_rows");
    body.push_back(
        {tile::Alloc{staged_, type_, tile::Space::kShared, slots() * p_.staged_elements()}});
    panel_ = b_.Name("dy_pixels");
    body.push_back(
        {tile::Alloc{panel_, type_, tile::Space::kShared, slots() * s_.pixels * pitch()}});
    places_ = b_.Name("x_places");
    body.push_back({tile::Alloc{places_, t(), tile::Space::kShared, s_.pixels}});
    acc_ = b_.Name("acc");
    const int64_t accumulators = s_.per_warp * s_.tiles * 4;
    body.push_back({tile::Alloc{acc_, DType::kF32, tile::Space::kReg, accumulators}});
    Loop(body, "z", b_.Idx(accumulators), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{acc_, z, Zero(DType::kF32)}});
    });
    for (int64_t j = 0; j < s_.per_warp / 2; ++j) {
      const Expr pair = b_.Let(body, "pair", warp_ + b_.Idx(j * kWarps));
      const Expr mine = pair * b_.Idx(2) + g_ / b_.Idx(4);
      // Chunks past the last repeat it, and are not written.
      const Expr safe =
          b_.Let(body, "column", tile::Op(ScalarOp::kMin, {mine, b_.Idx(s_.columns - 1)}));
      const Expr slot = b_.Let(
          body, "slot", safe % b_.Idx(p_.chunks) * b_.Idx(kChunk) + g_ % b_.Idx(4) * b_.Idx(2));
      const Expr row = safe / b_.Idx(p_.chunks) * b_.Idx(p_.row_dilation * p_.pitch);
      pairs_.push_back(pair);
      offsets_.push_back(b_.Let(body, "offset",
                                b_.Idx(p_.first_place()) + row +
                                    slot / b_.Idx(p_.pixel) * b_.Idx(p_.dilation * p_.pixel) +
                                    slot % b_.Idx(p_.pixel)));
    }
  }

  // Starts both operands of the block's piece `number` into slot number % 2.
  void StartPiece(Block& out, const Expr& number) {
    const int64_t steps = CeilDiv(PiecesOf(group_, shape_, p_), splits_);
    if (!steps_) steps_ = b_.Arg("steps", steps);
    EnterPiece(out, b_.Let(out, "piece", number * split_count_ + split_), tile::Lt(number, steps_));
    CountPixels(out);
    StartRows(out, b_.Let(out, "x_to", number % b_.Idx(2) * b_.Idx(p_.staged_elements())));
    StartDy(out, b_.Let(out, "dy_to", number % b_.Idx(2) * b_.Idx(s_.pixels * pitch())));
    out.push_back({tile::CommitAsync{}});
  }

  // Whether pixel `number` of the piece is an output, and its place.
  struct Pixel {
    Expr row, col;
  };
  Pixel PixelAt(Block& out, const Expr& number) {
    const auto at = b_.Divide(out, number, columns_, p_.columns, "pixel_col");
    return {at.quotient, at.remainder};
  }
  Expr RowsHere() {  // of the piece that exist, at least 1
    if (shape_.spatial == 1) return b_.Idx(1);
    const Expr left = b_.Extent(shape_.y, 2) - first_row_;
    return tile::Op(ScalarOp::kMin, {b_.Idx(p_.rows), left});
  }
  Expr ColsHere() {
    const Expr left = b_.Extent(shape_.y, shape_.spatial + 1) - first_col_;
    return tile::Op(ScalarOp::kMin, {columns_, left});
  }

  void CountPixels(Block& out) {
    rows_here_ = b_.Let(out, "rows_here", RowsHere());
    cols_here_ = b_.Let(out, "cols_here", ColsHere());
  }

  // Where vector `flat` of dy's pixels comes from and goes to, and whether it exists.
  struct DyVector {
    Expr number, to, guard;
    Index at;
  };
  DyVector DyVectorAt(Block& out, const Expr& i) {
    const int64_t vectors = s_.tiles * 2;  // of 8 filters
    const Expr flat = b_.Let(out, "flat", i * b_.Idx(kThreads) + Var("tx"));
    DyVector v;
    v.number = b_.Let(out, "number", flat / b_.Idx(vectors));
    const Expr local = b_.Let(out, "local", flat % b_.Idx(vectors) * b_.Idx(8));
    v.to = v.number * b_.Idx(pitch()) + local;
    const Pixel pixel = PixelAt(out, v.number);
    const Expr filter = b_.Let(out, "filter", first_filter_ + local);
    v.guard = tile::And(exists_, tile::Lt(pixel.row, rows_here_));
    v.guard = tile::And(v.guard, tile::Lt(pixel.col, cols_here_));
    v.guard = tile::And(v.guard, tile::Lt(filter, b_.Extent(shape_.y, 1)));
    v.at = {image_, filter};
    if (shape_.spatial == 2) v.at.push_back(first_row_ + pixel.row);
    v.at.push_back(first_col_ + pixel.col);
    return v;
  }
  int64_t DyTurns() const { return CeilDiv(s_.pixels * s_.tiles * 2, kThreads); }

  void StartDy(Block& body, const Expr& to) {
    Loop(body, "i", b_.Idx(DyTurns()), Bind::kSerial, [&](Block& one, const Expr& i) {
      const DyVector v = DyVectorAt(one, i);
      Block copy;
      copy.push_back({tile::CopyAsync{panel_, to + v.to, b_.Pointer(shape_.y),
                                      b_.Offset(shape_.y, v.at), 8, v.guard}});
      one.push_back({tile::If{tile::Lt(v.number, b_.Idx(s_.pixels)), std::move(copy), {}}});
    });
  }

  void StageDy(Block& body) {
    Loop(body, "i", b_.Idx(DyTurns()), Bind::kSerial, [&](Block& one, const Expr& i) {
      const std::string regs = b_.Name("dy_regs");
      one.push_back({tile::Alloc{regs, type_, tile::Space::kReg, 8}});
      Loop(one, "z", b_.Idx(8), Bind::kUnroll, [&](Block& clear, const Expr& z) {
        clear.push_back({tile::Store{regs, z, Zero(type_)}});
      });
      const DyVector v = DyVectorAt(one, i);
      Block read;
      dy_.Read(b_, read, v.at, regs, b_.Idx(0), type_);
      one.push_back({tile::If{v.guard, std::move(read), {}}});
      Block store;
      WideCopy(store, type_, panel_, v.to, regs, b_.Idx(0), 8);
      one.push_back({tile::If{tile::Lt(v.number, b_.Idx(s_.pixels)), std::move(store), {}}});
    });
  }

  // Where the pixels of the piece read x, in their order.
  void FillPlaces(Block& body) {
    const auto within = [&](const Expr& i, const Expr& count) {
      const Expr last = tile::Op(ScalarOp::kMax, {count - b_.Idx(1), b_.Idx(0)});
      return tile::Op(ScalarOp::kMin, {i, last});
    };
    Loop(body, "i", b_.Idx(CeilDiv(s_.pixels, kThreads)), Bind::kSerial,
         [&](Block& one, const Expr& i) {
           const Expr number = b_.Let(one, "number", i * b_.Idx(kThreads) + Var("tx"));
           Block fill;
           const Pixel at = PixelAt(fill, number);
           const Expr place = within(at.row, rows_here_) * b_.Idx(p_.row_stride * p_.pitch) +
                              within(at.col, cols_here_) * b_.Idx(p_.stride * p_.pixel);
           fill.push_back({tile::Store{places_, number, place}});
           one.push_back({tile::If{tile::Lt(number, b_.Idx(s_.pixels)), std::move(fill), {}}});
         });
  }

  void Multiply(Block& body, const Expr& first) {
    const std::string a = b_.Name("dy_fragment");
    body.push_back({tile::Alloc{a, type_, tile::Space::kReg, s_.tiles * 8}});
    // Matrix i of four: pixels (i / 2) * 8 on, filters (i % 2) * 8 on.
    const Expr matrix = lane_ / b_.Idx(8);
    const Expr pixel = first + matrix / b_.Idx(2) * b_.Idx(8) + lane_ % b_.Idx(8);
    const Expr from =
        b_.Let(body, "dy_at", dy_slot_ + pixel * b_.Idx(pitch()) + matrix % b_.Idx(2) * b_.Idx(8));
    for (int64_t m = 0; m < s_.tiles; ++m)
      body.push_back({tile::LoadMatrix{a, b_.Idx(m * 8), panel_, from + b_.Idx(m * 16), 4, true}});
    const std::string at = b_.Name("x_at");
    body.push_back({tile::Alloc{at, t(), tile::Space::kReg, 4}});
    for (int half = 0; half < 2; ++half)
      WideCopy(body, t(), at, b_.Idx(half * 2), places_, first + b_.Idx(half * 8) + t4_ * b_.Idx(2),
               2);
    std::vector<Expr> bases;
    for (int k = 0; k < 4; ++k)
      bases.push_back(b_.Let(body, "base", x_slot_ + tile::Load(at, t(), b_.Idx(k))));
    for (int64_t j = 0; j < s_.per_warp / 2; ++j) {
      const std::string both = b_.Name("x_pairs");
      body.push_back({tile::Alloc{both, type_, tile::Space::kReg, 8}});
      for (int k = 0; k < 4; ++k)
        WideCopy(body, type_, both, b_.Idx(k * 2), staged_, bases[k] + offsets_[j], 2);
      for (int odd = 0; odd < 2; ++odd) {
        const std::string fragment = b_.Name("x_fragment");
        body.push_back({tile::Alloc{fragment, type_, tile::Space::kReg, 4}});
        for (int k = 0; k < 4; ++k)
          body.push_back(
              {tile::Store{fragment, b_.Idx(k), tile::Load(both, type_, b_.Idx(k * 2 + odd))}});
        for (int64_t m = 0; m < s_.tiles; ++m)
          body.push_back({tile::Mma{acc_, b_.Idx(((j * 2 + odd) * s_.tiles + m) * 4), a,
                                    b_.Idx(m * 8), fragment, b_.Idx(0)}});
      }
    }
  }

  void WriteSums(Block& body) {
    const std::string sums = b_.Scratch(0, DType::kF32, false);
    const Expr pitch = b_.Arg("sums_pitch", padded_filters());
    for (int64_t j = 0; j < s_.per_warp / 2; ++j) {
      const Expr column = b_.Let(body, "column", pairs_[j] * b_.Idx(2) + t4_ / b_.Idx(2));
      Block write;
      for (int odd = 0; odd < 2; ++odd) {
        for (int64_t m = 0; m < s_.tiles; ++m) {
          for (int e = 0; e < 4; ++e) {
            const Expr slot =
                column * b_.Idx(kChunk) + t4_ % b_.Idx(2) * b_.Idx(4) + b_.Idx(e % 2 * 2 + odd);
            const Expr filter = first_filter_ + b_.Idx(m * 16 + e / 2 * 8) + g_;
            const Expr row = split_ * b_.Idx(s_.columns * kChunk) + slot;
            const int64_t sum = ((j * 2 + odd) * s_.tiles + m) * 4 + e;
            write.push_back({tile::Store{sums, row * pitch + filter,
                                         tile::Load(acc_, DType::kF32, b_.Idx(sum))}});
          }
        }
      }
      body.push_back({tile::If{tile::Lt(column, b_.Idx(s_.columns)), std::move(write), {}}});
    }
  }

  void Store(KernelBuilder& b, Block& body, const Expr& row, const Expr& filter, const Expr& first,
             const Expr& total) {
    const Expr slot = b.Let(body, "slot", row % b.Idx(p_.chunks * kChunk));
    const Expr r = row / b.Idx(p_.chunks * kChunk);
    const Expr in_run = p_.shift == 0 ? slot : slot - b.Idx(p_.shift);
    const Expr s = in_run / b.Idx(p_.pixel), c = b.Let(body, "c", in_run % b.Idx(p_.pixel));
    Expr guard = tile::And(first, tile::Lt(slot, b.Idx(p_.end_slot())));
    if (p_.shift != 0) guard = tile::And(guard, tile::Ge(slot, b.Idx(p_.shift)));
    guard = tile::And(guard, tile::Lt(c, b.Idx(shape_.channels)));
    guard = tile::And(guard, tile::Lt(filter, b.Extent(shape_.w, 0)));
    const auto tap = [&](const Expr& i, int64_t count) {
      return shape_.flip ? b.Idx(count - 1) - i : i;
    };
    Index at = {filter, c};
    if (shape_.spatial == 2) at.push_back(tap(r, p_.row_taps));
    at.push_back(tap(s, p_.taps));
    StoreTotal(b, body, group_.graph, shape_.w, at, guard, total);
  }

  const Target& target_;
  FirstLayerWgradSizes s_;
  int64_t splits_;
  LaneAccess dy_;
  Expr split_, lane_, warp_, g_, t4_, first_filter_, rows_here_, cols_here_;
  Expr split_count_, steps_, x_slot_, dy_slot_;
  std::vector<Expr> pairs_, offsets_;  // of chunks: their numbers, and where a lane reads
  std::string panel_, places_, acc_;
};

}  // namespace

FirstLayerWgradSizes WgradSizesOf(const Group& group, const ConvShape& shape,
                                  const FirstLayerPlan& plan) {
  constexpr int64_t kWarps = 4, kChunk = 8,
                    kMostAccumulators = 24;  // tiles of a warp, 4 registers each
  const int64_t place_bytes = IndexType(group.graph) == DType::kI64 ? 8 : 4;
  FirstLayerWgradSizes s;
  s.columns = plan.row_taps * plan.chunks;
  s.per_warp = CeilDiv(s.columns, 2 * kWarps) * 2;
  s.tiles = shape.filters > 32 && s.per_warp * 4 <= kMostAccumulators ? 4 : 2;
  s.slabs = CeilDiv(shape.filters, s.tiles * 16);
  s.pixels = AlignUp(plan.rows * AlignUp(plan.columns, 16), 16);
  const int64_t elements = plan.staged_elements() + s.pixels * (s.tiles * 16 + kDyPad);
  // Two pieces at a time of two blocks.
  constexpr int64_t kMostAsync = 110 * 1024;
  s.async = plan.wide && ComesByPieces(group, shape.y, kChunk) &&
            elements * 4 + s.pixels * place_bytes <= kMostAsync;
  s.shared_bytes = elements * (s.async ? 2 : 1) * 2 + s.pixels * place_bytes + 48;
  return s;
}

Lowered LowerFirstLayerWgrad(const Group& group, const Target& target, const ConvShape& shape,
                             const FirstLayerPlan& plan, int64_t splits) {
  return Schedule(group, target, shape, plan, splits).Lower();
}

}  // namespace kiln::compiler
