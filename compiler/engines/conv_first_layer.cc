// The conv_first_layer engine: fprop of a few input channels on mma.m16n8k16, for f16 and bf16.
//
//   block    a few output rows of one image, up to 128 columns of them, times 32 or 64 filters; its
//            filters stand in shared memory in the order of fragments, made once for `steps` such
//            pieces
//   rows     the input rows under a piece, halo and padding included, stand in shared memory as in
//            channels-last memory: pixel after pixel. What one filter row reads for one output is
//            then a run of consecutive elements, and k is those runs one after the other, each
//            filled up to whole chunks of 8. A pair of k is one 32-bit read; where runs would begin
//            at odd places, or taps are dilated, a pixel takes 2 or 4 elements instead
//   warp     `pixels` outputs x all filters of the block; pixels are numbered through the rows of
//            the piece, so that odd widths waste nothing
//   n        is numbered so that a lane holds 8 neighbouring filters of a pixel: the epilogue
//            stores 16 bytes from registers (as conv_direct_mma.cc)
//
// What a chunk holds past the end of its run belongs to other pixels. It is multiplied by zero, and
// since that may be NaN, it is cleared where chunks are not full.
#include "compiler/engines/conv_first_layer.h"

#include <algorithm>
#include <cmath>

#include "compiler/engines/contract_tiles.h"
#include "compiler/engines/conv_shape.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/lane_access.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kPixelsDomain[] = {64, 32};
constexpr int kRowsDomain[] = {4, 8, 2};
constexpr int kStepsDomain[] = {4, 1, 8};
constexpr KnobRow kKnobs[] = {
    {.name = "pixels", .cudnn_type = kKnobTileM, .domain = kPixelsDomain},
    {.name = "rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
    {.name = "steps", .cudnn_type = kKnobTileSize, .domain = kStepsDomain},
};
enum { kPixels, kRows, kSteps };

constexpr int kWarp = 32, kWarps = 4, kThreads = kWarp * kWarps;
constexpr int64_t kChunk = 8, kMostColumns = 128, kMostChannels = 4, kSlab = 32;

// How the problem is cut: everything that shared memory and loops are sized by.
struct Plan {
  int64_t rows, steps, columns, column_blocks;  // of output, in a piece
  int64_t slabs, sets;                          // blocks of filters; n tiles of each
  int64_t pixel;                                // elements of a staged pixel
  int64_t chunks, products;                     // of a filter row; of an output
  int64_t staged_rows, staged_columns, pitch;
  int64_t row_taps, row_stride, row_dilation, row_pad;
  int64_t stride, dilation, taps, pad;  // along the row

  int64_t panel_elements() const { return products * sets * kWarp * 4; }
  int64_t staged_elements() const { return staged_rows * pitch; }
  int64_t slots() const { return taps * pixel; }  // of a run
};

Plan PlanOf(const Group& group, const ConvShape& s, std::span<const int> knobs) {
  const Dims& y = group.graph[s.y].dims;
  Plan p{};
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
  p.rows = flat ? 1 : knobs[kRows];
  p.steps = knobs[kSteps];
  const int64_t q = std::max<int64_t>(y.back(), 1);
  p.column_blocks = CeilDiv(q, kMostColumns);
  p.columns = CeilDiv(q, p.column_blocks);
  p.sets = y[1] > kSlab ? 8 : 4;
  p.slabs = CeilDiv(y[1], p.sets * 8);
  const bool tight = p.dilation == 1 && p.stride * s.channels % 2 == 0;
  p.pixel = tight ? s.channels : s.channels <= 2 ? 2 : 4;
  p.chunks = CeilDiv(p.taps * p.pixel, kChunk);
  p.products = CeilDiv(p.row_taps * p.chunks, 2);
  p.staged_rows = (p.rows - 1) * p.row_stride + (p.row_taps - 1) * p.row_dilation + 1;
  // In whole fragments of pixels, so that nearby widths share a text.
  const int64_t reach = (CeilDiv(p.chunks * kChunk, p.pixel) - 1) * p.dilation + 1;
  p.staged_columns = AlignUp((AlignUp(p.columns, 16) - 1) * p.stride + reach, 2);
  p.pitch = p.staged_columns * p.pixel;
  return p;
}

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, const ConvShape& shape, const Plan& plan,
           int pixels)
      : group_(group),
        shape_(shape),
        p_(plan),
        tiles_(pixels / 16),
        b_(group, target,
           fmt::format("conv_first_layer: pixels={}, rows={}, steps={}", pixels, plan.rows,
                       plan.steps)),
        type_(group.graph[shape.x].dtype),
        out_(group, graph::Outputs(group.graph), shape.y, 8) {
    for (const char* reserved : {"bx", "tx", "step"}) b_.Name(reserved);
  }

  Lowered Lower() {
    const Dims& y = group_.graph[shape_.y].dims;
    const int64_t row_groups = shape_.spatial == 1 ? 1 : CeilDiv(y[2], p_.rows);
    const int64_t pieces = y[0] * row_groups * p_.column_blocks;
    Block body;
    const auto where = b_.Divide(body, Var("bx"), b_.Arg("slabs", p_.slabs),
                                 std::max<int64_t>(p_.slabs, 1), "slab");
    lane_ = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarp));
    warp_ = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarp));
    g_ = b_.Let(body, "g", lane_ / b_.Idx(4));
    t4_ = b_.Let(body, "t4", lane_ % b_.Idx(4));
    first_filter_ = b_.Let(body, "first_filter", where.remainder * b_.Idx(p_.sets * 8));
    FillPanel(body);
    staged_ = b_.Name("x_rows");
    body.push_back({tile::Alloc{staged_, type_, tile::Space::kShared, p_.staged_elements()}});

    Block loop;
    const Expr piece = b_.Let(loop, "piece", where.quotient * b_.Idx(p_.steps) + Var("step"));
    const Index at =
        b_.Unravel(loop, piece,
                   {b_.Extent(shape_.y, 0), b_.Arg("row_groups", row_groups),
                    p_.column_blocks == 1 ? b_.Idx(1) : b_.Arg("column_blocks", p_.column_blocks)},
                   {y[0], row_groups, p_.column_blocks}, "piece");
    image_ = at[0];
    first_row_ = b_.Let(loop, "first_row", at[1] * b_.Idx(p_.rows));
    columns_ = b_.Arg("columns", p_.columns);
    first_col_ = b_.Let(loop, "first_col", at[2] * columns_);
    exists_ = b_.Let(loop, "exists", tile::Lt(piece, b_.Arg("pieces", pieces)));
    StageRows(loop);
    loop.push_back({tile::Barrier{}});
    const int64_t units = CeilDiv(p_.rows * p_.columns, int64_t{tiles_} * 16);
    const Expr turns = b_.Arg("turns", CeilDiv(units, kWarps));
    Loop(loop, "turn", turns, Bind::kSerial, [&](Block& one, const Expr& turn) {
      Unit(one, b_.Let(one, "first_pixel",
                       (turn * b_.Idx(kWarps) + warp_) * b_.Idx(int64_t{tiles_} * 16)));
    });
    loop.push_back({tile::Barrier{}});
    body.push_back({tile::For{"step", t(), b_.Idx(p_.steps), Bind::kSerial, std::move(loop)}});

    const int64_t blocks = CeilDiv(pieces, p_.steps) * p_.slabs;
    Lowered lowered;
    body = BlockAndThread(t(), b_.Arg("grid", blocks), kThreads, std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, kThreads, lowered);
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
  Expr Zero(DType type) const { return tile::Cast(type, tile::Float(0)); }

  // ---- filters: panel[product][set / 2][lane][set % 2][4] ----
  Expr PanelAt(const Expr& product, const Expr& pair) const {
    return (product * b_.Idx(p_.sets / 2) + pair) * b_.Idx(kWarp * 8) + lane_ * b_.Idx(8);
  }

  void FillPanel(Block& body) {
    panel_ = b_.Name("w_panel");
    body.push_back({tile::Alloc{panel_, type_, tile::Space::kShared, p_.panel_elements()}});
    Loop(body, "f", b_.Idx(p_.products * 2), Bind::kSerial, [&](Block& one, const Expr& f) {
      const Expr chunk = f % b_.Idx(p_.chunks);
      const Expr r = b_.Let(one, "r", f / b_.Idx(p_.chunks));
      for (int64_t s = 0; s < p_.sets / kWarps; ++s) {
        const Expr set = warp_ + b_.Idx(s * kWarps);
        const Expr filter = b_.Let(one, "filter",
                                   first_filter_ + b_.Idx(s * kSlab) + g_ / b_.Idx(2) * b_.Idx(8) +
                                       warp_ * b_.Idx(2) + g_ % b_.Idx(2));
        Loop(one, "e", b_.Idx(2), Bind::kUnroll, [&](Block& element, const Expr& e) {
          const Expr slot = b_.Let(element, "slot", chunk * b_.Idx(kChunk) + t4_ * b_.Idx(2) + e);
          const Expr at = b_.Let(element, "at",
                                 PanelAt(f / b_.Idx(2), set / b_.Idx(2)) +
                                     set % b_.Idx(2) * b_.Idx(4) + f % b_.Idx(2) * b_.Idx(2) + e);
          element.push_back({tile::Store{panel_, at, Zero(type_)}});
          FilterElement(element, filter, r, slot, at);
        });
      }
    });
  }

  void FilterElement(Block& out, const Expr& filter, const Expr& r, const Expr& slot,
                     const Expr& at) {
    const Expr s = slot / b_.Idx(p_.pixel), c = slot % b_.Idx(p_.pixel);
    Expr guard = tile::And(tile::Lt(r, b_.Idx(p_.row_taps)), tile::Lt(slot, b_.Idx(p_.slots())));
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
    inside.push_back({tile::Store{panel_, at, tile::Cast(type_, values.Value(shape_.w, index))}});
    out.push_back({tile::If{guard, std::move(inside), {}}});
  }

  // ---- input rows, a pixel a thread ----
  void StageRows(Block& body) {
    const int64_t count = p_.staged_rows * p_.staged_columns;
    const Expr first_h =
        b_.Let(body, "first_h", first_row_ * b_.Idx(p_.row_stride) - b_.Idx(p_.row_pad));
    const Expr first_w = b_.Let(body, "first_w", first_col_ * b_.Idx(p_.stride) - b_.Idx(p_.pad));
    Loop(body, "i", b_.Idx(CeilDiv(count, kThreads)), Bind::kSerial,
         [&](Block& one, const Expr& i) {
           const Expr place = b_.Let(one, "staged", i * b_.Idx(kThreads) + Var("tx"));
           Block inside;
           StagePixel(inside, place, first_h, first_w);
           one.push_back({tile::If{tile::Lt(place, b_.Idx(count)), std::move(inside), {}}});
         });
  }

  void StagePixel(Block& out, const Expr& place, const Expr& first_h, const Expr& first_w) {
    const Expr row = b_.Let(out, "staged_row", place / b_.Idx(p_.staged_columns));
    const Expr h = b_.Let(out, "h", first_h + row);
    const Expr w = b_.Let(out, "w_at", first_w + place % b_.Idx(p_.staged_columns));
    const std::string pixel = b_.Name("pixel");
    out.push_back({tile::Alloc{pixel, type_, tile::Space::kReg, p_.pixel}});
    for (int64_t c = 0; c < p_.pixel; ++c)
      out.push_back({tile::Store{pixel, b_.Idx(c), Zero(type_)}});
    const int64_t rank = shape_.spatial + 2;
    Expr guard = tile::And(
        exists_, tile::And(tile::Ge(w, b_.Idx(0)), tile::Lt(w, b_.Extent(shape_.x, rank - 1))));
    if (shape_.spatial == 2)
      guard =
          tile::And(guard, tile::And(tile::Ge(h, b_.Idx(0)), tile::Lt(h, b_.Extent(shape_.x, 2))));
    Block inside;
    ValueScope values(b_, inside);
    for (int64_t c = 0; c < shape_.channels; ++c) {
      Index index = {image_, b_.Idx(c)};
      if (shape_.spatial == 2) index.push_back(h);
      index.push_back(w);
      inside.push_back(
          {tile::Store{pixel, b_.Idx(c), tile::Cast(type_, values.Value(shape_.x, index))}});
    }
    out.push_back({tile::If{guard, std::move(inside), {}}});
    for (int64_t c = 0; c < p_.pixel; ++c) {
      out.push_back({tile::Store{staged_, place * b_.Idx(p_.pixel) + b_.Idx(c),
                                 tile::Load(pixel, type_, b_.Idx(c))}});
    }
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
                        at.remainder * b_.Idx(p_.stride * p_.pixel) + lane_offset_);
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
      WideCopy(one, type_, fragment, n * b_.Idx(8), panel_, PanelAt(b_.Idx(product), n), 8);
    });
    for (int m = 0; m < tiles_; ++m) {
      const std::string a = b_.Name("x_fragment");
      body.push_back({tile::Alloc{a, type_, tile::Space::kReg, 8}});
      for (int half = 0; half < 2; ++half)
        for (int row = 0; row < 2; ++row)
          ReadPair(body, a, half * 4 + row * 2, product * 2 + half, pixels[m * 2 + row].base);
      Loop(body, "j", b_.Idx(p_.sets), Bind::kUnroll, [&](Block& one, const Expr& j) {
        const Expr slot = (b_.Idx(m * p_.sets) + j) * b_.Idx(4);
        one.push_back({tile::Mma{acc_, slot, a, b_.Idx(0), fragment, j * b_.Idx(4)}});
      });
    }
  }

  void ReadPair(Block& out, const std::string& a, int64_t to, int64_t number, const Expr& base) {
    const int64_t r = number / p_.chunks, chunk = number % p_.chunks;
    if (r >= p_.row_taps) {
      for (int e = 0; e < 2; ++e) out.push_back({tile::Store{a, b_.Idx(to + e), Zero(type_)}});
      return;
    }
    const int64_t along =
        p_.dilation == 1 ? chunk * kChunk : chunk * (kChunk / p_.pixel) * p_.dilation * p_.pixel;
    WideCopy(out, type_, a, b_.Idx(to), staged_,
             base + b_.Idx(r * p_.row_dilation * p_.pitch + along), 2);
    if ((chunk + 1) * kChunk <= p_.slots()) return;
    for (int e = 0; e < 2; ++e) {
      const Expr used = tile::Lt(t4_ * b_.Idx(2) + b_.Idx(e), b_.Idx(p_.slots() - chunk * kChunk));
      out.push_back({tile::Store{
          a, b_.Idx(to + e),
          tile::Cast(type_, tile::Select(
                                used, tile::Cast(DType::kF32, tile::Load(a, type_, b_.Idx(to + e))),
                                tile::Float(0)))}});
    }
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

  const Group& group_;
  ConvShape shape_;
  Plan p_;
  int tiles_;
  KernelBuilder b_;
  DType type_;
  LaneAccess out_;
  Expr lane_, warp_, g_, t4_, first_filter_, image_, first_row_, first_col_, columns_, exists_;
  Expr lane_offset_;
  std::string panel_, staged_, acc_;
};

