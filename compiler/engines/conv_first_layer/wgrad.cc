// Wgrad of conv_first_layer on mma.m16n8k16: rows are filters, columns the slots of filter rows (as
// fprop's k), and k runs over the outputs.
//
//   block    64 filters times all columns; walks every splits-th piece and keeps its sums in
//            registers, which it writes as f32 in the end
//   A        dy of the piece in shared memory, pixel after pixel (wgrad_pixels.h), transposed by
//            ldmatrix
//   places   where each pixel of the piece reads x, made once a piece for all warps
//   B        x from the staged rows, two elements at a time: of a pair of chunks, the 16 slots by
//            twos are 8 columns of two tiles, the even slots in one and the odd ones in the other
//   async    where both operands lie so: the next piece comes into the other half of shared memory
//   sums     scratch[split][column][filter]; the second kernel adds the splits in a fixed order
#include "compiler/engines/conv_first_layer/wgrad.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/engines/conv_first_layer/wgrad_pixels.h"
#include "compiler/kernel/accumulation.h"
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

// The sums of a warp: chunks of columns of the product, by pairs, times the block's filters.
class WgradSums {
 public:
  // The places where a warp's operands of a piece begin in shared memory.
  struct Slots {
    Expr x, dy;
  };

  WgradSums(const FirstLayerContext& context, const FirstLayerWgradSizes& sizes,
            const FirstLayerLane& lane, const FirstLayerRows& rows, const WgradPixels& pixels)
      : x_(context), s_(sizes), lane_(lane), rows_(rows), pixels_(pixels) {}

  int64_t padded_filters() const { return s_.slabs * s_.tiles * 16; }

  void Declare(Block& body) {
    KernelBuilder& b = x_.b;
    const FirstLayerPlan& p = x_.p;
    const int64_t accumulators = s_.per_warp * s_.tiles * 4;
    acc_ = Registers(b, body, "acc", DType::kF32, accumulators);
    Clear(b, body, acc_, DType::kF32, accumulators);
    for (int64_t j = 0; j < s_.per_warp / 2; ++j) {
      const Expr pair = b.Let(body, "pair", lane_.warp + b.Idx(j * kFirstLayerWarps));
      const Expr mine = pair * b.Idx(2) + lane_.g / b.Idx(4);
      // Chunks past the last repeat it, and are not written.
      const Expr safe =
          b.Let(body, "column", tile::Op(ScalarOp::kMin, {mine, b.Idx(s_.columns - 1)}));
      const Expr slot =
          b.Let(body, "slot",
                safe % b.Idx(p.chunks) * b.Idx(kFirstLayerChunk) + lane_.g % b.Idx(4) * b.Idx(2));
      const Expr row = safe / b.Idx(p.chunks) * b.Idx(p.row_dilation * p.pitch);
      pairs_.push_back(pair);
      offsets_.push_back(b.Let(body, "offset",
                               b.Idx(p.first_place()) + row +
                                   slot / b.Idx(p.pixel) * b.Idx(p.dilation * p.pixel) +
                                   slot % b.Idx(p.pixel)));
    }
  }

