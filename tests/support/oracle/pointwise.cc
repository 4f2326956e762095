// Every cudnnPointwiseMode_t as one row: its formula, and how far a good implementation may be off.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "tests/support/oracle/oracle.h"

namespace kiln::oracle {
namespace {

using P = PointwiseParams;
constexpr double kInf = std::numeric_limits<double>::infinity();

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double NormalPdf(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

double Relu(const P& p, double x, double, double) {
  if (std::isnan(x)) return p.propagate_nan ? x : p.relu_lower;
  if (x < p.relu_lower && p.relu_slope == 0) return p.relu_lower;  // also of -infinity
  if (x < p.relu_lower) return p.relu_lower + p.relu_slope * (x - p.relu_lower);
  return std::min(x, p.relu_upper);
}
double ReluBwd(const P& p, double dy, double x, double) {
  if (x > p.relu_upper) return 0;
  return x > p.relu_lower ? dy : p.relu_slope * dy;
}
double Elu(const P& p, double x, double, double) { return x > 0 ? x : p.elu_alpha * std::expm1(x); }
double EluBwd(const P& p, double dy, double x, double) {
  return x > 0 ? dy : dy * p.elu_alpha * std::exp(x);
}
double Softplus(const P& p, double x, double, double) {
  const double z = p.softplus_beta * x;
  return (std::max(z, 0.0) + std::log1p(std::exp(-std::fabs(z)))) / p.softplus_beta;
}
double SoftplusBwd(const P& p, double dy, double x, double) {
  return dy * Sigmoid(p.softplus_beta * x);
}
double Swish(const P& p, double x, double, double) { return x * Sigmoid(p.swish_beta * x); }
double SwishBwd(const P& p, double dy, double x, double) {
  const double s = Sigmoid(p.swish_beta * x);
  return dy * (s + p.swish_beta * x * s * (1 - s));
}
double TanhBwd(const P&, double dy, double x, double) {
  const double t = std::tanh(x);
  return dy * (1 - t * t);
}
double SigmoidBwd(const P&, double dy, double x, double) {
  const double s = Sigmoid(x);
  return dy * s * (1 - s);
}

double GeluBwd(const P&, double dy, double x, double) {
  return dy * (NormalCdf(x) + x * NormalPdf(x));
}
double Select(const P&, double x, double b, double t) { return t != 0 ? x : b; }

constexpr double kGeluCubic = 0.044715;
double GeluTanhArgument(double x) {
  return std::sqrt(2 / std::numbers::pi) * (x + kGeluCubic * x * x * x);
}
double GeluTanh(const P&, double x, double, double) {
  return 0.5 * x * (1 + std::tanh(GeluTanhArgument(x)));
}
double GeluTanhBwd(const P&, double dy, double x, double) {
  const double t = std::tanh(GeluTanhArgument(x));
  const double slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * kGeluCubic * x * x);
  return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope);
}

// Formulas of one and two operands in the signature of the table.
template <auto kF>
double One(const P&, double x, double, double) {
  return kF(x);
}
template <auto kF>
double Two(const P&, double x, double b, double) {
  return kF(x, b);
}

// Name, value, operands, backward, formula, rel, abs, jitter.
constexpr PointwiseMode kModes[] = {
    {"add", 0, 2, false, Two<std::plus{}>, 1, 0, 0},
    {"mul", 1, 2, false, Two<std::multiplies{}>, 1, 0, 0},
    {"min", 2, 2, false, Two<[](double x, double b) { return std::fmin(x, b); }>, 0, 0, 0},
    {"max", 3, 2, false, Two<[](double x, double b) { return std::fmax(x, b); }>, 0, 0, 0},
    {"sqrt", 4, 1, false, One<[](double x) { return std::sqrt(x); }>, 4, 0, 0},
    {"add_square", 5, 2, false, Two<[](double x, double b) { return x + b * b; }>, 1, 0, 1},
    {"div", 6, 2, false, Two<std::divides{}>, 4, 0, 0},
    {"mod", 7, 2, false, Two<[](double x, double b) { return std::fmod(x, b); }>, 4, 0, 2},
    {"pow", 8, 2, false, Two<[](double x, double b) { return std::pow(x, b); }>, 32, 0, 0},
    {"sub", 9, 2, false, Two<std::minus{}>, 1, 0, 0},
    {"abs", 10, 1, false, One<[](double x) { return std::fabs(x); }>, 0, 0, 0},
    {"ceil", 11, 1, false, One<[](double x) { return std::ceil(x); }>, 0, 0, 0},
    {"cos", 12, 1, false, One<[](double x) { return std::cos(x); }>, 8, 2, 0},
    {"exp", 13, 1, false, One<[](double x) { return std::exp(x); }>, 8, 0, 1},
    {"floor", 14, 1, false, One<[](double x) { return std::floor(x); }>, 0, 0, 0},
    {"log", 15, 1, false, One<[](double x) { return std::log(x); }>, 8, 2, 0},
    {"neg", 16, 1, false, One<[](double x) { return -x; }>, 0, 0, 0},
    {"rsqrt", 17, 1, false, One<[](double x) { return 1 / std::sqrt(x); }>, 6, 0, 0},
    {"sin", 18, 1, false, One<[](double x) { return std::sin(x); }>, 8, 2, 0},
    {"tan", 19, 1, false, One<[](double x) { return std::tan(x); }>, 16, 2, 2},
    {"erf", 20, 1, false, One<[](double x) { return std::erf(x); }>, 16, 2, 0},
    {"identity", 21, 1, false, One<[](double x) { return x; }>, 0, 0, 0},
    {"reciprocal", 22, 1, false, One<[](double x) { return 1 / x; }>, 4, 0, 0},
    {"atan2", 23, 2, false, Two<[](double x, double b) { return std::atan2(x, b); }>, 16, 2, 0},
    {"floor_mod", 24, 2, false, Two<[](double x, double b) { return x - std::floor(x / b) * b; }>,
     4, 0, 2},
    {"relu_fwd", 100, 1, false, Relu, 4, 2, 0},
    {"tanh_fwd", 101, 1, false, One<[](double x) { return std::tanh(x); }>, 16, 4, 0},
    {"sigmoid_fwd", 102, 1, false, One<[](double x) { return Sigmoid(x); }>, 16, 0, 1},
    {"elu_fwd", 103, 1, false, Elu, 8, 4, 0},
    {"gelu_fwd", 104, 1, false, One<[](double x) { return x * NormalCdf(x); }>, 16, 8, 0},
    {"softplus_fwd", 105, 1, false, Softplus, 16, 8, 0},
    {"swish_fwd", 106, 1, false, Swish, 16, 0, 1},
    {"gelu_approx_tanh_fwd", 107, 1, false, GeluTanh, 16, 8, 2},
    {"relu_bwd", 200, 2, true, ReluBwd, 1, 0, 0},
    {"tanh_bwd", 201, 2, true, TanhBwd, 16, 16, 0},
    {"sigmoid_bwd", 202, 2, true, SigmoidBwd, 16, 8, 1},
    {"elu_bwd", 203, 2, true, EluBwd, 16, 0, 0},
    {"gelu_bwd", 204, 2, true, GeluBwd, 16, 16, 0},
    {"softplus_bwd", 205, 2, true, SoftplusBwd, 16, 0, 1},
    {"swish_bwd", 206, 2, true, SwishBwd, 16, 16, 1},
    {"gelu_approx_tanh_bwd", 207, 2, true, GeluTanhBwd, 16, 16, 2},
    {"cmp_eq", 300, 2, false, Two<std::equal_to{}>, 0, 0, 0},
    {"cmp_neq", 301, 2, false, Two<std::not_equal_to{}>, 0, 0, 0},
    {"cmp_gt", 302, 2, false, Two<std::greater{}>, 0, 0, 0},
    {"cmp_ge", 303, 2, false, Two<std::greater_equal{}>, 0, 0, 0},
    {"cmp_lt", 304, 2, false, Two<std::less{}>, 0, 0, 0},
    {"cmp_le", 305, 2, false, Two<std::less_equal{}>, 0, 0, 0},
    {"logical_and", 400, 2, false, Two<[](double x, double b) { return x != 0 && b != 0; }>, 0, 0,
     0},
    {"logical_or", 401, 2, false, Two<[](double x, double b) { return x != 0 || b != 0; }>, 0, 0,
     0},
    {"logical_not", 402, 1, false, One<[](double x) { return x == 0; }>, 0, 0, 0},
    {"gen_index", 501, 1, false, nullptr, 0, 0, 0},  // reads its position, not its operand
    {"binary_select", 601, 3, false, Select, 0, 0, 0},
};

// Integer compute types divide as integers do.
double InCompute(DType compute, double y) {
  return IsFloating(compute) || compute == DType::kBool || !std::isfinite(y) ? y : std::trunc(y);
}

// The largest |f(operands ± errors) - f(operands)|.
double Spread(const PointwiseMode& mode, const P& params, const std::array<Value, 3>& in,
              double center) {
  double spread = 0;
  for (int corner = 0; corner < 1 << 2 * mode.operands; ++corner) {
    std::array<double, 3> at{};
    bool used = false, legal = true;
    for (int i = 0; i < mode.operands; ++i) {
      const int side = corner >> 2 * i & 3;  // 0: the value itself, 1: below, 2: above
      if (side == 3 || (side != 0 && in[i].e == 0)) legal = false;
      used |= side != 0;
      at[i] = in[i].v + (side == 1 ? -in[i].e : side == 2 ? in[i].e : 0);
    }
    if (!legal || !used) continue;
    const double y = mode.function(params, at[0], at[1], at[2]);
    if (std::isnan(y) || std::isnan(center))
      return std::isnan(y) && std::isnan(center) ? spread : kInf;
    if (y != center) spread = std::max(spread, std::fabs(y - center));
  }
  return spread;
}

Value Apply(const PointwiseMode& mode, const P& params, std::array<Value, 3> in, DType compute) {
  const double u = UnitRoundoff(compute);
  double size = 1;
  for (int i = 0; i < mode.operands; ++i) {
    const double alpha = mode.backward ? 1 : i == 0 ? params.alpha1 : i == 1 ? params.alpha2 : 1;
    const double scaled = alpha * in[i].v;
    double error = std::fabs(alpha) * in[i].e + (alpha == 1 ? 0 : u * std::fabs(scaled));
    if (std::isfinite(scaled)) {
      // An operand that the compute type cannot hold is rounded on its way in.
      if (IsFloating(compute))
        error += std::min(std::fabs(scaled - Round(compute, scaled)), std::fabs(scaled));
      error += mode.jitter * u * std::fabs(scaled);
      size = std::max(size, 1 + std::fabs(scaled));
    } else {
      error = 0;
    }
    in[i] = {.v = scaled, .e = error};
  }
  const double center = InCompute(compute, mode.function(params, in[0].v, in[1].v, in[2].v));
  const double spread = Spread(mode, params, in, center);
  if (!std::isfinite(center)) return {.v = center, .e = spread > 0 ? kInf : 0};
  // Without a slope a rectifier computes nothing; with one, the clip and the sloped part may
  // cancel.
  const double abs = mode.function == Relu && params.relu_slope == 0 ? 0 : mode.abs;
  return Finish(center, spread + u * (mode.rel * std::fabs(center) + abs * size), compute);
}

}  // namespace

