// Fprop of conv_first_layer on mma.m16n8k16.
//
//   block    a few output rows of one image, up to 128 columns of them, times 32 or 64 filters; its
//            filters stand in shared memory in the order of fragments (fprop_panel.h), made once
//            for `steps` such pieces
//   rows     the input rows under a piece, halo and padding included, stand in shared memory as in
//            channels-last memory: pixel after pixel. What one filter row reads for one output is
//            then a run of consecutive elements, and k is those runs one after the other, each
//            filled up to whole chunks of 8. A pair of k is one 32-bit read; where runs would begin
//            at odd places, or taps are dilated, a pixel takes 2 or 4 elements instead. Rows of
//            whole 16-byte chunks come by asynchronous copies, those of the next piece while this
//            one is multiplied; others pixel by pixel
//   warp     `pixels` outputs x all filters of the block; pixels are numbered through the rows of
//            the piece, so that odd widths waste nothing
//   n        is numbered so that a lane holds 8 neighbouring filters of a pixel: the epilogue
//            stores 16 bytes from registers (as conv_direct/mma.cc)
//
// What a chunk holds past the end of its run belongs to other pixels. It is multiplied by zero, and
// since that may be NaN, it is cleared where chunks are not full.
#include "compiler/engines/conv_first_layer/fprop.h"

#include <algorithm>
#include <span>
#include <vector>

#include "compiler/engines/conv_first_layer/fprop_panel.h"
#include "compiler/kernel/lane_access.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

// The work of a warp on its pixels of a piece that stands in shared memory.
class FpropPixels {
 public:
  // `slot` is where the piece begins in the staged rows.
  FpropPixels(const FirstLayerContext& context, const FirstLayerLane& lane,
              const FirstLayerPiece& piece, const FirstLayerRows& rows, const FpropPanel& panel,
              const LaneAccess& out, int tiles, Expr first_filter, Expr slot)
      : x_(context),
        lane_(lane),
        piece_(piece),
        rows_(rows),
        panel_(panel),
        out_(out),
        tiles_(tiles),
        first_filter_(std::move(first_filter)),
        slot_(std::move(slot)) {}

  void Make(Block& body, const Expr& first_pixel) const {
    KernelBuilder& b = x_.b;
    std::vector<Pixel> pixels;
    for (int m = 0; m < tiles_; ++m)
      for (int row = 0; row < 2; ++row)
        pixels.push_back(PixelAt(body, first_pixel + b.Idx(m * 16 + row * 8) + lane_.g));
    const int64_t accumulators = tiles_ * x_.p.sets * 4;
    const std::string acc = Registers(b, body, "acc", DType::kF32, accumulators);
    Clear(b, body, acc, DType::kF32, accumulators);
    for (int64_t product = 0; product < x_.p.products; ++product)
      Multiply(body, product, pixels, acc);
    Store(body, pixels, acc);
  }

 private:
  struct Pixel {
    Expr row, col, base, inside;  // in the piece; of its first run; whether it is an output
  };

  // The place of a lane's pair of slots in a chunk.
  Expr LaneOffset() const {
    KernelBuilder& b = x_.b;
    const FirstLayerPlan& p = x_.p;
    if (p.dilation == 1) return lane_.t4 * b.Idx(2);
    const int64_t pairs = p.pixel / 2;  // of a pixel
    return lane_.t4 / b.Idx(pairs) * b.Idx(p.dilation * p.pixel) +
           lane_.t4 % b.Idx(pairs) * b.Idx(2);
  }

  Pixel PixelAt(Block& body, const Expr& number) const {
    KernelBuilder& b = x_.b;
    const FirstLayerPlan& p = x_.p;
    const ConvShape& shape = x_.shape;
    const Expr count = b.Idx(p.rows) * rows_.columns();
    const Expr safe =
        b.Let(body, "pixel_number", tile::Op(ScalarOp::kMin, {number, count - b.Idx(1)}));
    const auto at = b.Divide(body, safe, rows_.columns(), p.columns, "pixel_col");
    Pixel pixel;
    pixel.row = piece_.first_row + at.quotient;
    pixel.col = piece_.first_col + at.remainder;
    pixel.base = b.Let(body, "base",
                       at.quotient * b.Idx(p.row_stride * p.pitch) +
                           at.remainder * b.Idx(p.stride * p.pixel) + LaneOffset() + slot_ +
                           b.Idx(p.first_place()));
    Expr inside = tile::And(piece_.exists, tile::Lt(number, count));
    inside = tile::And(inside, tile::Lt(pixel.col, b.Extent(shape.y, shape.spatial + 1)));
    if (shape.spatial == 2) inside = tile::And(inside, tile::Lt(pixel.row, b.Extent(shape.y, 2)));
    pixel.inside = b.Let(body, "inside", inside);
    return pixel;
  }

