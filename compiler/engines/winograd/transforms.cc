#include "compiler/engines/winograd/transforms.h"

#include "compiler/engines/contraction/contraction.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Block;
using tile::Expr;

constexpr int kThreads = 256;

// ---- one axis: values at 0, 1, -1 and infinity

using Line = std::vector<Expr>;
using LineFn = Line (*)(const Line&);

Line OfPixels(const Line& d) { return {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]}; }
Line OfTaps(const Line& g) {
  const Expr half = tile::Float(0.5), outer = g[0] + g[2];
  return {g[0], half * (outer + g[1]), half * (outer - g[1]), g[2]};
}
Line OfPair(const Line& g) {
  const Expr half = tile::Float(0.5);
  return {g[0], half * (g[0] + g[1]), half * (g[0] - g[1]), g[1]};
}
Line ToPair(const Line& m) { return {m[0] + m[1] + m[2], m[1] - m[2] + m[3]}; }
Line ToTaps(const Line& m) { return {m[0] + m[1] + m[2], m[1] - m[2], m[1] + m[2] + m[3]}; }

// ---- a kernel

class Transform {
 public:
  Transform(const Group& group, const Target& target, const WinogradPlan& plan,
            const WinogradMatrix& matrix, const char* what)
      : group_(group),
        plan_(plan),
        s_(plan.shape),
        matrix_(matrix),
        b_(group, target, fmt::format("winograd: {}", what),
           plan.wide() ? DType::kI64 : IndexType(group.graph)) {
    for (const char* reserved : {"bx", "tx"}) b_.Name(reserved);
  }

  // A thread for each row and column of the matrix; `fill` is what it does there.
  template <class F>
  void Lower(Lowered& lowered, F&& fill) {
    const int64_t count = matrix_.rows() * matrix_.columns();
    Block body, inside;
    const Expr i = b_.Let(body, "i", ThreadLinear(b_.index_type(), kThreads));
    const auto place =
        b_.Divide(inside, i, b_.Arg("columns", matrix_.columns()), matrix_.columns(), "column");
    first_ = b_.Let(inside, "first",
                    place.quotient * b_.Arg("pitch", matrix_.pitch()) + place.remainder);
    channel_ = matrix_.tiles_inside ? place.quotient : place.remainder;
    tile_ = matrix_.tiles_inside ? place.remainder : place.quotient;
    fill(inside);
    body.push_back({tile::If{tile::Lt(i, b_.Arg("count", count)), std::move(inside), {}}});
    const int64_t blocks = CeilDiv(count, kThreads);
    b_.Finish(BlockAndThread(b_.index_type(), b_.Arg("blocks", blocks), kThreads, std::move(body)),
              {blocks, 1, 1}, kThreads, lowered);
  }

  // Pixels of a tile from (first_h, first_w) on, 0 outside of the image, to coordinates.
  void FromTile(Block& out, TensorId image, int size, int64_t first_h, int64_t first_w, LineFn fn,
                int scratch) {
    SplitTile(out);
    const Expr top = Corner(out, "top", tile_h_, first_h);
    const Expr left = Corner(out, "left", tile_w_, first_w);
    FromPlaces(out, image, size, fn, scratch, [&](int i, int j) {
      return Operand{{image_, channel_, top + b_.Idx(i), left + b_.Idx(j)},
                     tile::And(Inside(top + b_.Idx(i), b_.Extent(image, 2)),
                               Inside(left + b_.Idx(j), b_.Extent(image, 3)))};
    });
  }

  // The 3x3 taps of a filter, rotated where that is what dgrad or the convolution's mode wants.
  void FromTaps(Block& out, TensorId w, int scratch) {
    const Expr made = channel_, summed = tile_;
    FromPlaces(out, w, 3, OfTaps, scratch, [&](int i, int j) {
      return Operand{
          {s_.is_dgrad() ? summed : made, s_.is_dgrad() ? made : summed, Tap(0, i), Tap(1, j)},
          nullptr};
    });
  }

