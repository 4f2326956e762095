// cudnnSpatialTf…: grids of an affine map, and bilinear samples at them, from Jaderberg's formulas.
#include <algorithm>
#include <cmath>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;
using oracle::Value;

struct SpatialCase {
  Layout layout = {};
  Dims x = {2, 3, 5, 7}, y = {2, 3, 4, 6};
  Factors factors = {1, 0};
  std::string fill = "uniform";  // of the grid
  bool not_nvidia = false;
};

cudnnSpatialTransformerDescriptor_t Describe(const SpatialCase& s, const LegacyContext& c) {
  auto transformer = c.client.New<cudnnSpatialTransformerDescriptor_t>("SpatialTransformer");
  const std::vector<int> dims(s.y.begin(), s.y.end());
  KILN_CALL(c.client, cudnnSetSpatialTransformerNdDescriptor, transformer, CUDNN_SAMPLER_BILINEAR,
            s.layout.type, 4, dims.data());
  return transformer;
}

// -1 at the first of `extent` places, 1 at the last.
double Normalised(int64_t place, int64_t extent) {
  if (extent == 1) return -1;
  return 2 * static_cast<double>(place) / static_cast<double>(extent - 1) - 1;
}

// ---- grids

std::string RunGridForward(const SpatialCase& s, const LegacyContext& c) {
  const Layout packed = {s.layout.type};
  const LegacyTensor theta = c.Tensor(packed, {s.y[0], 2, 3}, 1),
                     grid = c.Tensor(packed, {s.y[0], s.y[2], s.y[3], 2}, 2);
  const cudnnStatus_t status =
      KILN_CALL(c.client, cudnnSpatialTfGridGeneratorForward, c.handle, Describe(s, c),
                static_cast<const void*>(theta.data()), grid.data());
  const double u = oracle::UnitRoundoff(FactorType(s.layout.type));
  const Dense map = theta.Before();
  Dense expected = grid.Before();
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t w = at / 2 % s.y[3], h = at / 2 / s.y[3] % s.y[2];
    const auto row = static_cast<size_t>((at / (2 * s.y[3] * s.y[2]) * 2 + at % 2) * 3);
    const double one = map.values[row].v * Normalised(w, s.y[3]),
                 two = map.values[row + 1].v * Normalised(h, s.y[2]), three = map.values[row + 2].v;
    expected.values[i] = {one + two + three,
                          8 * u * (std::fabs(one) + std::fabs(two) + std::fabs(three) + 1)};
  }
  return FirstOf({c.Done(status), grid.Check(expected, 1), theta.CheckUnchanged()});
}

std::string RunGridBackward(const SpatialCase& s, const LegacyContext& c) {
  const Layout packed = {s.layout.type};
  const LegacyTensor dtheta = c.Tensor(packed, {s.y[0], 2, 3}, 1),
                     dgrid = c.Tensor(packed, {s.y[0], s.y[2], s.y[3], 2}, 2);
  const cudnnStatus_t status =
      KILN_CALL(c.client, cudnnSpatialTfGridGeneratorBackward, c.handle, Describe(s, c),
                static_cast<const void*>(dgrid.data()), dtheta.data());
  const oracle::DType compute = FactorType(s.layout.type);
  const double u = oracle::UnitRoundoff(compute);
  const Dense grad = dgrid.Before();
  std::vector<oracle::Accumulator> sums(static_cast<size_t>(s.y[0] * 6));
  for (size_t i = 0; i < grad.values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t w = at / 2 % s.y[3], h = at / 2 / s.y[3] % s.y[2];
    const auto row = static_cast<size_t>((at / (2 * s.y[3] * s.y[2]) * 2 + at % 2) * 3);
    const double g = grad.values[i].v;
    const double factors[] = {Normalised(w, s.y[3]), Normalised(h, s.y[2]), 1};
    for (size_t m = 0; m < 3; ++m) sums[row + m].Add(g * factors[m], 4 * u * std::fabs(g));
  }
  Dense expected = dtheta.Before();
  for (size_t i = 0; i < sums.size(); ++i) expected.values[i] = sums[i].Result(compute);
  return FirstOf({c.Done(status), dtheta.Check(expected, 1), dgrid.CheckUnchanged()});
}

// ---- samples

