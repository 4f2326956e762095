#include "compiler/engines/winograd_transforms.h"

#include <cmath>

#include "compiler/engines/contraction.h"
#include "compiler/engines/vectors.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Block;
using tile::Expr;

constexpr int kThreads = 256;

// ---- one axis
// ------------------------------------------------------------------------------------------------

using Row = std::vector<double>;
using Matrix = std::vector<Row>;
using Line = std::vector<Expr>;

Row TimesLinear(const Row& polynomial, double root) {
  Row product(polynomial.size() + 1, 0);
  for (size_t i = 0; i < polynomial.size(); ++i) {
    product[i + 1] += polynomial[i];
    product[i] -= root * polynomial[i];
  }
  return product;
}

// Results of `results` sums of `taps` products each, y[i] = sum over k of d[i + k] * g[k], from
// their values: y = back (of_taps g * of_pixels d), at the points and at infinity.
struct Coordinates {
  Matrix back, of_taps, of_pixels;
};
Coordinates CoordinatesFor(int results, int taps) {
  // For tiles of 6x6 these are better than 0, 1, -1, 2, -2, by a simulation of errors.
  const Row points = results + taps == 5 ? Row{0, 1, -1} : Row{0, 1, -1, 2, -0.5};
  const size_t n = points.size() + 1, r = static_cast<size_t>(results),
               t = static_cast<size_t>(taps);
  Coordinates c{.back = Matrix(r, Row(n, 0)), .of_taps = {}, .of_pixels = {}};
  Row all = {1};
  for (size_t j = 0; j + 1 < n; ++j) {
    double scale = 1;
    Row others = {1}, powers;
    for (size_t k = 0; k + 1 < n; ++k) {
      if (k == j) continue;
      scale *= points[j] - points[k];
      others = TimesLinear(others, points[k]);
    }
    for (size_t i = 0; i < t; ++i)
      powers.push_back(std::pow(points[j], static_cast<double>(i)) / std::abs(scale));
    for (size_t i = 0; i < r; ++i) c.back[i][j] = std::pow(points[j], static_cast<double>(i));
    others.resize(n, 0);
    for (double& value : others) value = std::copysign(1.0, scale) * value;
    c.of_taps.push_back(std::move(powers));
    c.of_pixels.push_back(std::move(others));
    all = TimesLinear(all, points[j]);
  }
  c.back[r - 1][n - 1] = 1;
  c.of_taps.emplace_back(t, 0);
  c.of_taps.back().back() = 1;
  c.of_pixels.push_back(std::move(all));
  return c;
}

Line Apply(const Matrix& matrix, const Line& line) {
  Line result;
  for (const Row& row : matrix) {
    Expr sum;
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] == 0) continue;
      const double size = std::abs(row[i]);
      const Expr term = size == 1 ? line[i] : tile::Float(size) * line[i];
      if (!sum)
        sum = row[i] > 0 ? term : tile::Float(-size) * line[i];
      else
        sum = row[i] > 0 ? sum + term : sum - term;
    }
    result.push_back(sum);
  }
  return result;
}

// ---- a kernel
// ---------------------------------------------------------------------------------------

class Transform {
 public:
  Transform(const Group& group, const Target& target, const WinogradPlan& plan,
            const WinogradMatrix& matrix, const char* what)
      : group_(group),
        plan_(plan),
        s_(plan.shape),
        matrix_(matrix),
        coordinates_(plan.shape.is_wgrad() ? CoordinatesFor(kWinogradTaps, plan.made)
                                           : CoordinatesFor(plan.made, kWinogradTaps)),
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

  // Overlapping tiles of pixels to coordinates, 0 outside of the image.
  void FromPixels(Block& out) {
    FromTile(out, plan_.pixels, plan_.size(), plan_.first_h, plan_.first_w, coordinates_.of_pixels,
             kWinogradB);
  }
  // Tiles of dy.
  void FromGradients(Block& out) {
    FromTile(out, plan_.other, plan_.made, 0, 0, coordinates_.of_taps, kWinogradA);
  }

  // The 3x3 taps of a filter, rotated where that is what dgrad or the convolution's mode wants.
  void FromFilters(Block& out) {
    const Expr made = channel_, summed = tile_;
    FromPlaces(
        out, plan_.other, kWinogradTaps, coordinates_.of_taps, kWinogradA, [&](int i, int j) {
          return Operand{
              {s_.is_dgrad() ? summed : made, s_.is_dgrad() ? made : summed, Tap(0, i), Tap(1, j)},
              nullptr};
        });
  }

