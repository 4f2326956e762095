// Elementwise ops: `pointwise` (every mode of cudnnPointwiseMode_t), `map` (one scalar primitive)
// and `iota`.
//
// A pointwise node computes mode(alpha1 * x, alpha2 * b): alpha1 scales the first operand and
// alpha2 the second, of the backward modes too, where these are dy and the forward's x. The third
// operand, t, is not scaled. relu follows cudnnSetActivationDescriptor's clipped form: x <= lower
// gives lower + slope * (x - lower), x >= upper gives upper; a NaN x gives lower unless
// propagate_nan. Its derivative is slope, 1 and 0 on the three pieces, each border belonging to the
// flat side; a NaN x counts as below, unless propagate_nan makes it NaN.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ir/base/check.h"
#include "ir/graph/loops.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

using A = PointwiseAttrs;
using M = PointwiseMode;

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kGeluCubic = 0.044715;

double Sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}

double Relu(const A& a, double x) {
  if (std::isnan(x)) return a.propagate_nan ? x : a.relu_lower;
  if (x >= a.relu_upper) return a.relu_upper;
  if (x > a.relu_lower) return x;
  return a.relu_slope == 0 ? a.relu_lower : a.relu_lower + a.relu_slope * (x - a.relu_lower);
}

double ReluSlope(const A& a, double x) {
  if (std::isnan(x)) return a.propagate_nan ? x : a.relu_slope;
  if (x >= a.relu_upper) return 0;
  return x > a.relu_lower ? 1 : a.relu_slope;
}

double Softplus(const A& a, double x) {
  const double z = a.softplus_beta * x;
  return (std::max(z, 0.0) + std::log1p(std::exp(-std::fabs(z)))) / a.softplus_beta;
}

double SwishSlope(const A& a, double x) {
  const double s = Sigmoid(a.swish_beta * x);
  return s + a.swish_beta * x * s * (1 - s);
}

double NormalCdf(double x) { return 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2); }

double GeluSlope(double x) {
  const double density =
      std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2;
  return NormalCdf(x) + x * density;
}

double GeluTanhArgument(double x) { return kSqrt2OverPi * (x + kGeluCubic * x * x * x); }