// The place of a sample along one axis, and how exactly that is known.
struct Along {
  int64_t below;
  double rest, slope, error;
};
Along AlongAxis(double coordinate, int64_t extent, double u) {
  const double half = static_cast<double>(extent - 1) / 2;
  const double at = (coordinate + 1) * half, below = std::floor(at);
  return {.below = static_cast<int64_t>(below),
          .rest = at - below,
          .slope = half,
          .error = 4 * u * (std::fabs(at) + half)};
}
struct Place {
  Along row, column;
};
Place PlaceOf(const SpatialCase& s, const Dense& grid, int64_t n, int64_t h, int64_t w) {
  const double u = oracle::UnitRoundoff(FactorType(s.layout.type));
  const auto i = static_cast<size_t>(((n * s.y[2] + h) * s.y[3] + w) * 2);
  return {.row = AlongAxis(grid.values[i + 1].v, s.x[2], u),
          .column = AlongAxis(grid.values[i].v, s.x[3], u)};
}
// Number of the element of x in an image's channel, or -1.
int64_t Element(const SpatialCase& s, const Place& p, int r, int k) {
  const int64_t row = p.row.below + r, column = p.column.below + k;
  const bool inside = row >= 0 && row < s.x[2] && column >= 0 && column < s.x[3];
  return inside ? row * s.x[3] + column : -1;
}
// Calls visit(element of x or -1, weight, its slopes along row and column).
template <class F>
void ForEachCorner(const SpatialCase& s, const Place& p, F&& visit) {
  for (int r = 0; r < 2; ++r) {
    for (int k = 0; k < 2; ++k) {
      const double of_row = r == 1 ? p.row.rest : 1 - p.row.rest;
      const double of_column = k == 1 ? p.column.rest : 1 - p.column.rest;
      visit(Element(s, p, r, k), of_row * of_column, (r == 1 ? 1 : -1) * of_column,
            (k == 1 ? 1 : -1) * of_row);
    }
  }
}

// Calls visit(n, c, place, number of y's element, number of x's first in the channel).
template <class F>
void ForEachSample(const SpatialCase& s, const Dense& grid, F&& visit) {
  size_t i = 0;
  for (int64_t n = 0; n < s.y[0]; ++n)
    for (int64_t c = 0; c < s.y[1]; ++c)
      for (int64_t h = 0; h < s.y[2]; ++h)
        for (int64_t w = 0; w < s.y[3]; ++w)
          visit(PlaceOf(s, grid, n, h, w), i++, (n * s.x[1] + c) * s.x[2] * s.x[3],
                static_cast<size_t>(((n * s.y[2] + h) * s.y[3] + w) * 2));
}

std::string RunSamplerForward(const SpatialCase& s, const LegacyContext& c) {
  const LegacyTensor x = c.Tensor(s.layout, s.x, 1), y = c.Tensor(s.layout, s.y, 2),
                     grid = c.Tensor({s.layout.type}, {s.y[0], s.y[2], s.y[3], 2}, 3, s.fill);
  const Factor alpha(s.factors.alpha, s.layout.type), beta(s.factors.beta, s.layout.type);
  const cudnnStatus_t status = KILN_CALL(
      c.client, cudnnSpatialTfSamplerForward, c.handle, Describe(s, c), alpha.get(), x.desc(),
      x.data(), static_cast<const void*>(grid.data()), beta.get(), y.desc(), y.data());
  const oracle::DType compute = FactorType(s.layout.type);
  const double u = oracle::UnitRoundoff(compute);
  const Dense from = x.Before();
  Dense expected = y.Before();
  ForEachSample(s, grid.Before(), [&](const Place& p, size_t i, int64_t base, size_t) {
    Value v;
    ForEachCorner(s, p, [&](int64_t element, double weight, double, double) {
      const double value = element < 0 ? 0 : from.values[static_cast<size_t>(base + element)].v;
      v.v += weight * value;
      v.e += std::fabs(value) * (8 * u + p.row.error + p.column.error);
    });
    // Beside an element a sample may be told to lie on its other side.
    v.e += p.row.error + p.column.error;
    expected.values[i] = v;
  });
  return FirstOf(
      {c.Done(status),
       y.Check(Blended(expected, s.factors.alpha, s.factors.beta, y.Before(), compute), 1),
       x.CheckUnchanged(), grid.CheckUnchanged()});
}

