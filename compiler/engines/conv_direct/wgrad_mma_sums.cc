#include "compiler/engines/conv_direct/wgrad_mma_sums.h"

#include <utility>

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

WgradMmaSums::WgradMmaSums(const WgradMmaContext& context, const WgradMmaThread& thread,
                           const WgradMmaStages& stages, Block& body)
    : x_(context), at_(thread), stages_(stages) {
  acc_ = Registers(x_.b, body, "acc", DType::kF32, x_.accumulators());
  Clear(x_.b, body, acc_, DType::kF32, x_.accumulators());
  for (int64_t i = 0; i < x_.p.taps_of_set; ++i) AddShift(body, i);
}

// Taps past the last repeat it, and are not written.
void WgradMmaSums::AddShift(Block& body, int64_t i) {
  KernelBuilder& b = x_.b;
  const int64_t right = x_.col.dilation * kWgradPitch;
  const int64_t down = x_.row.dilation * x_.p.row_pitch * kWgradPitch;
  if (x_.by_rows()) {
    shifts_.push_back(b.Idx(i * right));
  } else if (x_.p.tap_sets == 1) {
    shifts_.push_back(b.Idx(i / x_.col.taps * down + i % x_.col.taps * right));
  } else {
    const Expr last = b.Idx(x_.taps() - 1);
    const Expr tap = b.Let(body, "tap", tile::Op(ScalarOp::kMin, {at_.first_tap + b.Idx(i), last}));
    const Expr r = tap / b.Idx(x_.col.taps), s = tap % b.Idx(x_.col.taps);
    shifts_.push_back(b.Let(body, "shift", r * b.Idx(down) + s * b.Idx(right)));
  }
}

// ---- products

// Matrix i of four: of dy pixels (i / 2) * 8 on, filters (i % 2) * 8 on; of x the other way round.
std::string WgradMmaSums::ReadDy(Block& body, const Slots& slots, const Expr& first) const {
  KernelBuilder& b = x_.b;
  const std::string a = Registers(b, body, "dy_fragment", x_.type(), 8 * x_.p.halves());
  const Expr matrix = at_.lane / b.Idx(8), low = at_.lane % b.Idx(8);
  const Expr pixel = first + matrix / b.Idx(2) * b.Idx(8) + low;
  const Expr from = b.Let(
      body, "dy_at",
      slots.dy + pixel * b.Idx(kWgradPitch) + at_.half * b.Idx(16) + matrix % b.Idx(2) * b.Idx(8));
  for (int64_t h = 0; h < x_.p.halves(); ++h)
    body.push_back(
        {tile::LoadMatrix{a, b.Idx(h * 8), stages_.dy(), from + b.Idx(h * 16), 4, true}});
  return a;
}

// The place of a lane's matrix row in x, of the tap at the window's corner.
Expr WgradMmaSums::PlaceInX(Block& body, const WgradMmaPiece& piece, const Slots& slots,
                            const Expr& first) const {
  KernelBuilder& b = x_.b;
  const WgradMmaPlan& p = x_.p;
  const Expr matrix = at_.lane / b.Idx(8), low = at_.lane % b.Idx(8);
  const Expr number = b.Let(body, "number", first + matrix % b.Idx(2) * b.Idx(8) + low);
  const WgradMmaPixel at = SplitPixel(b, body, number, p.rows, p.columns);
  const auto within = [&](const Expr& i, const Expr& count) {
    const Expr last = tile::Op(ScalarOp::kMax, {count - b.Idx(1), b.Idx(0)});
    return tile::Op(ScalarOp::kMin, {i, last});
  };
  const Expr place = within(at.image, piece.images) * b.Idx(p.image_pitch) +
                     within(at.row, piece.rows) * b.Idx(x_.row.stride * p.row_pitch) +
                     within(at.col, piece.cols) * b.Idx(x_.col.stride);
  // With 32 channels a group the filters of a warp meet all columns, else the 16 beside them.
  Expr column = matrix / b.Idx(2) * b.Idx(8);
  if (x_.by_rows())
    column = column + at_.filter_row * b.Idx(x_.row.dilation * p.row_pitch * kWgradPitch);
  if (p.tiles == 2) column = column + at_.channel_half * b.Idx(16);
  return b.Let(body, "x_at", slots.x + place * b.Idx(kWgradPitch) + column);
}