double GeluApproxSlope(double x) {
  const double t = std::tanh(GeluTanhArgument(x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kGeluCubic * x * x);
}

// The rest of x after whole multiples of b, with the sign of b; 0 divides nothing, as in Mod.
double FloorMod(double x, double b) {
  const double rest = EvalScalar(ScalarOp::kMod, x, b, 0);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// A mode in f64: x, b (dy, x of a backward mode) are scaled already. `integer` modes also exist for
// integer compute types; those with a scalar primitive go through EvalScalarInt there.
struct ModeRow {
  M mode;
  double (*eval)(const A& a, double x, double b, double t);
  bool integer = false;
  std::optional<ScalarOp> scalar = std::nullopt;
};

// Evaluates a scalar primitive, so that the modes it covers have no second definition.
template <ScalarOp kOp>
double Scalar(const A&, double x, double b, double t) {
  return EvalScalar(kOp, x, b, t);
}

template <ScalarOp kOp>
constexpr ModeRow Same(M mode, bool integer) {
  return {mode, Scalar<kOp>, integer, kOp};
}

using S = ScalarOp;
constexpr ModeRow kModes[] = {
    Same<S::kAdd>(M::kAdd, true),
    Same<S::kMul>(M::kMul, true),
    {M::kMin,
     [](const A& a, double x, double b, double) {
       return EvalScalar(a.propagate_nan ? S::kMinNan : S::kMin, x, b);
     },
     true, S::kMin},
    {M::kMax,
     [](const A& a, double x, double b, double) {
       return EvalScalar(a.propagate_nan ? S::kMaxNan : S::kMax, x, b);
     },
     true, S::kMax},
    Same<S::kSqrt>(M::kSqrt, false),
    {M::kAddSquare, [](const A&, double x, double b, double) { return x + b * b; }, true},
    Same<S::kDiv>(M::kDiv, true),
    Same<S::kMod>(M::kMod, true),
    Same<S::kPow>(M::kPow, false),
    Same<S::kSub>(M::kSub, true),
    Same<S::kAbs>(M::kAbs, true),
    Same<S::kCeil>(M::kCeil, true),
    Same<S::kCos>(M::kCos, false),
    Same<S::kExp>(M::kExp, false),
    Same<S::kFloor>(M::kFloor, true),
    Same<S::kLog>(M::kLog, false),
    Same<S::kNeg>(M::kNeg, true),
    Same<S::kRsqrt>(M::kRsqrt, false),
    Same<S::kSin>(M::kSin, false),
    Same<S::kTan>(M::kTan, false),
    Same<S::kErf>(M::kErf, false),
    {M::kIdentity, [](const A&, double x, double, double) { return x; }, true},
    Same<S::kRecip>(M::kReciprocal, false),
    Same<S::kAtan2>(M::kAtan2, false),
    {M::kFloorMod, [](const A&, double x, double b, double) { return FloorMod(x, b); }, true},
    {M::kReluFwd, [](const A& a, double x, double, double) { return Relu(a, x); }, true},
    Same<S::kTanh>(M::kTanhFwd, false),
    {M::kSigmoidFwd, [](const A&, double x, double, double) { return Sigmoid(x); }},
    {M::kEluFwd,
     [](const A& a, double x, double, double) { return x > 0 ? x : a.elu_alpha * std::expm1(x); }},
    {M::kGeluFwd, [](const A&, double x, double, double) { return x * NormalCdf(x); }},
    {M::kSoftplusFwd, [](const A& a, double x, double, double) { return Softplus(a, x); }},
    {M::kSwishFwd,
     [](const A& a, double x, double, double) { return x * Sigmoid(a.swish_beta * x); }},
    {M::kGeluApproxTanhFwd, [](const A&, double x, double,
                               double) { return 0.5 * x * (1 + std::tanh(GeluTanhArgument(x))); }},
    {M::kReluBwd, [](const A& a, double dy, double x, double) { return dy * ReluSlope(a, x); },
     true},
    {M::kTanhBwd,
     [](const A&, double dy, double x, double) {
       const double y = std::tanh(x);
       return dy * (1 - y * y);
     }},
    {M::kSigmoidBwd,
     [](const A&, double dy, double x, double) { return dy * Sigmoid(x) * Sigmoid(-x); }},
    {M::kEluBwd, [](const A& a, double dy, double x,
                    double) { return x > 0 ? dy : dy * a.elu_alpha * std::exp(x); }},
    {M::kGeluBwd, [](const A&, double dy, double x, double) { return dy * GeluSlope(x); }},
    {M::kSoftplusBwd,
     [](const A& a, double dy, double x, double) { return dy * Sigmoid(a.softplus_beta * x); }},
    {M::kSwishBwd, [](const A& a, double dy, double x, double) { return dy * SwishSlope(a, x); }},
    {M::kGeluApproxTanhBwd,
     [](const A&, double dy, double x, double) { return dy * GeluApproxSlope(x); }},
    Same<S::kEq>(M::kCmpEq, true),
    Same<S::kNe>(M::kCmpNeq, true),
    Same<S::kGt>(M::kCmpGt, true),
    Same<S::kGe>(M::kCmpGe, true),
    Same<S::kLt>(M::kCmpLt, true),
    Same<S::kLe>(M::kCmpLe, true),
    Same<S::kAnd>(M::kLogicalAnd, true),
    Same<S::kOr>(M::kLogicalOr, true),
    Same<S::kNot>(M::kLogicalNot, true),
    {M::kGenIndex, [](const A&, double index, double, double) { return index; }, true},
    {M::kBinarySelect, [](const A&, double x, double b, double t) { return t != 0 ? x : b; }, true},
};

constexpr bool RowsInOrder() {
  for (size_t i = 0; i < std::size(kModes); ++i) {
    if (kModes[i].mode != M(i)) return false;
  }
  return true;
}
static_assert(RowsInOrder(), "one row for each mode, in the order of pointwise_modes.def");

const ModeRow& Row(M mode) { return kModes[static_cast<size_t>(mode)]; }

bool IsComparison(M mode) { return mode >= M::kCmpEq && mode <= M::kCmpLe; }
bool IsLogical(M mode) { return mode >= M::kLogicalAnd && mode <= M::kLogicalNot; }

bool IsWhole(double value) { return std::isinf(value) || value == std::nearbyint(value); }

// Scalar primitives that EvalScalarInt knows, by row of the table.
bool HasIntegerForm(ScalarOp op) {
  constexpr S kFloatOnly[] = {S::kPow, S::kAtan2, S::kSqrt,  S::kRsqrt, S::kRecip,
                              S::kExp, S::kLog,   S::kLog1p, S::kExpm1, S::kSin,
                              S::kCos, S::kTan,   S::kTanh,  S::kErf};
  return std::ranges::find(kFloatOnly, op) == std::end(kFloatOnly);
}

std::vector<const Tensor*> PresentInputs(const Graph& graph, const Node& node) {
  std::vector<const Tensor*> tensors;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (const Tensor* t = InputOf(graph, node, i)) tensors.push_back(t);
  }
  return tensors;
}

Status VerifyBroadcast(const Graph& graph, const Node& node, std::string_view what) {
  const auto inputs = PresentInputs(graph, node);
  const auto dims = BroadcastDims(inputs);
  if (!dims) {
    std::string shapes;
    for (const Tensor* t : inputs) shapes += (shapes.empty() ? "" : ", ") + Shape(*t);
    return Status::Error(Code::kShapeMismatch,
                         "operands {} do not broadcast: extents must be equal or 1", shapes);
  }
  return ExpectDims(*OutputOf(graph, node, 0), *dims, what);
}

Status InferBroadcast(Graph& graph, const Node& node) {
  const auto inputs = PresentInputs(graph, node);
  const auto dims = BroadcastDims(inputs);
  if (!dims) return {};  // Verify has the sentence
  const auto like = std::ranges::find_if(inputs, [&](const Tensor* t) { return t->dims == *dims; });
  SetDims(graph[node.outputs[0]], *dims, like == inputs.end() ? nullptr : *like);
  return {};
}

Status VerifyArity(const Node& node, int arity, std::string_view what) {
  const auto present =
      std::ranges::count_if(node.inputs, [](TensorId id) { return id != kAbsent; });
  if (present == arity && node.inputs.size() == static_cast<size_t>(arity)) return {};
  return Status::Error(Code::kBadParam, "{} takes {} operand{}, {} given", what, arity,
                       arity == 1 ? "" : "s", present);
}

Status VerifyIntegerMode(const PointwiseAttrs& attrs, std::string_view mode, DType compute) {
  if (!Row(attrs.mode).integer) {
    return Status::Error(Code::kUnsupportedDataType, "{} has no integer form; compute type is {}",
                         mode, Info(compute).text);
  }
  for (const double factor : {attrs.alpha1, attrs.alpha2, attrs.relu_slope}) {
    if (IsWhole(factor)) continue;
    return Status::Error(Code::kUnsupportedDataType,
                         "factor {} is no whole number, compute type is {}", factor,
                         Info(compute).text);
  }
  return {};
}

// One element in integers: operands are converted, then scaled; exact, wrapped to the compute type.
double EvalInt(const PointwiseAttrs& attrs, const ModeRow& row, DType compute, double x, double b,
               double t) {
  const auto scaled = [&](double value, double factor) {
    const int64_t number = ToComputeInt(compute, value);
    return WrapToCompute(compute,
                         EvalScalarInt(ScalarOp::kMul, number, static_cast<int64_t>(factor)));
  };
  const int64_t scaled_x = scaled(x, attrs.alpha1), scaled_b = scaled(b, attrs.alpha2);
  if (!row.scalar) {
    const double value =
        row.eval(attrs, static_cast<double>(scaled_x), static_cast<double>(scaled_b), t);
    return static_cast<double>(ToComputeInt(compute, value));
  }
  return static_cast<double>(
      WrapToCompute(compute, EvalScalarInt(*row.scalar, scaled_x, scaled_b)));
}

std::array<Dims, 3> OperandSteps(const EvalArgs& args, const Dims& out_dims) {
  std::array<Dims, 3> steps;
  for (size_t i = 0; i < 3; ++i) {
    const Tensor* t = InputOf(args.graph, args.node, i);
    steps[i] = t != nullptr ? BroadcastSteps(t->dims, out_dims) : Dims(out_dims.size(), 0);
  }
  return steps;
}

// y = f(x, b, t) over broadcast operands; absent ones read as 0.
template <class F>
void EvalElementwise(const EvalArgs& args, F&& f) {
  static constexpr double kZero = 0;
  const Dims& out_dims = OutputOf(args.graph, args.node, 0)->dims;
  std::array<const double*, 3> in;
  for (size_t i = 0; i < 3; ++i) {
    in[i] = i < args.inputs.size() && args.inputs[i] != nullptr ? args.inputs[i]->data() : &kZero;
  }
  double* out = args.outputs[0]->data();
  ForEachRow<3>(
      out_dims, OperandSteps(args, out_dims),
      [&](const std::array<int64_t, 3>& at, int64_t count, const std::array<int64_t, 3>& step) {
        for (int64_t i = 0; i < count; ++i) {
          *out++ =
              f(in[0][at[0] + i * step[0]], in[1][at[1] + i * step[1]], in[2][at[2] + i * step[2]]);
        }
      });
}

// out[i0,…] = i_axis, in row-major order.
void FillIndex(const Dims& dims, int64_t axis, std::vector<double>& out) {
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(axis) + 1; d < dims.size(); ++d) inner *= dims[d];
  const int64_t extent = dims[static_cast<size_t>(axis)];
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<double>(static_cast<int64_t>(i) / inner % extent);
  }
}