int64_t SharedOf(const Plan& p) { return (p.panel_elements() + p.staged_elements()) * 2 + 16; }

int64_t SharedBytes(const Group& group, const Target&, std::span<const int> knobs) {
  return SharedOf(PlanOf(group, ShapeOf(group), knobs));
}

// The padded walk reads no pixel in part: an odd number of channels leaves a slot that must be
// finite, which staging clears.
Status CheckShape(const Group& group, const ConvShape& s) {
  constexpr int64_t kMostProducts = 64;
  if (s.op != graph::GraphOp::kConvFprop)
    return Status::Error(Code::kUnsupportedGraphPattern, "the convolution is not an fprop");
  if (s.groups != 1 || s.channels < 1 || s.channels > kMostChannels)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "there are {} groups of {} channels; it takes one of 1 to {}", s.groups,
                         s.channels, kMostChannels);
  if (s.spatial > 2)
    return Status::Error(Code::kUnsupportedGraphPattern, "there are {} spatial dims, more than 2",
                         s.spatial);
  if (s.filters % 8 != 0)
    return Status::Error(Code::kUnsupportedGraphPattern, "{} filters are no multiple of 8",
                         s.filters);
  constexpr int kSmallest[] = {64, 2, 1};
  const Plan plan = PlanOf(group, s, kSmallest);
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
  if (!target.is_cuda() || target.sm_version < 80)
    return Status::Error(Code::kArchMismatch, "mma.m16n8k16 needs sm_80 or later, the target is {}",
                         target.arch);
  const ConvShape shape = ShapeOf(group);
  RETURN_IF_ERROR(CheckShape(group, shape));
  const Tensor &x = group.graph[shape.x], &w = group.graph[shape.w];
  if (x.dtype != w.dtype || (x.dtype != DType::kF16 && x.dtype != DType::kBF16))
    return Status::Error(Code::kUnsupportedDataType,
                         "operands are {} and {}; both must be f16 or both bf16",
                         Info(x.dtype).text, Info(w.dtype).text);
  if (ArithmeticType(ContractionOf(group).compute) != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is not f32",
                         Info(ContractionOf(group).compute).text);
  return {};
}

Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  const ConvShape shape = ShapeOf(group);
  return Schedule(group, target, shape, PlanOf(group, shape, knobs), knobs[kPixels]).Lower();
}