  // Adds the products of 16 pixels from `first` on.
  void Multiply(Block& body, const Slots& slots, const Expr& first) const {
    KernelBuilder& b = x_.b;
    const DType type = x_.type();
    const std::string a = Registers(b, body, "dy_fragment", type, s_.tiles * 8);
    // Matrix i of four: pixels (i / 2) * 8 on, filters (i % 2) * 8 on.
    const Expr matrix = lane_.lane / b.Idx(8);
    const Expr pixel = first + matrix / b.Idx(2) * b.Idx(8) + lane_.lane % b.Idx(8);
    const Expr from = b.Let(
        body, "dy_at", slots.dy + pixel * b.Idx(pixels_.pitch()) + matrix % b.Idx(2) * b.Idx(8));
    for (int64_t m = 0; m < s_.tiles; ++m)
      body.push_back(
          {tile::LoadMatrix{a, b.Idx(m * 8), pixels_.dy(), from + b.Idx(m * 16), 4, true}});
    const std::vector<Expr> bases = ReadPlaces(body, slots, first);
    for (int64_t j = 0; j < s_.per_warp / 2; ++j) {
      const std::string both = Registers(b, body, "x_pairs", type, 8);
      for (int k = 0; k < 4; ++k)
        WideCopy(body, type, both, b.Idx(k * 2), rows_.array(), bases[k] + offsets_[j], 2);
      for (int odd = 0; odd < 2; ++odd) {
        const std::string fragment = Registers(b, body, "x_fragment", type, 4);
        for (int k = 0; k < 4; ++k)
          body.push_back(
              {tile::Store{fragment, b.Idx(k), tile::Load(both, type, b.Idx(k * 2 + odd))}});
        for (int64_t m = 0; m < s_.tiles; ++m)
          body.push_back(
              {tile::Mma{acc_, b.Idx(SumAt(j, odd, m)), a, b.Idx(m * 8), fragment, b.Idx(0)}});
      }
    }
  }

  // scratch[split][column][filter]
  void Write(Block& body, const Expr& split, const Expr& first_filter) const {
    KernelBuilder& b = x_.b;
    const std::string sums = b.Scratch(0, DType::kF32, false);
    const Expr pitch = b.Arg("sums_pitch", padded_filters());
    for (int64_t j = 0; j < s_.per_warp / 2; ++j) {
      const Expr column = b.Let(body, "column", pairs_[j] * b.Idx(2) + lane_.t4 / b.Idx(2));
      Block write;
      for (int odd = 0; odd < 2; ++odd) {
        for (int64_t m = 0; m < s_.tiles; ++m) {
          for (int e = 0; e < 4; ++e) {
            const Expr slot = column * b.Idx(kFirstLayerChunk) + lane_.t4 % b.Idx(2) * b.Idx(4) +
                              b.Idx(e % 2 * 2 + odd);
            const Expr filter = first_filter + b.Idx(m * 16 + e / 2 * 8) + lane_.g;
            const Expr row = split * b.Idx(s_.columns * kFirstLayerChunk) + slot;
            const Expr sum = tile::Load(acc_, DType::kF32, b.Idx(SumAt(j, odd, m) + e));
            write.push_back({tile::Store{sums, row * pitch + filter, sum}});
          }
        }
      }
      When(body, tile::Lt(column, b.Idx(s_.columns)), std::move(write));
    }
  }

 private:
  int64_t SumAt(int64_t j, int64_t odd, int64_t m) const {
    return ((j * 2 + odd) * s_.tiles + m) * 4;
  }

  // The places where a lane's four pixels read x.
  std::vector<Expr> ReadPlaces(Block& body, const Slots& slots, const Expr& first) const {
    KernelBuilder& b = x_.b;
    const DType index = b.index_type();
    const std::string at = Registers(b, body, "x_at", index, 4);
    for (int half = 0; half < 2; ++half)
      WideCopy(body, index, at, b.Idx(half * 2), pixels_.places(),
               first + b.Idx(half * 8) + lane_.t4 * b.Idx(2), 2);
    std::vector<Expr> bases;
    for (int k = 0; k < 4; ++k)
      bases.push_back(b.Let(body, "base", slots.x + tile::Load(at, index, b.Idx(k))));
    return bases;
  }

  FirstLayerContext x_;
  const FirstLayerWgradSizes& s_;
  const FirstLayerLane& lane_;
  const FirstLayerRows& rows_;
  const WgradPixels& pixels_;
  std::vector<Expr> pairs_ = {}, offsets_ = {};  // of chunks: numbers, and where a lane reads
  std::string acc_ = {};
};

