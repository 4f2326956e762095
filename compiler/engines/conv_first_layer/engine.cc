// The conv_first_layer engine: fprop, wgrad (conv_first_layer/wgrad.cc) and dgrad
// (conv_first_layer/dgrad.cc) of a few input channels on mma.m16n8k16, for f16 and bf16. Of fprop:
//
//   block    a few output rows of one image, up to 128 columns of them, times 32 or 64 filters; its
//            filters stand in shared memory in the order of fragments, made once for `steps` such
//            pieces
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
#include "compiler/engines/conv_first_layer/engine.h"

#include <algorithm>
#include <cmath>

#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/conv_first_layer/dgrad.h"
#include "compiler/engines/conv_first_layer/tiles.h"
#include "compiler/engines/conv_first_layer/wgrad.h"
#include "compiler/engines/knob_types.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/lane_access.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kPixelsDomain[] = {64, 32, 16};
constexpr int kRowsDomain[] = {4, 8, 2, 7};
constexpr int kStepsDomain[] = {8, 1, 4, 16};
constexpr int kSplitsDomain[] = {2, 1, 4, 3};  // blocks of wgrad and dgrad, a multiprocessor
constexpr KnobRow kKnobs[] = {
    {.name = "pixels", .cudnn_type = kKnobTileM, .domain = kPixelsDomain},
    {.name = "rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
    {.name = "steps",
     .cudnn_type = kKnobTileSize,
     .domain = kStepsDomain,
     .in_text = InText::kNothing},
    {.name = "splits", .cudnn_type = kKnobSplitKSlices, .domain = kSplitsDomain},
};
enum { kPixels, kRows, kSteps, kSplits };

constexpr int64_t kMostChannels = 4, kMostDgradChannels = 8;

FirstLayerKnobs KnobsOf(std::span<const int> knobs) {
  return {.rows = knobs[kRows], .steps = knobs[kSteps]};
}

FirstLayerDgradKnobs DgradKnobsOf(std::span<const int> knobs) {
  return {.pixels = knobs[kPixels], .rows = knobs[kRows], .blocks = knobs[kSplits]};
}

class Schedule : private FirstLayerTiles {
 public:
  Schedule(const Group& group, const Target& target, const ConvShape& shape,
           const FirstLayerPlan& plan, int pixels)
      : FirstLayerTiles(group, target, shape, plan,
                        fmt::format("conv_first_layer: pixels={}, rows={}", pixels, plan.rows)),
        tiles_(pixels / 16),
        out_(group, graph::Outputs(group.graph), shape.y, 8) {}

  Lowered Lower() {
    const int64_t pieces = PiecesOf(group_, shape_, p_);
    Block body;
    const auto where = b_.Divide(body, Var("bx"), b_.Arg("slabs", p_.slabs),
                                 std::max<int64_t>(p_.slabs, 1), "slab");
    lane_ = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarp));
    warp_ = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarp));
    g_ = b_.Let(body, "g", lane_ / b_.Idx(4));
    t4_ = b_.Let(body, "t4", lane_ % b_.Idx(4));
    first_filter_ = b_.Let(body, "first_filter", where.remainder * b_.Idx(p_.sets * 8));
    staged_ = b_.Name("x_rows");
    body.push_back({tile::Alloc{staged_, type_, tile::Space::kShared,
                                p_.staged_elements() * (p_.wide ? 2 : 1)}});
    steps_ = b_.Arg("steps", p_.steps);
    first_piece_ = b_.Let(body, "first_piece", where.quotient * steps_);
    if (p_.wide) StartPiece(body, b_.Idx(0));
    FillPanel(body);

    Block loop;
    const Expr step = Var("step");
    if (p_.wide) StartPiece(loop, b_.Let(loop, "ahead", step + b_.Idx(1)));
    EnterPiece(loop, b_.Let(loop, "piece", first_piece_ + step));
    slot_ =
        p_.wide ? b_.Let(loop, "slot", step % b_.Idx(2) * b_.Idx(p_.staged_elements())) : b_.Idx(0);
    if (p_.wide) {
      loop.push_back({tile::WaitAsync{1}});
    } else {
      StageRows(loop);
    }
    loop.push_back({tile::Barrier{}});
    const int64_t units = CeilDiv(p_.rows * p_.columns, int64_t{tiles_} * 16);
    const Expr turns = b_.Arg("turns", CeilDiv(units, kWarps));
    Loop(loop, "turn", turns, Bind::kSerial, [&](Block& one, const Expr& turn) {
      Unit(one, b_.Let(one, "first_pixel",
                       (turn * b_.Idx(kWarps) + warp_) * b_.Idx(int64_t{tiles_} * 16)));
    });
    loop.push_back({tile::Barrier{}});
    body.push_back({tile::For{"step", t(), steps_, Bind::kSerial, std::move(loop)}});
    if (p_.wide) body.push_back({tile::WaitAsync{0}});

    const int64_t blocks = CeilDiv(pieces, p_.steps) * p_.slabs;
    Lowered lowered;
    body = BlockAndThread(t(), b_.Arg("grid", blocks), kThreads, std::move(body));
    // Two blocks have 255 registers a thread; without a number ptxas would rather spill for four.
    b_.Finish(std::move(body), {blocks, 1, 1}, kThreads, lowered, 2);
    return lowered;
  }

 private:
  // Starts the rows of the block's piece `number` into slot number % 2.
  void StartPiece(Block& out, const Expr& number) {
    EnterPiece(out, b_.Let(out, "piece", first_piece_ + number), tile::Lt(number, steps_));
    StartRows(out, b_.Let(out, "to", number % b_.Idx(2) * b_.Idx(p_.staged_elements())));
    out.push_back({tile::CommitAsync{}});
  }

  // ---- filters: panel[product][set][half of k][filter][8], the matrices of ldmatrix ----
  Expr PanelAt(const Expr& product, const Expr& set, const Expr& half) const {
    return ((product * b_.Idx(p_.sets) + set) * b_.Idx(2) + half) * b_.Idx(64);
  }

  void FillPanel(Block& body) {
    panel_ = b_.Name("w_panel");
    body.push_back({tile::Alloc{panel_, type_, tile::Space::kShared, p_.panel_elements()}});
    // Reads of several chunks are under way together; more of them are slow to compile.
    constexpr int64_t at_once = FirstLayerPlan::kChunksAtOnce;
    const int64_t sets = p_.sets / kWarps;  // of a thread, 2 elements each
    Loop(body, "f", b_.Idx(CeilDiv(p_.products * 2, at_once)), Bind::kSerial,
         [&](Block& some, const Expr& f) {
           const std::string regs = b_.Name("filter_regs");
           some.push_back({tile::Alloc{regs, type_, tile::Space::kReg, at_once * sets * 2}});
           Loop(some, "u", b_.Idx(at_once), Bind::kUnroll, [&](Block& one, const Expr& u) {
             ReadFilters(one, f * b_.Idx(at_once) + u, regs, u * b_.Idx(sets * 2));
           });
           Loop(some, "u", b_.Idx(at_once), Bind::kUnroll, [&](Block& one, const Expr& u) {
             const Expr chunk = b_.Let(one, "f", f * b_.Idx(at_once) + u);
             for (int64_t s = 0; s < sets; ++s) {
               const Expr set = warp_ + b_.Idx(s * kWarps);
               const Expr at = PanelAt(chunk / b_.Idx(2), set, chunk % b_.Idx(2)) + g_ * b_.Idx(8) +
                               t4_ * b_.Idx(2);
               WideCopy(one, type_, panel_, b_.Let(one, "at", at), regs,
                        (u * b_.Idx(sets) + b_.Idx(s)) * b_.Idx(2), 2);
             }
           });
         });
  }

  // A thread's elements of chunk `f` of the filter rows → regs[first ..].
  void ReadFilters(Block& out, const Expr& f, const std::string& regs, const Expr& first) {
    const Expr chunk = f % b_.Idx(p_.chunks);
    const Expr r = b_.Let(out, "r", f / b_.Idx(p_.chunks));
    for (int64_t s = 0; s < p_.sets / kWarps; ++s) {
      const Expr filter = b_.Let(out, "filter",
                                 first_filter_ + b_.Idx(s * kSlab) + g_ / b_.Idx(2) * b_.Idx(8) +
                                     warp_ * b_.Idx(2) + g_ % b_.Idx(2));
      for (int e = 0; e < 2; ++e) {
        const Expr slot = b_.Let(out, "slot", chunk * b_.Idx(kChunk) + t4_ * b_.Idx(2) + b_.Idx(e));
        const Expr to = first + b_.Idx(s * 2 + e);
        out.push_back({tile::Store{regs, to, Zero(type_)}});
        FilterElement(out, filter, r, slot, regs, to);
      }
    }
  }

  void FilterElement(Block& out, const Expr& filter, const Expr& r, const Expr& slot,
                     const std::string& regs, const Expr& to) {
    const Expr in_run = p_.shift == 0 ? slot : slot - b_.Idx(p_.shift);
    const Expr s = in_run / b_.Idx(p_.pixel), c = in_run % b_.Idx(p_.pixel);
    Expr guard = tile::And(tile::Lt(r, b_.Idx(p_.row_taps)), tile::Lt(slot, b_.Idx(p_.end_slot())));
    if (p_.shift != 0) guard = tile::And(guard, tile::Ge(slot, b_.Idx(p_.shift)));
    guard = tile::And(guard, tile::Lt(filter, b_.Extent(shape_.y, 1)));
    if (p_.pixel != shape_.channels) guard = tile::And(guard, tile::Lt(c, b_.Idx(shape_.channels)));
    Index index = {filter, c};
    const auto tap = [&](const Expr& i, int64_t count) {
      return shape_.flip ? b_.Idx(count - 1) - i : i;
    };
    if (shape_.spatial == 2) index.push_back(tap(r, p_.row_taps));
    index.push_back(tap(s, p_.taps));
    Block inside;
    ValueScope values(b_, inside);
    inside.push_back({tile::Store{regs, to, tile::Cast(type_, values.Value(shape_.w, index))}});
    out.push_back({tile::If{guard, std::move(inside), {}}});
  }

  // ---- one warp's pixels ----
  struct Pixel {
    Expr row, col, base, inside;  // in the piece; of its first run; whether it is an output
  };

  Pixel PixelAt(Block& body, const Expr& number) {
    const Expr count = b_.Idx(p_.rows) * columns_;
    const Expr safe =
        b_.Let(body, "pixel_number", tile::Op(ScalarOp::kMin, {number, count - b_.Idx(1)}));
    const auto at = b_.Divide(body, safe, columns_, p_.columns, "pixel_col");
    Pixel p;
    p.row = first_row_ + at.quotient;
    p.col = first_col_ + at.remainder;
    p.base = b_.Let(body, "base",
                    at.quotient * b_.Idx(p_.row_stride * p_.pitch) +
                        at.remainder * b_.Idx(p_.stride * p_.pixel) + lane_offset_ + slot_ +
                        b_.Idx(p_.first_place()));
    Expr inside = tile::And(exists_, tile::Lt(number, count));
    inside = tile::And(inside, tile::Lt(p.col, b_.Extent(shape_.y, shape_.spatial + 1)));
    if (shape_.spatial == 2) inside = tile::And(inside, tile::Lt(p.row, b_.Extent(shape_.y, 2)));
    p.inside = b_.Let(body, "inside", inside);
    return p;
  }

  void Unit(Block& body, const Expr& first_pixel) {
    // Where a lane's pair of slots stands in a chunk.
    lane_offset_ = t4_ * b_.Idx(2);
    if (p_.dilation != 1) {
      const int64_t pairs = p_.pixel / 2;  // of a pixel
      lane_offset_ =
          t4_ / b_.Idx(pairs) * b_.Idx(p_.dilation * p_.pixel) + t4_ % b_.Idx(pairs) * b_.Idx(2);
    }
    std::vector<Pixel> pixels;
    for (int m = 0; m < tiles_; ++m)
      for (int row = 0; row < 2; ++row)
        pixels.push_back(PixelAt(body, first_pixel + b_.Idx(m * 16 + row * 8) + g_));
    acc_ = b_.Name("acc");
    const int64_t accumulators = tiles_ * p_.sets * 4;
    body.push_back({tile::Alloc{acc_, DType::kF32, tile::Space::kReg, accumulators}});
    Loop(body, "z", b_.Idx(accumulators), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{acc_, z, Zero(DType::kF32)}});
    });
    for (int64_t product = 0; product < p_.products; ++product) Multiply(body, product, pixels);
    Epilogue(body, pixels);
  }

  void Multiply(Block& body, int64_t product, const std::vector<Pixel>& pixels) {
    const std::string fragment = b_.Name("w_fragment");
    body.push_back({tile::Alloc{fragment, type_, tile::Space::kReg, p_.sets * 4}});
    Loop(body, "n", b_.Idx(p_.sets / 2), Bind::kUnroll, [&](Block& one, const Expr& n) {
      const Expr from = PanelAt(b_.Idx(product), n * b_.Idx(2), b_.Idx(0)) + lane_ * b_.Idx(8);
      one.push_back({tile::LoadMatrix{fragment, n * b_.Idx(8), panel_, from, 4, false}});
    });
    for (int m = 0; m < tiles_; ++m) {
      const std::string a = b_.Name("x_fragment");
      body.push_back({tile::Alloc{a, type_, tile::Space::kReg, 8}});
      for (int half = 0; half < 2; ++half)
        ReadPairs(body, a, half * 4, product * 2 + half, std::span(pixels).subspan(m * 2, 2));
      Loop(body, "j", b_.Idx(p_.sets), Bind::kUnroll, [&](Block& one, const Expr& j) {
        const Expr slot = (b_.Idx(m * p_.sets) + j) * b_.Idx(4);
        one.push_back({tile::Mma{acc_, slot, a, b_.Idx(0), fragment, j * b_.Idx(4)}});
      });
    }
  }

  // The pairs of a chunk's slots in both rows of a fragment.
  void ReadPairs(Block& out, const std::string& a, int64_t to, int64_t number,
                 std::span<const Pixel> rows) {
    const int64_t r = number / p_.chunks, chunk = number % p_.chunks;
    if (r >= p_.row_taps) {
      for (int e = 0; e < 4; ++e) out.push_back({tile::Store{a, b_.Idx(to + e), Zero(type_)}});
      return;
    }
    const int64_t along =
        p_.dilation == 1 ? chunk * kChunk : chunk * (kChunk / p_.pixel) * p_.dilation * p_.pixel;
    const Expr at = b_.Idx(r * p_.row_dilation * p_.pitch + along);
    for (int row = 0; row < 2; ++row)
      WideCopy(out, type_, a, b_.Idx(to + row * 2), staged_, rows[row].base + at, 2);
    // NOTE: as stores under a condition, which become one selection of a pair's register; a
    // selection in f32 would convert each element twice.
    const auto keep = [&](const Expr& used, int first, int last) {
      Block clear;
      for (int row = 0; row < 2; ++row)
        for (int e = first; e <= last; ++e)
          clear.push_back({tile::Store{a, b_.Idx(to + row * 2 + e), Zero(type_)}});
      out.push_back({tile::If{used, {}, std::move(clear)}});
    };
    const Expr slot = t4_ * b_.Idx(2);
    if (chunk * kChunk < p_.shift) keep(tile::Ge(slot, b_.Idx(p_.shift)), 0, 0);  // 1 at most
    const int64_t count = p_.end_slot() - chunk * kChunk;
    if (count >= kChunk) return;
    if (count % 2 == 0) return keep(tile::Lt(slot, b_.Idx(count)), 0, 1);
    for (int e = 0; e < 2; ++e) keep(tile::Lt(slot + b_.Idx(e), b_.Idx(count)), e, e);
  }

  void Epilogue(Block& body, const std::vector<Pixel>& pixels) {
    for (int m = 0; m < tiles_; ++m) {
      for (int row = 0; row < 2; ++row) {
        for (int64_t slab = 0; slab < p_.sets / 4; ++slab) {
          const Pixel& pixel = pixels[m * 2 + row];
          Block store;
          const Expr filter =
              b_.Let(store, "filter", first_filter_ + b_.Idx(slab * kSlab) + t4_ * b_.Idx(8));
          Block inside;
          Index at = {image_, filter};
          if (shape_.spatial == 2) at.push_back(pixel.row);
          at.push_back(pixel.col);
          out_.Write(b_, inside, at, [&](const Expr& l) {
            const Expr slot = b_.Idx((m * p_.sets + slab * 4) * 4 + row * 2) +
                              l / b_.Idx(2) * b_.Idx(4) + l % b_.Idx(2);
            return tile::Load(acc_, DType::kF32, slot);
          });
          store.push_back(
              {tile::If{tile::Lt(filter, b_.Extent(shape_.y, 1)), std::move(inside), {}}});
          body.push_back({tile::If{pixel.inside, std::move(store), {}}});
        }
      }
    }
  }

  int tiles_;
  LaneAccess out_;
  Expr lane_, warp_, g_, t4_, first_filter_, lane_offset_, first_piece_, steps_, slot_;
  std::string panel_, acc_;
};