Status CheckAxis(int64_t axis, const Tensor& tensor) {
  if (axis >= 0 && axis < tensor.rank()) return {};
  return Status::Error(Code::kBadParam, "axis {} is none of the {} dims of {}", axis, tensor.rank(),
                       Shape(tensor));
}

}  // namespace

bool TakesBool(M mode) {
  return IsComparison(mode) || IsLogical(mode) || mode == M::kIdentity || mode == M::kBinarySelect;
}

Status VerifyPointwise(const Graph& graph, const Node& node) {
  const auto& attrs = node.As<PointwiseAttrs>();
  const PointwiseModeInfo& info = Info(attrs.mode);
  RETURN_IF_ERROR(VerifyArity(node, info.inputs, info.text));
  const bool takes_bool = TakesBool(attrs.mode);
  RETURN_IF_ERROR(CheckCompute(node, takes_bool || attrs.mode == M::kGenIndex));
  if (!takes_bool) RETURN_IF_ERROR(RejectBool(graph, node, OnBoolInputs::kAccept));
  if (IsInteger(node.compute)) RETURN_IF_ERROR(VerifyIntegerMode(attrs, info.text, node.compute));
  if (attrs.mode == M::kGenIndex) RETURN_IF_ERROR(CheckAxis(attrs.axis, *InputOf(graph, node, 0)));
  if (attrs.softplus_beta == 0)
    return Status::Error(Code::kBadParam, "softplus_beta is 0, which divides");
  if (attrs.relu_lower > attrs.relu_upper) {
    return Status::Error(Code::kBadParam, "relu_lower {} is above relu_upper {}", attrs.relu_lower,
                         attrs.relu_upper);
  }
  return VerifyBroadcast(graph, node, info.text);
}

