#include "api/legacy/calls/long_convolution.h"

#include <numbers>

#include "api/legacy/plans/places.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::TensorId;

// A block is read in one of these ways: by itself, with zeros behind it; with the block before it
// behind it, as a circle has it; or with the block that follows.
enum class Around : uint8_t { kZeros, kBefore, kAfter };

class Transforms {
 public:
  Transforms(CallGraph& g, const LongConvolution& p)
      : g_(g), p_(p), blocks_(p.length / p.taps), places_(2 * p.taps) {
    const int bits = BitsOf(places_), most = BitsOf(p.largest_radix);
    const int stages = std::max(2, (bits + most - 1) / most);
    for (int i = 0; i < stages; ++i)
      radices_.push_back(int64_t{1} << (bits / stages + (i < bits % stages ? 1 : 0)));
  }

  // A transform of signals has two blocks where their number is even, the real and the imaginary
  // part of its places, as a filter that is real keeps them apart.
  bool is_paired() const { return blocks_ % 2 == 0; }
  int64_t rows() const { return p_.batch * p_.dim * transforms(); }

  // Spectra of rows, [N,C,transforms,Q,2,R] with R the last radix.
  TensorId OfSignal(TensorId x, Around around) {
    const bool is_padded = around == Around::kZeros || blocks_ == 1;
    if (!is_padded) {
      const int64_t other = around == Around::kBefore ? -p_.taps : p_.taps;
      x = AtPlaces(g_, x, PlacesAlong(g_, {blocks_, 2, p_.taps}, {p_.taps, other, 1}, 0, 2, 3), 2);
    }
    return Reshaped(
        g_, Transformed(x, rows(), {.is_half = is_padded, .is_paired = is_paired()}),
        {p_.batch, p_.dim, transforms(), places_ / radices_.back(), 2, radices_.back()});
  }
  TensorId OfFilter(TensorId w) {
    return Reshaped(g_, Transformed(w, p_.dim, {.is_half = true}),
                    {1, p_.dim, 1, places_ / radices_.back(), 2, radices_.back()});
  }

  // a b, or a with the conjugate of b.
  TensorId Product(TensorId a, TensorId b, bool conjugate) {
    const TensorId ar = Part(a, 4, 0), ai = Part(a, 4, 1), br = Part(b, 4, 0), bi = Part(b, 4, 1);
    const PointwiseMode real = conjugate ? PointwiseMode::kAdd : PointwiseMode::kSub,
                        other = conjugate ? PointwiseMode::kSub : PointwiseMode::kAdd;
    return Joined(Map(real, Times(ar, br), Times(ai, bi)), Map(other, Times(ai, br), Times(ar, bi)),
                  4);
  }

  // The first K places of each row, the real ones or both parts one behind the other.
  TensorId Inverse(TensorId spectrum, int64_t rows, bool is_paired) {
    const size_t last = radices_.size() - 1;
    int64_t outer = places_ / radices_[last], inner = radices_[last];
    TensorId z = Matmul(Reshaped(g_, spectrum, {1, rows * outer, 2 * inner}), Matrix(last, -1));
    for (size_t stage = last; stage-- > 0;) {
      const int64_t radix = radices_[stage];
      outer /= radix;
      z = Turned(Reshaped(g_, z, {rows * outer, radix, 2, inner}), 2, stage, -1);
      z = Reshaped(g_, z, {rows * outer, 2 * radix, inner});
      z = Matmul(stage == 0
                     ? EndMatrix({.is_half = true, .is_paired = is_paired, .is_inverse = true})
                     : Matrix(stage, -1),
                 z);
      inner *= radix;
    }
    return Map(PointwiseMode::kMul, Reshaped(g_, z, {rows * (is_paired ? 2 : 1), p_.taps}),
               g_.Constant(1.0 / static_cast<double>(places_), 2, p_.compute));
  }

 private:
  // The exponent of a power of 2.
  static int BitsOf(int64_t n) {
    int bits = 0;
    while (int64_t{1} << bits < n) ++bits;
    return bits;
  }

  // The side of the first stage, and of the inverse's last, on which numbers are a client's.
  struct End {
    bool is_half = false;    // of the places, where the others are zeros or not wanted
    bool is_paired = false;  // real and imaginary parts, or real ones alone
    bool is_inverse = false;
  };

  int64_t transforms() const { return is_paired() ? blocks_ / 2 : blocks_; }