class FirstLayerWgradKernel {
 public:
  FirstLayerWgradKernel(const Group& group, const Target& target, const ConvShape& shape,
                        const FirstLayerPlan& plan, int64_t splits)
      : target_(target),
        shape_(shape),
        p_(plan),
        b_(group, target,
           fmt::format("conv_first_layer, wgrad: rows={}, first of two stages", plan.rows)),
        x_{b_, group, shape_, p_},
        s_(WgradSizesOf(group, shape, plan)),
        pieces_(PiecesOf(group, shape, plan)),
        splits_(SplitsOf(group.graph, pieces_, s_.pixels, splits)) {
    for (const char* reserved : {"bx", "tx", "step"}) b_.Name(reserved);
  }

  Lowered Lower() {
    Block body;
    const auto where = b_.Divide(body, Var(b_, "bx"), b_.Arg("slabs", s_.slabs), s_.slabs, "slab");
    const Expr split = where.quotient;
    const FirstLayerLane lane = EnterLane(b_, body);
    const Expr first_filter = b_.Let(body, "first_filter", where.remainder * b_.Idx(s_.tiles * 16));
    FirstLayerRows rows(x_);
    WgradPixels pixels(x_, s_, rows, first_filter);
    WgradSums sums(x_, s_, lane, rows, pixels);
    rows.Allocate(body, s_.async ? 2 : 1);
    pixels.Allocate(body, s_.async ? 2 : 1);
    sums.Declare(body);
    const Expr splits = b_.Arg("splits", splits_);
    Expr steps;
    Block loop;
    if (s_.async) {
      steps = b_.Arg("steps", step_count());
      StartPiece(body, rows, pixels, steps, splits, split, b_.Idx(0));
      const Expr ahead = b_.Let(loop, "ahead", Var(b_, "step") + b_.Idx(1));
      StartPiece(loop, rows, pixels, steps, splits, split, ahead);
    }
    const WgradSums::Slots slots = EnterPiece(loop, rows, pixels, splits, split);
    loop.push_back({tile::Barrier{}});
    Loop(b_, loop, "kk", b_.Idx(s_.pixels / 16), Bind::kSerial,
         [&](Block& one, const Expr& kk) { sums.Multiply(one, slots, kk * b_.Idx(16)); });
    loop.push_back({tile::Barrier{}});
    if (!s_.async) steps = b_.Arg("steps", step_count());
    body.push_back({tile::For{"step", b_.index_type(), steps, Bind::kSerial, std::move(loop)}});
    if (s_.async) body.push_back({tile::WaitAsync{0}});
    sums.Write(body, split, first_filter);
    return Finish(std::move(body), sums.padded_filters());
  }

 private:
  int64_t step_count() const { return CeilDiv(pieces_, splits_); }

  // Starts both operands of the block's piece `number` into slot number % 2.
  void StartPiece(Block& out, FirstLayerRows& rows, const WgradPixels& pixels, const Expr& steps,
                  const Expr& splits, const Expr& split, const Expr& number) {
    const Expr slot = number % b_.Idx(2);
    const FirstLayerPiece piece =
        rows.Enter(out, b_.Let(out, "piece", number * splits + split), tile::Lt(number, steps));
    const WgradPixels::Counts here = pixels.Count(out, piece);
    rows.Start(out, piece, b_.Let(out, "x_to", slot * b_.Idx(p_.staged_elements())));
    pixels.Start(out, piece, here, b_.Let(out, "dy_to", slot * b_.Idx(pixels.elements())));
    out.push_back({tile::CommitAsync{}});
  }