int64_t SharedOf(const FirstLayerPlan& p) {
  return (p.panel_elements() + p.staged_elements() * (p.wide ? 2 : 1)) * 2 + 16;
}

int64_t SharedBytes(const Group& group, const Target&, std::span<const int> knobs) {
  const ConvShape shape = ShapeOf(group);
  if (shape.is_dgrad()) return DgradPlanOf(group, shape, DgradKnobsOf(knobs)).shared_bytes();
  const FirstLayerPlan plan = PlanOf(group, shape, KnobsOf(knobs));
  return shape.is_wgrad() ? WgradSizesOf(group, shape, plan).shared_bytes : SharedOf(plan);
}

// The padded walk reads no pixel in part: an odd number of channels leaves a slot that must be
// finite, which staging clears.
Status CheckShape(const Group& group, const ConvShape& s) {
  constexpr int64_t kMostProducts = 64, kMostColumns = 12;
  const int64_t most = s.is_dgrad() ? kMostDgradChannels : kMostChannels;
  if (s.groups != 1 || s.channels < 1 || s.channels > most)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "there are {} groups of {} channels; it takes one of 1 to {}", s.groups,
                         s.channels, most);
  if (s.spatial > 2)
    return Status::Error(Code::kUnsupportedGraphPattern, "there are {} spatial dims, more than 2",
                         s.spatial);
  if (s.filters % 8 != 0)
    return Status::Error(Code::kUnsupportedGraphPattern, "{} filters are no multiple of 8",
                         s.filters);
  if (s.is_dgrad()) return CheckFirstLayerDgrad(group, s);
  const FirstLayerPlan plan = PlanOf(group, s, {.rows = 2, .steps = 1});
  const FirstLayerWgradSizes sizes = WgradSizesOf(group, s, plan);
  if (s.is_wgrad() && sizes.per_warp > kMostColumns)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the filter takes {} tiles of 8 columns a warp; at most {} have room",
                         sizes.per_warp, kMostColumns);
  if (plan.products > kMostProducts)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the filter takes {} products of 16; at most {} are unrolled",
                         plan.products, kMostProducts);
  return {};
}