  // From coordinates to the results of a tile.
  void ToTile(Block& out) {
    SplitTile(out);
    const auto results = BothAxes(out, Read(out), coordinates_.back);
    for (int i = 0; i < plan_.made; ++i)
      for (int j = 0; j < plan_.made; ++j) {
        const Expr h = tile_h_ * b_.Idx(plan_.made) + b_.Idx(i);
        const Expr w = tile_w_ * b_.Idx(plan_.made) + b_.Idx(j);
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
    const auto results = BothAxes(out, Read(out), coordinates_.back);
    for (int i = 0; i < kWinogradTaps; ++i)
      for (int j = 0; j < kWinogradTaps; ++j)
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

  // Where the places of a tile stand along one axis of the image, and whether they are in it.
  struct Places {
    Line at, inside;
  };
  Places PlacesOf(Block& out, const std::string& name, const Expr& tile, int64_t first, int size,
                  const Expr& extent) {
    const Expr corner =
        b_.Let(out, name, tile * b_.Idx(plan_.made) + b_.Arg("first_" + name, first));
    Places places;
    for (int i = 0; i < size; ++i) {
      places.at.push_back(corner + b_.Idx(i));
      places.inside.push_back(b_.Let(
          out, "has_" + name,
          tile::And(tile::Ge(places.at.back(), b_.Idx(0)), tile::Lt(places.at.back(), extent))));
    }
    return places;
  }

  void FromTile(Block& out, TensorId image, int size, int64_t first_h, int64_t first_w,
                const Matrix& matrix, int scratch) {
    SplitTile(out);
    const Places rows = PlacesOf(out, "h", tile_h_, first_h, size, b_.Extent(image, 2));
    const Places columns = PlacesOf(out, "w", tile_w_, first_w, size, b_.Extent(image, 3));
    FromPlaces(out, image, size, matrix, scratch, [&](int i, int j) {
      return Operand{{image_, channel_, rows.at[i], columns.at[j]},
                     tile::And(rows.inside[i], columns.inside[j])};
    });
  }

  Lines BothAxes(Block& out, const Lines& patch, const Matrix& matrix) {
    const auto named = [&](const Line& line) {
      Line lets;
      for (const Expr& e : line) lets.push_back(b_.Let(out, "v", e));
      return lets;
    };
    Lines half;  // half[column][coordinate]
    for (size_t j = 0; j < patch[0].size(); ++j) {
      Line column;
      for (const Line& row : patch) column.push_back(row[j]);
      half.push_back(named(Apply(matrix, column)));
    }
    Lines both;
    for (size_t i = 0; i < half[0].size(); ++i) {
      Line row;
      for (const Line& column : half) row.push_back(column[i]);
      both.push_back(named(Apply(matrix, row)));
    }
    return both;
  }

  // at(i, j) = a place of the tensor and its guard.
  template <class F>
  void FromPlaces(Block& out, TensorId tensor, int size, const Matrix& matrix, int scratch,
                  F&& at) {
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
    Write(out, BothAxes(out, lines, matrix), scratch);
  }

  Expr PlaceOf(int point) { return point == 0 ? first_ : first_ + b_.Idx(point) * PointStride(); }
  Expr PointStride() {
    if (!point_stride_) point_stride_ = b_.Arg("point_stride", matrix_.point_stride());
    return point_stride_;
  }

  void Write(Block& out, const Lines& points, int scratch) {
    const std::string buffer = b_.Scratch(scratch, DType::kF32, false);
    for (int p = 0; p < matrix_.points; ++p)
      out.push_back({tile::Store{buffer, PlaceOf(p), points[p / plan_.size()][p % plan_.size()]}});
  }

  Lines Read(Block& out) {
    const std::string buffer = b_.Scratch(kWinogradOut, DType::kF32, true);
    Lines lines(static_cast<size_t>(plan_.size()));
    for (int p = 0; p < matrix_.points; ++p)
      lines[p / plan_.size()].push_back(
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
  const Coordinates coordinates_;
  KernelBuilder b_;
  Expr first_, channel_, tile_, point_stride_;
  Expr image_, tile_h_, tile_w_;
};

}  // namespace

void TransformWinogradPixels(const Group& group, const Target& target, const WinogradPlan& plan,
                             Lowered& lowered) {
  Transform t(group, target, plan, plan.b, "tiles of pixels to their coordinates");
  t.Lower(lowered, [&](Block& out) { t.FromPixels(out); });
}

void TransformWinogradOther(const Group& group, const Target& target, const WinogradPlan& plan,
                            Lowered& lowered) {
  const bool wgrad = plan.shape.is_wgrad();
  Transform t(group, target, plan, plan.a,
              wgrad ? "tiles of dy to their coordinates" : "filters to their coordinates");
  t.Lower(lowered, [&](Block& out) {
    if (wgrad)
      t.FromGradients(out);
    else
      t.FromFilters(out);
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