Status InferPointwise(Graph& graph, const Node& node) { return InferBroadcast(graph, node); }

void EvalPointwise(const EvalArgs& args) {
  const auto& attrs = args.node.As<PointwiseAttrs>();
  const ModeRow& row = Row(attrs.mode);
  const DType compute = args.node.compute;
  if (attrs.mode == M::kGenIndex) {
    return FillIndex(OutputOf(args.graph, args.node, 0)->dims, attrs.axis, *args.outputs[0]);
  }
  if (IsInteger(compute)) {
    return EvalElementwise(
        args, [&](double x, double b, double t) { return EvalInt(attrs, row, compute, x, b, t); });
  }
  EvalElementwise(args, [&](double x, double b, double t) {
    return row.eval(attrs, x * attrs.alpha1, b * attrs.alpha2, t);
  });
}

Status VerifyMap(const Graph& graph, const Node& node) {
  const auto& attrs = node.As<MapAttrs>();
  if (attrs.identity) {
    RETURN_IF_ERROR(VerifyArity(node, 1, "identity"));
    RETURN_IF_ERROR(CheckCompute(node, true));
    return VerifyBroadcast(graph, node, "identity");
  }
  const ScalarOpInfo& info = Info(attrs.op);
  if (attrs.op == ScalarOp::kFastDiv)
    return Status::Error(Code::kBadParam, "fast_div is no op of the tensor graph");
  if (attrs.op == ScalarOp::kBit && node.compute != DType::kI32)
    return Status::Error(Code::kUnsupportedDataType, "bit computes in i32, not in {}",
                         Info(node.compute).text);
  if (attrs.op == ScalarOp::kPhilox && node.compute != DType::kI64)
    return Status::Error(Code::kUnsupportedDataType, "philox computes in i64, not in {}",
                         Info(node.compute).text);
  RETURN_IF_ERROR(VerifyArity(node, info.arity, info.text));
  const bool takes_bool = info.result == ScalarResult::kBool || attrs.op == ScalarOp::kSelect;
  RETURN_IF_ERROR(CheckCompute(node, takes_bool));
  if (!takes_bool) RETURN_IF_ERROR(RejectBool(graph, node));
  if (IsInteger(node.compute) && !HasIntegerForm(attrs.op)) {
    return Status::Error(Code::kUnsupportedDataType, "{} has no integer form; compute type is {}",
                         info.text, Info(node.compute).text);
  }
  return VerifyBroadcast(graph, node, info.text);
}

