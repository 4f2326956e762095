// Convolution and its two gradients. All three walk the same taps, the triples (x, w, y) of
// positions that y = Σ x·w pairs; they differ only in which of the three is summed into.
#include <array>
#include <cmath>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

using Extent3 = std::array<int64_t, 3>;

// Spatial dims padded in front to three.
Extent3 Spatial(const Dims& dims, size_t skip, int64_t fill) {
  Extent3 out{fill, fill, fill};
  const size_t rank = dims.size() - skip;
  for (size_t i = 0; i < rank; ++i) out[3 - rank + i] = dims[skip + i];
  return out;
}

struct Taps {
  int64_t batch, groups, channels, filters;  // channels and filters of one group
  Extent3 in, filter, out, pad, stride, dilation;
  bool flip;

  Taps(const ConvGeometry& g, const Dims& x, const Dims& w, const Dims& y)
      : batch(x[0]),
        groups(x[1] / w[1]),
        channels(w[1]),
        filters(w[0] / groups),
        in(Spatial(x, 2, 1)),
        filter(Spatial(w, 2, 1)),
        out(Spatial(y, 2, 1)),
        pad(Spatial(g.pre_padding, 0, 0)),
        stride(Spatial(g.stride, 0, 1)),
        dilation(Spatial(g.dilation, 0, 1)),
        flip(g.flip) {}

  static int64_t At(const Extent3& extent, int64_t plane, const Extent3& p) {
    return ((plane * extent[0] + p[0]) * extent[1] + p[1]) * extent[2] + p[2];
  }

  // visit(x offset, w offset, y offset) for the taps of one output position.
  template <typename Visit>
  void AtOutput(int64_t n, int64_t g, int64_t k, const Extent3& o, const Visit& visit) const {
    const int64_t y = At(out, (n * groups + g) * filters + k, o);
    for (int64_t c = 0; c < channels; ++c) {
      for (Extent3 f{0, 0, 0}; f[0] < filter[0]; ++f[0]) {
        for (f[1] = 0; f[1] < filter[1]; ++f[1]) {
          for (f[2] = 0; f[2] < filter[2]; ++f[2]) {
            Extent3 i, r = f;
            bool inside = true;
            for (int d = 0; d < 3; ++d) {
              i[d] = o[d] * stride[d] - pad[d] + f[d] * dilation[d];
              inside &= 0 <= i[d] && i[d] < in[d];
              if (flip) r[d] = filter[d] - 1 - f[d];
            }
            if (inside)
              visit(At(in, (n * groups + g) * channels + c, i),
                    At(filter, (g * filters + k) * channels + c, r), y);
          }
        }
      }
    }
  }

  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t k = 0; k < filters; ++k) {
          for (Extent3 o{0, 0, 0}; o[0] < out[0]; ++o[0]) {
            for (o[1] = 0; o[1] < out[1]; ++o[1]) {
              for (o[2] = 0; o[2] < out[2]; ++o[2]) AtOutput(n, g, k, o, visit);
            }
          }
        }
      }
    }
  }
};

void AddProduct(Accumulator& sum, Value a, Value b, double operand_roundoff) {
  const double ea = a.e + operand_roundoff * std::fabs(a.v);
  const double eb = b.e + operand_roundoff * std::fabs(b.v);
  sum.Add(a.v * b.v, std::fabs(a.v) * eb + std::fabs(b.v) * ea + ea * eb);
}

Dense Collect(const Dims& dims, const std::vector<Accumulator>& sums, const Scaling& scaling,
              const Precision& p) {
  Dense out{.dims = dims, .values = {}};
  out.values.reserve(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    Value value = sums[i].Result(p.compute, p.sum_roundoff);
    if (scaling.alpha != 1 || scaling.beta != 0) {
      Accumulator scaled;
      scaled.Add(scaling.alpha * value.v, std::fabs(scaling.alpha) * value.e);
      if (scaling.beta != 0) {
        const Value previous = scaling.previous->values[i];
        scaled.Add(scaling.beta * previous.v, std::fabs(scaling.beta) * previous.e);
      }
      value = scaled.Result(p.compute);
    }
    out.values.push_back(value);
  }
  return out;
}

}  // namespace

Dims ConvOutputDims(const ConvGeometry& geometry, const Dims& x, const Dims& w) {
  Dims y{x[0], w[0]};
  for (size_t d = 0; d + 2 < x.size(); ++d) {
    const int64_t reach = geometry.dilation[d] * (w[d + 2] - 1) + 1;
    const int64_t room = x[d + 2] + geometry.pre_padding[d] + geometry.post_padding[d] - reach;
    y.push_back(room < 0 ? 0 : room / geometry.stride[d] + 1);
  }
  return y;
}

Dense ConvFprop(const ConvGeometry& geometry, const Dense& x, const Dense& w,
                const Scaling& scaling, Precision p) {
  const Dims y = ConvOutputDims(geometry, x.dims, w.dims);
  std::vector<Accumulator> sums(static_cast<size_t>(Count(y)));
  Taps(geometry, x.dims, w.dims, y).ForEach([&](int64_t xi, int64_t wi, int64_t yi) {
    AddProduct(sums[static_cast<size_t>(yi)], x.values[static_cast<size_t>(xi)],
               w.values[static_cast<size_t>(wi)], p.operand_roundoff);
  });
  return Collect(y, sums, scaling, p);
}

Dense ConvDgrad(const ConvGeometry& geometry, const Dense& dy, const Dense& w, const Dims& dx,
                const Scaling& scaling, Precision p) {
  std::vector<Accumulator> sums(static_cast<size_t>(Count(dx)));
  Taps(geometry, dx, w.dims, dy.dims).ForEach([&](int64_t xi, int64_t wi, int64_t yi) {
    AddProduct(sums[static_cast<size_t>(xi)], dy.values[static_cast<size_t>(yi)],
               w.values[static_cast<size_t>(wi)], p.operand_roundoff);
  });
  return Collect(dx, sums, scaling, p);
}

Dense ConvWgrad(const ConvGeometry& geometry, const Dense& x, const Dense& dy, const Dims& dw,
                const Scaling& scaling, Precision p) {
  std::vector<Accumulator> sums(static_cast<size_t>(Count(dw)));
  Taps(geometry, x.dims, dw, dy.dims).ForEach([&](int64_t xi, int64_t wi, int64_t yi) {
    AddProduct(sums[static_cast<size_t>(wi)], x.values[static_cast<size_t>(xi)],
               dy.values[static_cast<size_t>(yi)], p.operand_roundoff);
  });
  return Collect(dw, sums, scaling, p);
}

}  // namespace kiln::oracle