  // The piece of the step: waits for its operands, or brings them. A barrier has to follow.
  WgradSums::Slots EnterPiece(Block& loop, FirstLayerRows& rows, const WgradPixels& pixels,
                              const Expr& splits, const Expr& split) {
    const Expr step = Var(b_, "step");
    const FirstLayerPiece piece = rows.Enter(loop, b_.Let(loop, "piece", step * splits + split));
    WgradSums::Slots slots{b_.Idx(0), b_.Idx(0)};
    const WgradPixels::Counts here = pixels.Count(loop, piece);
    if (s_.async) {
      const Expr slot = step % b_.Idx(2);
      slots.x = b_.Let(loop, "x_slot", slot * b_.Idx(p_.staged_elements()));
      slots.dy = b_.Let(loop, "dy_slot", slot * b_.Idx(pixels.elements()));
      loop.push_back({tile::WaitAsync{1}});
    } else {
      if (p_.wide) {
        rows.Start(loop, piece, b_.Idx(0));
        loop.push_back({tile::CommitAsync{}});
      } else {
        rows.Stage(loop, piece);
      }
      pixels.Stage(loop, piece, here);
      if (p_.wide) loop.push_back({tile::WaitAsync{0}});
    }
    pixels.FillPlaces(loop, here);
    return slots;
  }

  // The launch, and the kernel that adds the splits in a fixed order.
  Lowered Finish(Block body, int64_t padded_filters) {
    const int64_t rows = s_.columns * kFirstLayerChunk, blocks = splits_ * s_.slabs;
    Lowered lowered;
    lowered.scratch_bytes.push_back(splits_ * rows * padded_filters * 4);
    body = BlockAndThread(b_.index_type(), b_.Arg("grid", blocks), kFirstLayerThreads,
                          std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, kFirstLayerThreads, lowered);
    LowerOrderedSum(
        x_.group, target_, "conv_first_layer, wgrad: adds the splits",
        {.splits = splits_, .rows = rows, .columns = padded_filters},
        [this](KernelBuilder& b, Block& out, const Expr& row, const Expr& filter, const Expr& first,
               const Expr& sum) { Store(b, out, row, filter, first, sum); },
        lowered);
    return lowered;
  }

  void Store(KernelBuilder& b, Block& body, const Expr& row, const Expr& filter, const Expr& first,
             const Expr& total) {
    const Expr slot = b.Let(body, "slot", row % b.Idx(p_.chunks * kFirstLayerChunk));
    const Expr r = row / b.Idx(p_.chunks * kFirstLayerChunk);
    const Expr in_run = p_.shift == 0 ? slot : slot - b.Idx(p_.shift);
    const Expr s = in_run / b.Idx(p_.pixel), c = b.Let(body, "c", in_run % b.Idx(p_.pixel));
    Expr guard = tile::And(first, tile::Lt(slot, b.Idx(p_.end_slot())));
    if (p_.shift != 0) guard = tile::And(guard, tile::Ge(slot, b.Idx(p_.shift)));
    guard = tile::And(guard, tile::Lt(c, b.Idx(shape_.channels)));
    guard = tile::And(guard, tile::Lt(filter, b.Extent(shape_.w, 0)));
    Index at = {filter, c};
    if (shape_.spatial == 2) at.push_back(x_.FilterTap(b, r, p_.row_taps));
    at.push_back(x_.FilterTap(b, s, p_.taps));
    StoreTotal(b, body, x_.group.graph, shape_.w, at, guard, total);
  }

  const Target& target_;
  ConvShape shape_;
  FirstLayerPlan p_;
  KernelBuilder b_;
  FirstLayerContext x_;
  FirstLayerWgradSizes s_;
  int64_t pieces_, splits_;
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
  const int64_t elements = plan.staged_elements() + s.pixels * (s.tiles * 16 + kFirstLayerDyPad);
  // Two pieces at a time of two blocks.
  constexpr int64_t kMostAsync = 110 * 1024;
  s.async = plan.wide && ComesByPieces(group, shape.y, kChunk) &&
            elements * 4 + s.pixels * place_bytes <= kMostAsync;
  s.shared_bytes = elements * (s.async ? 2 : 1) * 2 + s.pixels * place_bytes + 48;
  return s;
}

Lowered LowerFirstLayerWgrad(const Group& group, const Target& target, const ConvShape& shape,
                             const FirstLayerPlan& plan, int64_t splits) {
  return FirstLayerWgradKernel(group, target, shape, plan, splits).Lower();
}

}  // namespace kiln::compiler