Status Supports(const Group& group, const Target& target) {
  if (!IsConvolution(group))
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group has no convolution as its anchor");
  if (CountReductions(group) > 0)
    return Status::Error(Code::kUnsupportedGraphPattern, "the result is reduced in its group");
  if (!target.is_cuda() || target.sm_version < 80)
    return Status::Error(Code::kArchMismatch, "mma.m16n8k16 needs sm_80 or later, the target is {}",
                         target.arch);
  const ConvShape shape = ShapeOf(group);
  RETURN_IF_ERROR(CheckShape(group, shape));
  // The operands, neither of which is what is made.
  const Tensor& x = group.graph[shape.in];
  const Tensor& w = group.graph[shape.is_wgrad() ? shape.y : shape.w];
  if (x.dtype != w.dtype || (x.dtype != DType::kF16 && x.dtype != DType::kBF16))
    return Status::Error(Code::kUnsupportedDataType,
                         "operands are {} and {}; both must be f16 or both bf16",
                         Info(x.dtype).text, Info(w.dtype).text);
  if (ArithmeticType(ContractionOf(group).compute) != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is not f32",
                         Info(ContractionOf(group).compute).text);
  const int64_t most = MostProductsAlone(x.dtype, WidestOutput(group.graph));
  if (!shape.is_wgrad() && shape.Products() > most)
    return Status::Error(Code::kUnsupportedShape,
                         "{} products a result; a tile's sum is one chain, of at most {}",
                         shape.Products(), most);
  return {};
}

Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  const ConvShape shape = ShapeOf(group);
  if (shape.is_dgrad()) return LowerFirstLayerDgrad(group, target, shape, DgradKnobsOf(knobs));
  const FirstLayerPlan plan = PlanOf(group, shape, KnobsOf(knobs));
  if (shape.is_wgrad())
    return LowerFirstLayerWgrad(group, target, shape, plan,
                                int64_t{knobs[kSplits]} * std::max(target.multiprocessors, 1));
  return Schedule(group, target, shape, plan, knobs[kPixels]).Lower();
}