  TensorId Transformed(TensorId x, int64_t rows, const End& end) {
    int64_t inner = places_ / radices_[0];
    TensorId z = g_.Pointwise(PointwiseMode::kIdentity, {x}, p_.compute);
    z = Reshaped(g_, z,
                 {rows, radices_[0] / (end.is_half ? 2 : 1) * (end.is_paired ? 2 : 1), inner});
    z = Matmul(EndMatrix(end), z);
    int64_t outer = rows;
    for (size_t stage = 0; stage + 1 < radices_.size(); ++stage) {
      const int64_t radix = radices_[stage], next = radices_[stage + 1];
      z = Turned(Reshaped(g_, z, {outer, 2, radix, inner}), 1, stage, 1);
      outer *= radix;
      inner /= next;
      z = inner == 1 ? Matmul(Reshaped(g_, z, {1, outer, 2 * next}), Matrix(stage + 1, 1))
                     : Matmul(Matrix(stage + 1, 1), Reshaped(g_, z, {outer, 2 * next, inner}));
    }
    return z;
  }

  // Each place times its factor between two stages, the parts, which lie along `from`, moved to the
  // other side of the radix.
  TensorId Turned(TensorId z, int64_t from, size_t stage, int sign) {
    const Dims dims = g_.DimsOf(z);
    const int64_t outer = dims[0], inner = dims[3], radix = radices_[stage];
    const int64_t to = 3 - from;
    const Dims whole = to == 1 ? Dims{outer, 1, radix, inner} : Dims{outer, radix, 1, inner};
    const auto flat = [&](int part) {
      return Reshaped(g_, Part(z, from, part), {outer, radix, inner});
    };
    const TensorId re = flat(0), im = flat(1);
    const int64_t places = radix * inner;
    const TensorId turns = Scaled(Times(Index({1, radix, 1}, 1), Index({1, 1, inner}, 2)),
                                  1.0 / static_cast<double>(places));
    const TensorId c = Cosine(turns), s = Cosine(Plus(turns, -0.25));
    const PointwiseMode plus = sign > 0 ? PointwiseMode::kAdd : PointwiseMode::kSub,
                        minus = sign > 0 ? PointwiseMode::kSub : PointwiseMode::kAdd;
    const TensorId real = Map(plus, Times(re, c), Times(im, s)),
                   other = Map(minus, Times(im, c), Times(re, s));
    return Joined(Reshaped(g_, real, whole), Reshaped(g_, other, whole), to);
  }

  // [1,2R,2R]: rows times columns of e^(-i angle) (e^(i angle) where the sign is -1), of both
  // parts.
  TensorId Matrix(size_t stage, int sign) {
    const int64_t radix = radices_[stage];
    const bool is_right = stage + 1 == radices_.size();  // columns are results
    const Dims rows = {1, 2, 1, 1, 1}, row = {1, 1, radix, 1, 1}, columns = {1, 1, 1, 2, 1},
               column = {1, 1, 1, 1, radix};
    const TensorId quarters = Scaled(Map(PointwiseMode::kSub, Index(rows, 1), Index(columns, 3)),
                                     is_right ? -0.25 * sign : 0.25 * sign);
    const TensorId turns = Map(
        PointwiseMode::kAdd,
        Scaled(Times(Index(row, 2), Index(column, 4)), 1.0 / static_cast<double>(radix)), quarters);
    return Reshaped(g_, Cosine(turns), {1, 2 * radix, 2 * radix});
  }

  // [1,2R,2R] with the columns of the End alone; the inverse's on its side.
  TensorId EndMatrix(const End& end) {
    const int64_t radix = radices_[0], places = end.is_half ? radix / 2 : radix,
                  parts = end.is_paired ? 2 : 1;
    const int64_t complex = end.is_inverse ? 3 : 1, own = end.is_inverse ? 1 : 3;
    const auto index = [&](int64_t axis, int64_t extent) {
      Dims dims(5, 1);
      dims[static_cast<size_t>(axis)] = extent;
      return Index(dims, axis);
    };
    const TensorId turns =
        Map(PointwiseMode::kAdd,
            Scaled(Times(index(complex + 1, radix), index(own + 1, places)),
                   1.0 / static_cast<double>(radix)),
            Scaled(Map(PointwiseMode::kSub, index(complex, 2), index(own, parts)), 0.25));
    return Reshaped(
        g_, Cosine(turns),
        end.is_inverse ? Dims{1, parts * places, 2 * radix} : Dims{1, 2 * radix, parts * places});
  }