std::string RunSamplerBackward(const SpatialCase& s, const LegacyContext& c) {
  const Layout packed = {s.layout.type};
  const Dims grid_dims = {s.y[0], s.y[2], s.y[3], 2};
  const LegacyTensor x = c.Tensor(s.layout, s.x, 1), dy = c.Tensor(s.layout, s.y, 2),
                     grid = c.Tensor(packed, grid_dims, 3, s.fill), dx = c.Tensor(s.layout, s.x, 4),
                     dgrid = c.Tensor(packed, grid_dims, 5);
  const Factor alpha(s.factors.alpha, s.layout.type), beta(s.factors.beta, s.layout.type);
  const cudnnStatus_t status =
      KILN_CALL(c.client, cudnnSpatialTfSamplerBackward, c.handle, Describe(s, c), alpha.get(),
                x.desc(), x.data(), beta.get(), dx.desc(), dx.data(), alpha.get(), dy.desc(),
                dy.data(), static_cast<const void*>(grid.data()), beta.get(), dgrid.data());
  const oracle::DType compute = FactorType(s.layout.type);
  const double u = oracle::UnitRoundoff(compute);
  const Dense from = x.Before(), grad = dy.Before();
  std::vector<oracle::Accumulator> of_x(from.values.size()), of_grid(dgrid.Before().values.size());
  ForEachSample(s, grid.Before(), [&](const Place& p, size_t i, int64_t base, size_t at) {
    const double g = grad.values[i].v;
    // At an element the slope jumps.
    const auto jumps = [](const Along& a) {
      return a.slope > 0 && std::min(a.rest, 1 - a.rest) <= a.error ? INFINITY : 0;
    };
    ForEachCorner(s, p, [&](int64_t element, double weight, double row, double column) {
      if (element < 0) return;
      const auto place = static_cast<size_t>(base + element);
      of_x[place].Add(g * weight, std::fabs(g) * (8 * u + p.row.error + p.column.error));
      const double value = g * from.values[place].v;
      const auto add = [&](size_t k, double slope, const Along& a, const Along& other) {
        of_grid[at + k].Add(value * slope * a.slope,
                            std::fabs(value) * a.slope * (8 * u + other.error) + jumps(a));
      };
      add(0, column, p.column, p.row);
      add(1, row, p.row, p.column);
    });
  });
  const auto check = [&](const std::vector<oracle::Accumulator>& sums, const LegacyTensor& t) {
    Dense expected = t.Before();
    for (size_t i = 0; i < sums.size(); ++i) expected.values[i] = sums[i].Result(compute);
    // Other summands than those that are not 0 may be added, at places that lie an error away.
    for (Value& v : expected.values) v.e += 32 * u;
    return t.Check(Blended(expected, s.factors.alpha, s.factors.beta, t.Before(), compute), 1);
  };
  return FirstOf({c.Done(status), check(of_x, dx), check(of_grid, dgrid), x.CheckUnchanged(),
                  dy.CheckUnchanged(), grid.CheckUnchanged()});
}

void Add(std::vector<LegacyCase>& cases, const SpatialCase& s) {
  const std::string name =
      Text(s.layout) + "_" + Text(s.x) + "_to_" + Text(s.y) + "_" + Text(s.factors) + "_" + s.fill;
  const auto add = [&](const char* kind,
                       std::string (*run)(const SpatialCase&, const LegacyContext&)) {
    cases.push_back({std::string("spatial_") + kind + "/" + name,
                     [=](const LegacyContext& c) { return run(s, c); }, s.not_nvidia});
  };
  const bool is_plain = s.layout.order == Layout::kNchw && s.factors.beta == 0;
  if (is_plain && s.fill == "uniform") {
    add("grid_forward", RunGridForward);
    add("grid_backward", RunGridBackward);
  }
  add("sampler_forward", RunSamplerForward);
  add("sampler_backward", RunSamplerBackward);
}

}  // namespace

std::vector<LegacyCase> SpatialCases() {
  std::vector<LegacyCase> cases;
  Add(cases, {});
  Add(cases, {.layout = {CUDNN_DATA_DOUBLE}});
  Add(cases, {.layout = {CUDNN_DATA_HALF}, .fill = "small"});
  Add(cases, {.factors = {-2, 0.25}});
  Add(cases, {.fill = "span4"});  // most samples are beyond x
  Add(cases, {.layout = {CUDNN_DATA_FLOAT, Layout::kGaps}, .factors = {0.5, 1}});
  Add(cases, {.layout = {CUDNN_DATA_FLOAT, Layout::kNhwc}});
  Add(cases, {.x = {3, 2, 1, 9}, .y = {3, 2, 5, 1}});
  Add(cases, {.x = {1, 1, 28, 28}, .y = {1, 1, 28, 28}});
  return cases;
}

}  // namespace kiln::testing