void WgradMmaSums::Multiply(Block& body, const WgradMmaPiece& piece, const Slots& slots,
                            const Expr& first) const {
  KernelBuilder& b = x_.b;
  const std::string a = ReadDy(body, slots, first);
  const Expr base = PlaceInX(body, piece, slots, first);
  for (int64_t tap = 0; tap < x_.p.taps_of_set; ++tap) {
    for (int64_t j = 0; j < x_.p.tiles; j += 2) {
      const std::string x = Registers(b, body, "x_fragment", x_.type(), 8);
      const Expr from = base + shifts_[tap] + b.Idx(j * 8);
      body.push_back({tile::LoadMatrix{x, b.Idx(0), stages_.x(), from, 4, true}});
      for (int64_t h = 0; h < x_.p.halves(); ++h)
        for (int64_t k = 0; k < 2; ++k)
          body.push_back(
              {tile::Mma{acc_, b.Idx(SumAt(h, tap, j + k)), a, b.Idx(h * 8), x, b.Idx(k * 4)}});
    }
  }
}

// ---- sums to scratch memory

Expr WgradMmaSums::Sum(int64_t slot) const { return tile::Load(acc_, DType::kF32, x_.b.Idx(slot)); }

void WgradMmaSums::WriteOwn(Block& body) const {
  KernelBuilder& b = x_.b;
  const std::string sums = b.Scratch(0, DType::kF32, false);
  const Expr pitch = b.Arg("sums_pitch", x_.padded_filters());
  for (int64_t h = 0; h < x_.p.halves(); ++h)
    for (int64_t tap = 0; tap < x_.p.taps_of_set; ++tap)
      for (int64_t e = 0; e < x_.p.tiles * 4; ++e)
        WriteSum(body, b.Idx(h), tap, e, Sum(SumAt(h, tap, 0) + e), sums, pitch);
}

// Writes the sums. Warps that share k hand those of the second part to the first, tap by tap.
void WgradMmaSums::Write(Block& body) const {
  if (x_.by_rows()) return WriteOwn(body);
  KernelBuilder& b = x_.b;
  const int64_t size = x_.p.tiles * 4;
  const std::string shared = b.Name("part_sums"), sums = b.Scratch(0, DType::kF32, false);
  body.push_back({tile::Alloc{shared, DType::kF32, tile::Space::kShared, 2 * kWarpLanes * size}});
  const Expr pitch = b.Arg("sums_pitch", x_.padded_filters());
  const Expr is_first = b.Let(body, "is_first", tile::Op(ScalarOp::kEq, {at_.part, b.Idx(0)}));
  const Expr is_second = b.Let(body, "is_second", tile::Op(ScalarOp::kEq, {at_.part, b.Idx(1)}));
  const Expr mine = b.Let(body, "mine", at_.half * b.Idx(kWarpLanes) + at_.lane);
  const auto sum_at = [&](int64_t e) { return b.Idx(e * 2 * kWarpLanes) + mine; };
  for (int64_t tap = 0; tap < x_.p.taps_of_set; ++tap) {
    Block hand, write;
    for (int64_t e = 0; e < size; ++e)
      hand.push_back({tile::Store{shared, sum_at(e), Sum(tap * size + e)}});
    When(body, is_second, std::move(hand));
    body.push_back({tile::Barrier{}});
    for (int64_t e = 0; e < size; ++e)
      WriteSum(write, at_.half, tap, e,
               Sum(tap * size + e) + tile::Load(shared, DType::kF32, sum_at(e)), sums, pitch);
    Expr guard = is_first;
    if (x_.p.tap_sets > 1)
      guard = tile::And(guard, tile::Lt(at_.first_tap + b.Idx(tap), b.Idx(x_.taps())));
    When(body, guard, std::move(write));
    body.push_back({tile::Barrier{}});
  }
}

// Only what filters and channels of one group have in common.
void WgradMmaSums::WriteSum(Block& out, const Expr& half, int64_t tap, int64_t e, const Expr& sum,
                            const std::string& sums, const Expr& pitch) const {
  KernelBuilder& b = x_.b;
  const Expr filter = half * b.Idx(16) + b.Idx(e % 4 / 2 * 8) + at_.g;  // of the slab
  Expr channel = b.Idx(e / 4 * 8 + e % 2) + at_.t4 * b.Idx(2);
  if (x_.p.tiles == 2) channel = channel + at_.channel_half * b.Idx(16);
  const Expr per_group = b.Idx(x_.shape.channels);
  const Expr row = at_.split * b.Idx(x_.sum_rows()) + (at_.first_tap + b.Idx(tap)) * per_group +
                   channel % per_group;
  Block inside;
  inside.push_back({tile::Store{sums, row * pitch + at_.first_channel + filter, sum}});
  When(out, tile::Op(ScalarOp::kEq, {filter / per_group, channel / per_group}), std::move(inside));
}

}  // namespace kiln::compiler