  // From coordinates to 2x2 results of a tile.
  void ToTile(Block& out) {
    SplitTile(out);
    const auto results = BothAxes(out, Read(out), ToPair);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        const Expr h = tile_h_ * b_.Idx(2) + b_.Idx(i), w = tile_w_ * b_.Idx(2) + b_.Idx(j);
        Block inside;
        Store(inside, {image_, channel_, h, w}, results[i][j]);
        out.push_back({tile::If{
            tile::And(tile::Lt(h, b_.Extent(s_.out, 2)), tile::Lt(w, b_.Extent(s_.out, 3))),
            std::move(inside),
            {}}});
      }
  }

  // From coordinates to 3x3 taps.
  void ToFilter(Block& out) {
    const auto results = BothAxes(out, Read(out), ToTaps);
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j)
        Store(out, {channel_, tile_, Tap(0, i), Tap(1, j)}, results[i][j]);
  }

 private:
  using Lines = std::vector<Line>;

  Expr Tap(int64_t axis, int64_t tap) const {
    return b_.Idx(s_.FilterTap(axis, s_.is_dgrad() ? 2 - tap : tap));
  }

  void SplitTile(Block& out) {
    const Index split = b_.Unravel(
        out, tile_, {b_.Idx(0), b_.Arg("tiles_h", plan_.tiles_h), b_.Arg("tiles_w", plan_.tiles_w)},
        {0, plan_.tiles_h, plan_.tiles_w}, "tile");
    image_ = split[0];
    tile_h_ = split[1];
    tile_w_ = split[2];
  }

  Expr Corner(Block& out, const char* name, const Expr& tile, int64_t first) {
    return b_.Let(out, name, tile * b_.Idx(2) + b_.Arg(fmt::format("first_{}", name), first));
  }

  Expr Inside(const Expr& at, const Expr& extent) const {
    return tile::And(tile::Ge(at, b_.Idx(0)), tile::Lt(at, extent));
  }

  Lines BothAxes(Block& out, const Lines& patch, LineFn fn) {
    const auto named = [&](const Line& line) {
      Line lets;
      for (const Expr& e : line) lets.push_back(b_.Let(out, "v", e));
      return lets;
    };
    Lines half;  // half[column][coordinate]
    for (size_t j = 0; j < patch[0].size(); ++j) {
      Line column;
      for (const Line& row : patch) column.push_back(row[j]);
      half.push_back(named(fn(column)));
    }
    Lines both;
    for (size_t i = 0; i < half[0].size(); ++i) {
      Line row;
      for (const Line& column : half) row.push_back(column[i]);
      both.push_back(named(fn(row)));
    }
    return both;
  }

  // at(i, j) = a place of the tensor and its guard.
  template <class F>
  void FromPlaces(Block& out, TensorId tensor, int size, LineFn fn, int scratch, F&& at) {
    const std::string patch = b_.Name("patch");
    out.push_back({tile::Alloc{patch, DType::kF32, tile::Space::kReg, int64_t{size} * size}});
    Lines lines;
    for (int i = 0; i < size; ++i) {
      lines.emplace_back();
      for (int j = 0; j < size; ++j) {
        const Expr slot = b_.Idx(int64_t{i} * size + j);
        const Operand place = at(i, j);
        Block read;
        ValueScope values(b_, read);
        const Expr value = values.Value(tensor, place.index);
        read.push_back({tile::Store{patch, slot, value}});
        if (place.guard) {
          Block zero;
          zero.push_back({tile::Store{patch, slot, tile::Float(0)}});
          out.push_back({tile::If{place.guard, std::move(read), std::move(zero)}});
        } else {
          for (tile::Stmt& stmt : read) out.push_back(std::move(stmt));
        }
        lines.back().push_back(tile::Load(patch, DType::kF32, slot));
      }
    }
    Write(out, BothAxes(out, lines, fn), scratch);
  }

  Expr PlaceOf(int point) { return point == 0 ? first_ : first_ + b_.Idx(point) * PointStride(); }
  Expr PointStride() {
    if (!point_stride_) point_stride_ = b_.Arg("point_stride", matrix_.point_stride());
    return point_stride_;
  }

  void Write(Block& out, const Lines& points, int scratch) {
    const std::string buffer = b_.Scratch(scratch, DType::kF32, false);
    for (int p = 0; p < kWinogradPoints; ++p)
      out.push_back(
          {tile::Store{buffer, PlaceOf(p), points[p / kWinogradTile][p % kWinogradTile]}});
  }

  Lines Read(Block& out) {
    const std::string buffer = b_.Scratch(kWinogradOut, DType::kF32, true);
    Lines lines(kWinogradTile);
    for (int p = 0; p < kWinogradPoints; ++p)
      lines[p / kWinogradTile].push_back(
          b_.Let(out, "m", tile::Load(buffer, DType::kF32, PlaceOf(p))));
    return lines;
  }

  // A result of the convolution through the epilogue.
  void Store(Block& out, const Index& at, const Expr& value) {
    const graph::Graph& g = group_.graph;
    ValueScope values(b_, out);
    values.Bind(s_.out, at, RoundThrough(g[s_.out].dtype, value));
    for (const TensorId y : graph::Outputs(g))
      out.push_back({tile::Store{b_.Pointer(y), b_.Offset(y, at),
                                 tile::Cast(g[y].dtype, values.Value(y, at))}});
  }

  const Group& group_;
  const WinogradPlan& plan_;
  const ConvShape& s_;
  const WinogradMatrix& matrix_;
  KernelBuilder b_;
  Expr first_, channel_, tile_, point_stride_;
  Expr image_, tile_h_, tile_w_;
};

}  // namespace

void TransformWinogradPixels(const Group& group, const Target& target, const WinogradPlan& plan,
                             Lowered& lowered) {
  Transform t(group, target, plan, plan.b, "tiles of pixels to their coordinates");
  t.Lower(lowered, [&](Block& out) {
    t.FromTile(out, plan.pixels, kWinogradTile, plan.first_h, plan.first_w, OfPixels, kWinogradB);
  });
}

void TransformWinogradOther(const Group& group, const Target& target, const WinogradPlan& plan,
                            Lowered& lowered) {
  const bool wgrad = plan.shape.is_wgrad();
  Transform t(group, target, plan, plan.a,
              wgrad ? "tiles of dy to their coordinates" : "filters to their coordinates");
  t.Lower(lowered, [&](Block& out) {
    if (wgrad)
      t.FromTile(out, plan.other, 2, 0, 0, OfPair, kWinogradA);
    else
      t.FromTaps(out, plan.other, kWinogradA);
  });
}

void TransformWinogradBack(const Group& group, const Target& target, const WinogradPlan& plan,
                           Lowered& lowered) {
  Transform t(group, target, plan, plan.out, "products to results");
  t.Lower(lowered, [&](Block& out) {
    if (plan.shape.is_wgrad())
      t.ToFilter(out);
    else
      t.ToTile(out);
  });
}

}  // namespace kiln::compiler
