#include "compiler/passes/pointwise_recipes.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>

#include "ir/base/check.h"

namespace kiln::compiler {
namespace {

using graph::PointwiseAttrs;
using graph::PointwiseMode;
using graph::TensorId;
using S = ScalarOp;
using W = PrimitiveWriter;
using A = PointwiseAttrs;
using In = std::span<const TensorId>;

TensorId Scaled(W& w, double factor, TensorId x) {
  return factor == 1 ? x : w.Mul(w.Number(factor), x);
}

// 1 / (1 + exp(-x)); exp overflows to infinity for large negative x, whose reciprocal is the right
// 0.
TensorId Sigmoid(W& w, TensorId x) {
  const TensorId e = w.Map(S::kExp, {w.Map(S::kNeg, {x})});
  return w.Map(S::kRecip, {w.Add(w.Number(1), e)});
}

// s (1 - s) of s = 1 / (1 + exp(-x)), as e / (1 + e)^2 with e = exp(-|x|): the difference would
// lose all bits where s is near 1.
TensorId SigmoidSlope(W& w, TensorId x) {
  const TensorId e = w.Map(S::kExp, {w.Map(S::kNeg, {w.Map(S::kAbs, {x})})});
  const TensorId d = w.Map(S::kRecip, {w.Add(w.Number(1), e)});
  return w.Mul(e, w.Mul(d, d));
}

TensorId OneMinusSquare(W& w, TensorId t) { return w.Sub(w.Number(1), w.Mul(t, t)); }

// Lower clip (with its slope below), then upper clip. Without propagation a NaN counts as the lower
// clip: the IEEE max drops it, and in the sloped form the min inside does.
TensorId Relu(W& w, const A& a, In in) {
  const TensorId x = in[0], lower = w.Number(a.relu_lower);
  TensorId y;
  if (a.relu_slope == 0) {
    y = w.Map(a.propagate_nan ? S::kMaxNan : S::kMax, {x, lower});
  } else {
    const TensorId below =
        w.Map(a.propagate_nan ? S::kMinNan : S::kMin, {w.Sub(x, lower), w.Number(0)});
    y = w.Select(w.Map(S::kGt, {x, lower}), x, w.Add(lower, Scaled(w, a.relu_slope, below)));
  }
  if (a.relu_upper == std::numeric_limits<double>::infinity()) return y;
  return w.Map(a.propagate_nan ? S::kMinNan : S::kMin, {y, w.Number(a.relu_upper)});
}

TensorId ReluBwd(W& w, const A& a, In in) {
  const TensorId dy = in[0], x = in[1];
  TensorId slope =
      w.Select(w.Map(S::kGt, {x, w.Number(a.relu_lower)}), w.Number(1), w.Number(a.relu_slope));
  if (a.relu_upper != std::numeric_limits<double>::infinity())
    slope = w.Select(w.Map(S::kGe, {x, w.Number(a.relu_upper)}), w.Number(0), slope);
  if (a.propagate_nan) slope = w.Select(w.Map(S::kEq, {x, x}), slope, x);
  return w.Mul(dy, slope);
}

TensorId Elu(W& w, const A& a, In in) {
  const TensorId below = Scaled(w, a.elu_alpha, w.Map(S::kExpm1, {in[0]}));
  return w.Select(w.Map(S::kGt, {in[0], w.Number(0)}), in[0], below);
}

TensorId EluBwd(W& w, const A& a, In in) {
  const TensorId below = w.Mul(in[0], Scaled(w, a.elu_alpha, w.Map(S::kExp, {in[1]})));
  return w.Select(w.Map(S::kGt, {in[1], w.Number(0)}), in[0], below);
}

// The normal distribution function: (1 + erf(x / sqrt 2)) / 2.
TensorId NormalCdf(W& w, TensorId x) {
  const TensorId erf = w.Map(S::kErf, {w.Mul(x, w.Number(std::numbers::sqrt2 / 2))});
  return w.Map(S::kFma, {erf, w.Number(0.5), w.Number(0.5)});
}

TensorId Gelu(W& w, const A&, In in) { return w.Mul(in[0], NormalCdf(w, in[0])); }

TensorId GeluBwd(W& w, const A&, In in) {
  const TensorId x = in[1];
  const TensorId density = w.Mul(w.Map(S::kExp, {w.Mul(w.Number(-0.5), w.Mul(x, x))}),
                                 w.Number(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2));
  return w.Mul(in[0], w.Add(NormalCdf(w, x), w.Mul(x, density)));
}

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kGeluCubic = 0.044715;

// tanh(sqrt(2/pi) * (x + 0.044715 x^3))
TensorId GeluTanh(W& w, TensorId x) {
  const TensorId cubic = w.Mul(w.Number(kGeluCubic), w.Mul(x, w.Mul(x, x)));
  return w.Map(S::kTanh, {w.Mul(w.Number(kSqrt2OverPi), w.Add(x, cubic))});
}

TensorId GeluApprox(W& w, const A&, In in) {
  return w.Mul(w.Mul(w.Number(0.5), in[0]), w.Add(w.Number(1), GeluTanh(w, in[0])));
}

TensorId GeluApproxBwd(W& w, const A&, In in) {
  const TensorId x = in[1], t = GeluTanh(w, x);
  const TensorId inner = w.Mul(w.Number(kSqrt2OverPi),
                               w.Add(w.Number(1), w.Mul(w.Number(3 * kGeluCubic), w.Mul(x, x))));
  const TensorId curve = w.Mul(w.Mul(w.Number(0.5), x), w.Mul(OneMinusSquare(w, t), inner));
  return w.Mul(in[0], w.Add(w.Mul(w.Number(0.5), w.Add(w.Number(1), t)), curve));
}

// Integers that cannot hold x change it: fractions are lost, large ones wrap. Then it is two casts;
// Write takes the second, which would otherwise be the first.
TensorId Identity(W& w, const A&, In in) {
  const DType type = w.graph()[in[0]].dtype, compute = w.compute();
  const bool keeps = !IsInteger(compute) || (!IsFloat(type) && SizeOf(compute) >= SizeOf(type));
  return keeps ? in[0] : w.Cast(w.Cast(in[0], compute), compute);
}

// log(1 + exp(beta x)) / beta as max(beta x, 0) + log1p(exp(-|beta x|)), which never overflows.
TensorId Softplus(W& w, const A& a, In in) {
  const TensorId z = Scaled(w, a.softplus_beta, in[0]);
  const TensorId e = w.Map(S::kExp, {w.Map(S::kNeg, {w.Map(S::kAbs, {z})})});
  const TensorId sum = w.Add(w.Map(S::kMaxNan, {z, w.Number(0)}), w.Map(S::kLog1p, {e}));
  return Scaled(w, 1 / a.softplus_beta, sum);
}

TensorId SwishBwd(W& w, const A& a, In in) {
  const TensorId x = in[1], z = Scaled(w, a.swish_beta, x), s = Sigmoid(w, z);
  return w.Mul(in[0], w.Add(s, w.Mul(z, w.Mul(s, w.Sub(w.Number(1), s)))));
}

// The rest of x after whole multiples of b has the sign of x; where b has the other, there is one
// more.
TensorId FloorMod(W& w, const A&, In in) {
  const TensorId b = in[1], zero = w.Number(0), rest = w.Map(S::kMod, {in[0], b});
  const auto both = [&](S first, S second) {
    return w.Map(S::kAnd, {w.Map(first, {rest, zero}), w.Map(second, {b, zero})});
  };
  const TensorId is_short = w.Map(S::kOr, {both(S::kLt, S::kGt), both(S::kGt, S::kLt)});
  return w.Select(is_short, w.Add(rest, b), rest);
}

template <S kOp>
TensorId Unary(W& w, const A&, In in) {
  return w.Map(kOp, {in[0]});
}
template <S kOp>
TensorId Binary(W& w, const A&, In in) {
  return w.Map(kOp, {in[0], in[1]});
}

using Recipe = TensorId (*)(W&, const A&, In);
using M = PointwiseMode;
struct RecipeRow {
  M mode;
  Recipe write;
};

constexpr RecipeRow kRecipes[] = {
    {M::kAdd, Binary<S::kAdd>},
    {M::kMul, Binary<S::kMul>},
    {M::kMin, [](W& w, const A& a,
                 In in) { return w.Map(a.propagate_nan ? S::kMinNan : S::kMin, {in[0], in[1]}); }},
    {M::kMax, [](W& w, const A& a,
                 In in) { return w.Map(a.propagate_nan ? S::kMaxNan : S::kMax, {in[0], in[1]}); }},
    {M::kSqrt, Unary<S::kSqrt>},
    {M::kAddSquare, [](W& w, const A&, In in) { return w.Add(in[0], w.Mul(in[1], in[1])); }},
    {M::kDiv, Binary<S::kDiv>},
    {M::kMod, Binary<S::kMod>},
    {M::kPow, Binary<S::kPow>},
    {M::kSub, Binary<S::kSub>},
    {M::kAbs, Unary<S::kAbs>},
    {M::kCeil, Unary<S::kCeil>},
    {M::kCos, Unary<S::kCos>},
    {M::kExp, Unary<S::kExp>},
    {M::kFloor, Unary<S::kFloor>},
    {M::kLog, Unary<S::kLog>},
    {M::kNeg, Unary<S::kNeg>},
    {M::kRsqrt, Unary<S::kRsqrt>},
    {M::kSin, Unary<S::kSin>},
    {M::kTan, Unary<S::kTan>},
    {M::kErf, Unary<S::kErf>},
    {M::kIdentity, Identity},
    {M::kReciprocal, Unary<S::kRecip>},
    {M::kAtan2, Binary<S::kAtan2>},
    {M::kFloorMod, FloorMod},
    {M::kReluFwd, Relu},
    {M::kTanhFwd, Unary<S::kTanh>},
    {M::kSigmoidFwd, [](W& w, const A&, In in) { return Sigmoid(w, in[0]); }},
    {M::kEluFwd, Elu},
    {M::kGeluFwd, Gelu},
    {M::kSoftplusFwd, Softplus},
    {M::kSwishFwd, [](W& w, const A& a,
                      In in) { return w.Mul(in[0], Sigmoid(w, Scaled(w, a.swish_beta, in[0]))); }},
    {M::kGeluApproxTanhFwd, GeluApprox},
    {M::kReluBwd, ReluBwd},
    // tanh(x) = 2 sigmoid(2x) - 1
    {M::kTanhBwd,
     [](W& w, const A&, In in) {
       return w.Mul(in[0], Scaled(w, 4, SigmoidSlope(w, Scaled(w, 2, in[1]))));
     }},
    {M::kSigmoidBwd, [](W& w, const A&, In in) { return w.Mul(in[0], SigmoidSlope(w, in[1])); }},
    {M::kEluBwd, EluBwd},
    {M::kGeluBwd, GeluBwd},
    {M::kSoftplusBwd,
     [](W& w, const A& a, In in) {
       return w.Mul(in[0], Sigmoid(w, Scaled(w, a.softplus_beta, in[1])));
     }},
    {M::kSwishBwd, SwishBwd},
    {M::kGeluApproxTanhBwd, GeluApproxBwd},
    {M::kCmpEq, Binary<S::kEq>},
    {M::kCmpNeq, Binary<S::kNe>},
    {M::kCmpGt, Binary<S::kGt>},
    {M::kCmpGe, Binary<S::kGe>},
    {M::kCmpLt, Binary<S::kLt>},
    {M::kCmpLe, Binary<S::kLe>},
    {M::kLogicalAnd, Binary<S::kAnd>},
    {M::kLogicalOr, Binary<S::kOr>},
    {M::kLogicalNot, Unary<S::kNot>},
    {M::kGenIndex, [](W& w, const A& a, In in) { return w.Iota(a.axis, w.graph()[in[0]].dims); }},
    {M::kBinarySelect, [](W& w, const A&, In in) { return w.Select(in[2], in[0], in[1]); }},
};

constexpr bool RowsInOrder() {
  for (size_t i = 0; i < std::size(kRecipes); ++i)
    if (kRecipes[i].mode != M(i)) return false;
  return true;
}
static_assert(RowsInOrder(), "one recipe for each mode, in the order of pointwise_modes.def");

}  // namespace

TensorId WritePointwise(PrimitiveWriter& w, const PointwiseAttrs& attrs,
                        std::span<const TensorId> in) {
  return kRecipes[static_cast<size_t>(attrs.mode)].write(w, attrs, in);
}

}  // namespace kiln::compiler