  void Multiply(Block& body, int64_t product, const std::vector<Pixel>& pixels,
                const std::string& acc) const {
    KernelBuilder& b = x_.b;
    const std::string fragment = panel_.Fragments(body, product);
    for (int m = 0; m < tiles_; ++m) {
      const std::string a = Registers(b, body, "x_fragment", x_.type(), 8);
      for (int half = 0; half < 2; ++half)
        ReadPairs(body, a, half * 4, product * 2 + half, std::span(pixels).subspan(m * 2, 2));
      Loop(b, body, "j", b.Idx(x_.p.sets), Bind::kUnroll, [&](Block& one, const Expr& j) {
        const Expr slot = (b.Idx(m * x_.p.sets) + j) * b.Idx(4);
        one.push_back({tile::Mma{acc, slot, a, b.Idx(0), fragment, j * b.Idx(4)}});
      });
    }
  }

  // The pairs of a chunk's slots in both rows of a fragment.
  void ReadPairs(Block& out, const std::string& a, int64_t to, int64_t number,
                 std::span<const Pixel> rows) const {
    KernelBuilder& b = x_.b;
    const FirstLayerPlan& p = x_.p;
    const int64_t r = number / p.chunks, chunk = number % p.chunks;
    if (r >= p.row_taps) {
      for (int e = 0; e < 4; ++e) out.push_back({tile::Store{a, b.Idx(to + e), ZeroOf(x_.type())}});
      return;
    }
    const int64_t along = p.dilation == 1
                              ? chunk * kFirstLayerChunk
                              : chunk * (kFirstLayerChunk / p.pixel) * p.dilation * p.pixel;
    const Expr at = b.Idx(r * p.row_dilation * p.pitch + along);
    for (int row = 0; row < 2; ++row)
      WideCopy(out, x_.type(), a, b.Idx(to + row * 2), rows_.array(), rows[row].base + at, 2);
    ClearUnused(out, a, to, chunk);
  }

  // Zeros where slots of the chunk belong to no run.
  void ClearUnused(Block& out, const std::string& a, int64_t to, int64_t chunk) const {
    KernelBuilder& b = x_.b;
    // NOTE: as stores under a condition, which become one selection of a pair's register; a
    // selection in f32 would convert each element twice.
    const auto keep = [&](const Expr& used, int first, int last) {
      Block clear;
      for (int row = 0; row < 2; ++row)
        for (int e = first; e <= last; ++e)
          clear.push_back({tile::Store{a, b.Idx(to + row * 2 + e), ZeroOf(x_.type())}});
      out.push_back({tile::If{used, {}, std::move(clear)}});
    };
    const Expr slot = lane_.t4 * b.Idx(2);
    if (chunk * kFirstLayerChunk < x_.p.shift)
      keep(tile::Ge(slot, b.Idx(x_.p.shift)), 0, 0);  // 1 at most
    const int64_t count = x_.p.end_slot() - chunk * kFirstLayerChunk;
    if (count >= kFirstLayerChunk) return;
    if (count % 2 == 0) return keep(tile::Lt(slot, b.Idx(count)), 0, 1);
    for (int e = 0; e < 2; ++e) keep(tile::Lt(slot + b.Idx(e), b.Idx(count)), e, e);
  }

  void Store(Block& body, const std::vector<Pixel>& pixels, const std::string& acc) const {
    for (int m = 0; m < tiles_; ++m)
      for (int row = 0; row < 2; ++row)
        for (int64_t slab = 0; slab < x_.p.sets / 4; ++slab) {
          Block store;
          StoreSlab(store, pixels[m * 2 + row], (m * x_.p.sets + slab * 4) * 4 + row * 2, slab,
                    acc);
          When(body, pixels[m * 2 + row].inside, std::move(store));
        }
  }

  // 8 neighbouring filters of a pixel, whose sums begin at `first_sum`.
  void StoreSlab(Block& store, const Pixel& pixel, int64_t first_sum, int64_t slab,
                 const std::string& acc) const {
    KernelBuilder& b = x_.b;
    const Expr filter =
        b.Let(store, "filter", first_filter_ + b.Idx(slab * kFirstLayerSlab) + lane_.t4 * b.Idx(8));
    Block inside;
    Index at = {piece_.image, filter};
    if (x_.shape.spatial == 2) at.push_back(pixel.row);
    at.push_back(pixel.col);
    out_.Write(b, inside, at, [&](const Expr& l) {
      const Expr slot = b.Idx(first_sum) + l / b.Idx(2) * b.Idx(4) + l % b.Idx(2);
      return tile::Load(acc, DType::kF32, slot);
    });
    When(store, tile::Lt(filter, b.Extent(x_.shape.y, 1)), std::move(inside));
  }

  FirstLayerContext x_;
  const FirstLayerLane& lane_;
  const FirstLayerPiece& piece_;
  const FirstLayerRows& rows_;
  const FpropPanel& panel_;
  const LaneAccess& out_;
  int tiles_;  // of 16 pixels
  Expr first_filter_, slot_;
};