// Of an element that a multiprocessor stages: its share of an asynchronous copy, whose way nobody
// waits for, or of a read that the block waits for.
constexpr double kAsyncCycles = 0.06, kStageCycles = 0.4;
double StageCycles(bool async, int64_t elements) {
  return (async ? kAsyncCycles : kStageCycles) * static_cast<double>(elements);
}

// Cycles of the busiest multiprocessor.
double FpropCycles(const Group& group, const Target& target, const ConvShape& shape,
                   const FirstLayerPlan& p, int pixels) {
  const double tiles = pixels / 16.0;
  const double units = std::ceil(static_cast<double>(p.rows * p.columns) / pixels / 4) * 4;
  const auto sets = static_cast<double>(p.sets);
  const double product =
      std::max(tiles * sets * FirstLayerProductCycles(target) / 4, tiles * 4 + sets * 2);
  double piece = units * static_cast<double>(p.products) * product * 1.15;
  piece += StageCycles(p.wide, p.staged_elements());
  piece += static_cast<double>(p.panel_elements()) / static_cast<double>(p.steps) * 0.25;
  const int64_t blocks = CeilDiv(PiecesOf(group, shape, p), p.steps) * p.slabs;
  const auto waves = static_cast<double>(CeilDiv(blocks, std::max(target.multiprocessors, 1)));
  return waves * static_cast<double>(p.steps) * piece;
}