double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  constexpr double kClock = 1.7e9, kBytesPerSecond = 3.9e12, kLaunchSeconds = 3e-6;
  // mma.sync at 62 % of the tensor cores; shared memory gives 128 bytes a cycle.
  constexpr double kProductCycles = 6.4 / 4, kStageCycles = 0.5;
  const ConvShape shape = ShapeOf(group);
  const Plan p = PlanOf(group, shape, knobs);
  const Dims& y = group.graph[shape.y].dims;
  const int64_t row_groups = shape.spatial == 1 ? 1 : CeilDiv(y[2], p.rows);
  const int64_t pieces = y[0] * row_groups * p.column_blocks;
  const double tiles = knobs[kPixels] / 16.0;
  const double units = std::ceil(static_cast<double>(p.rows * p.columns) / knobs[kPixels] / 4) * 4;
  const double product = std::max(tiles * p.sets * kProductCycles, tiles * 4 + p.sets * 2.0);
  double piece = units * static_cast<double>(p.products) * product * 1.15;
  piece += static_cast<double>(p.staged_elements()) * kStageCycles / 4;
  piece += static_cast<double>(p.panel_elements()) / static_cast<double>(p.steps) * 0.25;
  const int64_t blocks = CeilDiv(pieces, p.steps) * p.slabs;
  const double waves = static_cast<double>(CeilDiv(blocks, std::max(target.multiprocessors, 1)));
  const double busy = waves * static_cast<double>(p.steps) * piece / kClock;
  const double moved = static_cast<double>(FloorBytes(group)) / kBytesPerSecond;
  return kLaunchSeconds + std::max(busy, moved) + 0.2 * std::min(busy, moved);
}

constexpr int kBehavior[] = {kNoteRuntimeCompilation};
constexpr int kNumerical[] = {kNoteTensorCore};

}  // namespace

const Engine kConvFirstLayerEngine = {.name = "conv_first_layer",
                                      .version = 1,
                                      .knobs = kKnobs,
                                      .notes = {.numerical = kNumerical, .behavioral = kBehavior},
                                      .supports = Supports,
                                      .cost = Cost,
                                      .lower = Lower,
                                      .shared_bytes = SharedBytes};

}  // namespace kiln::compiler