class FirstLayerFpropKernel {
 public:
  FirstLayerFpropKernel(const Group& group, const Target& target, const ConvShape& shape,
                        const FirstLayerPlan& plan, int pixels)
      : shape_(shape),
        p_(plan),
        b_(group, target, fmt::format("conv_first_layer: pixels={}, rows={}", pixels, plan.rows)),
        x_{b_, group, shape_, p_},
        tiles_(pixels / 16),
        out_(group, graph::Outputs(group.graph), shape.y, 8) {
    for (const char* reserved : {"bx", "tx", "step"}) b_.Name(reserved);
  }

  Lowered Lower() {
    Block body;
    const auto where = b_.Divide(body, Var(b_, "bx"), b_.Arg("slabs", p_.slabs),
                                 std::max<int64_t>(p_.slabs, 1), "slab");
    const FirstLayerLane lane = EnterLane(b_, body);
    const Expr first_filter = b_.Let(body, "first_filter", where.remainder * b_.Idx(p_.sets * 8));
    FirstLayerRows rows(x_);
    rows.Allocate(body, p_.wide ? 2 : 1);
    const Expr steps = b_.Arg("steps", p_.steps);
    const Expr first_piece = b_.Let(body, "first_piece", where.quotient * steps);
    if (p_.wide) StartPiece(body, rows, first_piece, steps, b_.Idx(0));
    FpropPanel panel(x_, lane, first_filter);
    panel.Fill(body);

    Block loop;
    const Expr step = Var(b_, "step");
    if (p_.wide)
      StartPiece(loop, rows, first_piece, steps, b_.Let(loop, "ahead", step + b_.Idx(1)));
    const FirstLayerPiece piece = rows.Enter(loop, b_.Let(loop, "piece", first_piece + step));
    Expr slot = b_.Idx(0);
    if (p_.wide) {
      slot = b_.Let(loop, "slot", step % b_.Idx(2) * b_.Idx(p_.staged_elements()));
      loop.push_back({tile::WaitAsync{1}});
    } else {
      rows.Stage(loop, piece);
    }
    loop.push_back({tile::Barrier{}});
    EachUnit(loop, lane,
             FpropPixels(x_, lane, piece, rows, panel, out_, tiles_, first_filter, slot));
    loop.push_back({tile::Barrier{}});
    body.push_back({tile::For{"step", b_.index_type(), steps, Bind::kSerial, std::move(loop)}});
    if (p_.wide) body.push_back({tile::WaitAsync{0}});

    const int64_t blocks = CeilDiv(PiecesOf(x_.group, shape_, p_), p_.steps) * p_.slabs;
    Lowered lowered;
    body = BlockAndThread(b_.index_type(), b_.Arg("grid", blocks), kFirstLayerThreads,
                          std::move(body));
    // Two blocks have 255 registers a thread; without a number ptxas would rather spill for four.
    b_.Finish(std::move(body), {blocks, 1, 1}, kFirstLayerThreads, lowered, 2);
    return lowered;
  }

 private:
  // Starts the rows of the block's piece `number` into slot number % 2.
  void StartPiece(Block& out, FirstLayerRows& rows, const Expr& first_piece, const Expr& steps,
                  const Expr& number) {
    const FirstLayerPiece piece =
        rows.Enter(out, b_.Let(out, "piece", first_piece + number), tile::Lt(number, steps));
    rows.Start(out, piece, b_.Let(out, "to", number % b_.Idx(2) * b_.Idx(p_.staged_elements())));
    out.push_back({tile::CommitAsync{}});
  }

  // The warps take the pixels of the piece in turns.
  void EachUnit(Block& loop, const FirstLayerLane& lane, const FpropPixels& pixels) {
    const int64_t unit = int64_t{tiles_} * 16, units = CeilDiv(p_.rows * p_.columns, unit);
    const Expr turns = b_.Arg("turns", CeilDiv(units, kFirstLayerWarps));
    Loop(b_, loop, "turn", turns, Bind::kSerial, [&](Block& one, const Expr& turn) {
      const Expr number = turn * b_.Idx(kFirstLayerWarps) + lane.warp;
      pixels.Make(one, b_.Let(one, "first_pixel", number * b_.Idx(unit)));
    });
  }

  ConvShape shape_;
  FirstLayerPlan p_;
  KernelBuilder b_;
  FirstLayerContext x_;
  int tiles_;
  LaneAccess out_;
};

}  // namespace

Lowered LowerFirstLayerFprop(const Group& group, const Target& target, const ConvShape& shape,
                             const FirstLayerPlan& plan, int pixels) {
  return FirstLayerFpropKernel(group, target, shape, plan, pixels).Lower();
}

}  // namespace kiln::compiler