  // cos(2 pi turns), of less than half a turn: what is left of whole ones is exact.
  TensorId Cosine(TensorId turns) {
    const TensorId whole = g_.Pointwise(PointwiseMode::kFloor, {Plus(turns, 0.5)}, p_.compute);
    return g_.Pointwise(PointwiseMode::kCos,
                        {Scaled(Map(PointwiseMode::kSub, turns, whole), 2 * std::numbers::pi)},
                        p_.compute);
  }

  TensorId Index(const Dims& dims, int64_t axis) {
    const TensorId index =
        g_.builder().Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = axis},
                           {.dtype = DType::kI32, .compute = DType::kI32, .dims = dims});
    return g_.Pointwise(PointwiseMode::kIdentity, {index}, p_.compute);
  }
  TensorId Constant(double value, TensorId beside) {
    return g_.Constant(value, std::ssize(g_.DimsOf(beside)), p_.compute);
  }
  TensorId Map(PointwiseMode mode, TensorId a, TensorId b) {
    return g_.Pointwise(mode, {a, b}, p_.compute);
  }
  TensorId Times(TensorId a, TensorId b) { return Map(PointwiseMode::kMul, a, b); }
  TensorId Scaled(TensorId a, double by) { return Times(a, Constant(by, a)); }
  TensorId Plus(TensorId a, double b) { return Map(PointwiseMode::kAdd, a, Constant(b, a)); }

  TensorId Matmul(TensorId a, TensorId b) {
    return g_.builder().Apply(GraphOp::kMatmul, {a, b}, graph::MatmulAttrs{},
                              {.dtype = p_.compute, .compute = p_.compute});
  }
  TensorId Part(TensorId x, int64_t axis, int64_t part) {
    Dims dims = g_.DimsOf(x);
    graph::SliceAttrs attrs{.start = Dims(dims.size(), 0), .step = Dims(dims.size(), 1)};
    attrs.start[static_cast<size_t>(axis)] = part;
    dims[static_cast<size_t>(axis)] = 1;
    return g_.builder().Apply(GraphOp::kSlice, {x}, attrs,
                              {.dtype = p_.compute, .compute = p_.compute, .dims = dims});
  }
  TensorId Joined(TensorId a, TensorId b, int64_t axis) {
    Dims dims = g_.DimsOf(a);
    dims[static_cast<size_t>(axis)] = 2;
    return g_.builder().Apply(GraphOp::kConcat, {a, b}, graph::ConcatAttrs{.axis = axis},
                              {.dtype = p_.compute, .compute = p_.compute, .dims = dims});
  }

  CallGraph& g_;
  const LongConvolution p_;
  const int64_t blocks_, places_;
  std::vector<int64_t> radices_;
};

}  // namespace

TensorId LongForward(CallGraph& g, const LongConvolution& p, TensorId x, TensorId w) {
  Transforms t(g, p);
  const TensorId product = t.Product(t.OfSignal(x, Around::kBefore), t.OfFilter(w), false);
  return Reshaped(g, t.Inverse(product, t.rows(), t.is_paired()), {p.batch, p.dim, p.length});
}

LongGradients LongBackward(CallGraph& g, const LongConvolution& p, TensorId x, TensorId w,
                           TensorId dy) {
  Transforms t(g, p);
  const TensorId dx = t.Inverse(t.Product(t.OfSignal(dy, Around::kAfter), t.OfFilter(w), true),
                                t.rows(), t.is_paired());
  // The part in which two blocks of a pair meet is imaginary, and not made.
  const TensorId all =
      t.Product(t.OfSignal(dy, Around::kZeros), t.OfSignal(x, Around::kBefore), true);
  Dims dims = g.DimsOf(all);
  dims[0] = dims[2] = 1;
  const TensorId sum = g.builder().Reduction(graph::ReductionMode::kAdd, all, dims,
                                             {.dtype = p.compute, .compute = p.compute});
  return {.dx = Reshaped(g, dx, {p.batch, p.dim, p.length}),
          .dw = Reshaped(g, t.Inverse(sum, p.dim, false), {p.dim, 1, p.taps})};
}

}  // namespace kiln::api::legacy