Status InferMap(Graph& graph, const Node& node) { return InferBroadcast(graph, node); }

void EvalMap(const EvalArgs& args) {
  const auto& attrs = args.node.As<MapAttrs>();
  const DType compute = args.node.compute;
  if (IsInteger(compute)) {
    return EvalElementwise(args, [&](double a, double b, double c) {
      const int64_t x = ToComputeInt(compute, a);
      if (attrs.identity) return static_cast<double>(x);
      const int64_t value =
          EvalScalarInt(attrs.op, x, ToComputeInt(compute, b), ToComputeInt(compute, c));
      return static_cast<double>(WrapToCompute(compute, value));
    });
  }
  EvalElementwise(args, [&](double a, double b, double c) {
    return attrs.identity ? a : EvalScalar(attrs.op, a, b, c);
  });
}

Status VerifyIota(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  return CheckAxis(node.As<IotaAttrs>().axis, *OutputOf(graph, node, 0));
}

Status InferIota(Graph& graph, const Node& node) {
  const Tensor& y = graph[node.outputs[0]];
  if (!y.dims.empty()) return {};
  return Status::Error(Code::kBadParam,
                       "%{} has no extents, and iota has no operand to take them from", y.name);
}

void EvalIota(const EvalArgs& args) {
  FillIndex(OutputOf(args.graph, args.node, 0)->dims, args.node.As<IotaAttrs>().axis,
            *args.outputs[0]);
}

}  // namespace kiln::graph