std::span<const PointwiseMode> PointwiseModes() { return kModes; }

const PointwiseMode* FindPointwiseMode(std::string_view name) {
  const auto* it = std::ranges::find(kModes, name, &PointwiseMode::name);
  return it == std::end(kModes) ? nullptr : it;
}

Dims BroadcastDims(std::span<const Dense* const> operands) {
  Dims out;
  for (const Dense* operand : operands) {
    if (operand->dims.size() > out.size())
      out.insert(out.begin(), operand->dims.size() - out.size(), 1);
    const size_t skip = out.size() - operand->dims.size();
    for (size_t i = 0; i < operand->dims.size(); ++i) {
      if (operand->dims[i] != 1) out[skip + i] = operand->dims[i];
    }
  }
  return out;
}

Dense Pointwise(const PointwiseMode& mode, const PointwiseParams& params,
                std::span<const Dense* const> operands, const Dims& out, DType compute) {
  Dense result{.dims = out, .values = {}};
  if (Count(out) == 0) return result;
  result.values.reserve(static_cast<size_t>(Count(out)));
  Dims index(out.size(), 0);
  do {
    if (mode.function == nullptr) {
      result.values.push_back(
          {.v = static_cast<double>(index[static_cast<size_t>(params.axis)]), .e = 0});
      continue;
    }
    std::array<Value, 3> in{};
    for (size_t i = 0; i < operands.size(); ++i)
      in[i] = operands[i]->values[BroadcastIndex(operands[i]->dims, index)];
    result.values.push_back(Apply(mode, params, in, compute));
  } while (Next(out, index));
  return result;
}

}  // namespace kiln::oracle