double WgradCycles(const Group& group, const Target& target, const ConvShape& shape,
                   const FirstLayerPlan& p, int splits) {
  const FirstLayerWgradSizes s = WgradSizesOf(group, shape, p);
  // Four warps, a tensor core each; all read through one port.
  const auto products = static_cast<double>(s.per_warp * s.tiles);
  const double reads = 4 * static_cast<double>(s.per_warp * 2 + s.tiles * 4);
  const double product = 1.25 * std::max(products * FirstLayerProductCycles(target), reads);
  double piece = static_cast<double>(s.pixels) / 16 * product;
  piece += StageCycles(s.async, p.staged_elements() + s.pixels * s.tiles * 4);
  const double resident = std::min(splits, s.shared_bytes > 110 * 1024 ? 1 : 2);
  piece *= resident == 1 ? 1.3 : 1;  // nothing hides the staging
  const auto pieces = static_cast<double>(PiecesOf(group, shape, p) * s.slabs);
  const double all = pieces / std::max(target.multiprocessors, 1) * piece;
  constexpr double kSumCycles = 8000;
  return all + kSumCycles * (1 + splits / 4.0);
}

double Cycles(const Group& group, const Target& target, std::span<const int> knobs) {
  const ConvShape shape = ShapeOf(group);
  if (shape.is_dgrad())
    return FirstLayerDgradCycles(target, DgradPlanOf(group, shape, DgradKnobsOf(knobs)),
                                 knobs[kSplits]);
  const FirstLayerPlan p = PlanOf(group, shape, KnobsOf(knobs));
  return shape.is_wgrad() ? WgradCycles(group, target, shape, p, knobs[kSplits])
                          : FpropCycles(group, target, shape, p, knobs[kPixels]);
}

double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  constexpr double kShareOfMemory = 0.95, kPrologueCycles = 1700;
  const Machine machine = MachineOf(target);
  const double busy = machine.Seconds(Cycles(group, target, knobs));
  const double moved = static_cast<double>(FloorBytes(group)) / (machine.memory * kShareOfMemory);
  return machine.StartSeconds() + machine.Seconds(kPrologueCycles) + std::max(busy, moved) +
         0.2 * std::min(busy, moved);
}

// Of a dgrad all that differ, steps are not among its knobs; of fprop the useful pairs of pixels
// and rows.
std::vector<std::vector<int>> Candidates(const Group& group, const Target&) {
  const ConvShape shape = ShapeOf(group);
  std::vector<std::vector<int>> all;
  if (shape.is_dgrad()) {
    for (const int rows : {7, 4, 8, 2})
      for (const int pixels : {16, 32})
        for (const int blocks : kSplitsDomain)
          all.push_back({pixels, rows, kStepsDomain[0], blocks});
    return all;
  }
  all = NeighbouringKnobs(kConvFirstLayerEngine);
  if (shape.is_wgrad()) return all;
  for (const int rows : {8, 2})
    for (const int steps : kStepsDomain) all.push_back({32, rows, steps, kSplitsDomain[0]});
  return all;
}

// What batch sizes share where the model sees little difference: what it likes for most of them.
// Steps are no part of a kernel's structure.
constexpr int kSharedFprop[] = {32, 8}, kSharedDgrad[] = {16, 7};

std::vector<Proposal> Proposals(const Group& group, const Target& target) {
  const bool is_dgrad = ShapeOf(group).is_dgrad();
  std::vector<Proposal> all;
  for (std::vector<int>& knobs : Candidates(group, target)) {
    const auto& shared = is_dgrad ? kSharedDgrad : kSharedFprop;
    const bool is_shared = knobs[kPixels] == shared[0] && knobs[kRows] == shared[1] &&
                           knobs[kSplits] == kSplitsDomain[0];
    Proposal& one = all.emplace_back();
    one.seconds = Cost(group, target, knobs);
    one.shared_bytes = SharedBytes(group, target, knobs);
    one.preference = is_shared ? 0 : Proposal::kNotPreferred;
    one.knobs = std::move(knobs);
  }
  return all;
}

constexpr int kBehavior[] = {kNoteRuntimeCompilation};
constexpr int kNumerical[] = {kNoteTensorCore};

}  // namespace

const Engine kConvFirstLayerEngine = {.name = "conv_first_layer",
                                      .version = 3,
                                      .knobs = kKnobs,
                                      .notes = {.numerical = kNumerical, .behavioral = kBehavior},
                                      .supports = Supports,
                                      .cost = Cost,
                                      .lower = Lower,
                                      .shared_bytes = SharedBytes,
                                      .candidates = Candidates,
                                      .propose = Proposals};

}  // namespace kiln::compiler
