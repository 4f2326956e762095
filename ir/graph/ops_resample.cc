// Resampling: pooling and interpolation over the spatial dims of x[N,C,spatial…], and its gradient.
//
//   pooling        base(p) = p * stride - pre_padding; taps base(p) + 0 … window - 1
//     maxpool                 the largest; index: its row-major place in the window, of equal ones
//                             the first (a NaN is the largest or is skipped; 0 where all are)
//     avgpool_include_padding sum / window
//     avgpool_exclude_padding sum / taps inside x (0 where there are none)
//   interpolation  u(p) = (p + 1/2) * stride - pre_padding, where x's element i stands at i: with a
//                  pre_padding of 1/2, half-pixel centres
//     nearest                 x[floor(u + 1/2)]
//     bilinear                (1 - f) * x[floor(u)] + f * x[floor(u) + 1], f = u - floor(u)
//
// A tap in the padding is 0, or is the nearest element of x (edge_val_pad), or -inf. maxpool skips
// the last, so that an index points into the padding only where nothing else is in the window.
//
// The gradient of a tap goes to the element that it read; that of a maximum to the one that the
// index names, or, without an index, that the forward direction finds in x.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ir/graph/loops.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 20;  // of windows, strides, paddings and units
constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum BwdInput : size_t { kDy, kIndex, kX };

bool IsPooling(ResampleMode mode) {
  return mode != ResampleMode::kNearest && mode != ResampleMode::kBilinear;
}

// floor(a / b) for b > 0.
int64_t FloorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

Status CheckLengths(const ResampleAttrs& a, const Tensor& x) {
  const size_t spatial = a.window.size();
  for (const Dims* list : {&a.stride, &a.pre_padding, &a.post_padding, &a.unit}) {
    if (list->size() == spatial) continue;
    return Status::Error(Code::kBadParam,
                         "window has {} lengths, stride {}, pre_padding {}, post_padding {}, unit "
                         "{}: one a spatial dim is wanted",
                         spatial, a.stride.size(), a.pre_padding.size(), a.post_padding.size(),
                         a.unit.size());
  }
  if (spatial < 1 || spatial > 3 || x.dims.size() != spatial + 2) {
    return Status::Error(Code::kBadParam, "{} has no {} spatial dims behind N and C (1 to 3 are)",
                         Shape(x), spatial);
  }
  for (size_t s = 0; s < spatial; ++s) {
    const auto within = [](int64_t v, int64_t least) { return v >= least && v <= kMaxLength; };
    if (!within(a.window[s], 1) || !within(a.stride[s], 1) || !within(a.pre_padding[s], 0) ||
        !within(a.post_padding[s], 0) || !within(a.unit[s], 1)) {
      return Status::Error(Code::kBadParam,
                           "spatial dim {}: window {}, stride {}, paddings {} and {} over {} are "
                           "out of range",
                           s, a.window[s], a.stride[s], a.pre_padding[s], a.post_padding[s],
                           a.unit[s]);
    }
    const bool whole = a.window[s] % a.unit[s] == 0 && a.stride[s] % a.unit[s] == 0 &&
                       a.pre_padding[s] % a.unit[s] == 0 && a.post_padding[s] % a.unit[s] == 0;
    if (IsPooling(a.mode) && !whole) {
      return Status::Error(Code::kBadParam,
                           "{} needs whole lengths, spatial dim {} has fractions over {}",
                           Text(a.mode), s, a.unit[s]);
    }
  }
  return {};
}

// x and y as the forward direction has them.
Status VerifyGeometry(const Node& node, const Tensor& x, const Tensor& y) {
  const auto& a = node.As<ResampleAttrs>();
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(CheckLengths(a, x));
  const bool picks = node.op == GraphOp::kResampleFwd && a.mode == ResampleMode::kMax;
  if (!IsFloat(node.compute) && !(picks && IsInteger(x.dtype))) {
    return Status::Error(Code::kUnsupportedDataType, "{} of {}: compute type {} does not serve",
                         Text(a.mode), Info(x.dtype).text, Info(node.compute).text);
  }
  if (IsPooling(a.mode)) {
    RETURN_IF_ERROR(ExpectDims(y, ResampleOutputDims(a, x.dims),
                               fmt::format("{} of {}", Text(a.mode), Shape(x))));
  } else {
    // The extents say how far the samples go; taps beyond x are padding.
    if (a.padding == PaddingMode::kNegInf)
      return Status::Error(Code::kBadParam, "{} has no padding of -inf", Text(a.mode));
    if (y.rank() != x.rank() || y.dims[0] != x.dims[0] || y.dims[1] != x.dims[1]) {
      return Status::Error(Code::kShapeMismatch, "{} and {} differ elsewhere than in space",
                           Shape(x), Shape(y));
    }
  }
  if (NumElements(x.dims) == 0 && NumElements(y.dims) != 0 &&
      PaddingTapOf(a) == PaddingTap::kEdge) {
    return Status::Error(Code::kShapeMismatch, "{} has no edge to pad {} with", Shape(x), Shape(y));
  }
  return {};
}

// An error unless the type holds every place in a window.
Status CheckIndex(const ResampleAttrs& a, const Tensor& index, const Dims& dims) {
  RETURN_IF_ERROR(ExpectDims(index, dims, "the index of each maximum"));
  if (a.mode != ResampleMode::kMax)
    return Status::Error(Code::kBadParam, "{} has no index", Text(a.mode));
  double places = 1;
  for (size_t s = 0; s < a.window.size(); ++s)
    places *= static_cast<double>(a.window[s] / a.unit[s]);
  if (RoundTo(index.dtype, places - 1) == places - 1 &&
      RoundTo(index.dtype, places - 2) == places - 2)
    return {};
  return Status::Error(Code::kUnsupportedDataType, "{} of {} cannot hold the {} places of a window",
                       Shape(index), Info(index.dtype).text, places);
}

// The taps of one output place: calls visit(element of x or -1, tap number, weight).
template <class F>
void ForEachTap(const std::vector<ResampleAxis>& axes, const ResampleAttrs& a, const Dims& packed,
                const Dims& place, int64_t row, F&& visit) {
  const bool edge = PaddingTapOf(a) == PaddingTap::kEdge;
  int64_t count = 1;
  for (const ResampleAxis& axis : axes) count *= axis.taps;
  for (int64_t tap = 0; tap < count; ++tap) {
    int64_t rest = tap, at = row;
    double weight = 1;
    bool inside = true;
    for (size_t s = axes.size(); s-- > 0;) {
      const ResampleAxis& axis = axes[s];
      const int64_t t = rest % axis.taps, position = axis.step * place[s] + axis.offset;
      rest /= axis.taps;
      const int64_t base = FloorDiv(position, axis.unit);
      int64_t element = base + t;
      if (edge) element = std::clamp<int64_t>(element, 0, axis.in - 1);
      inside = inside && element >= 0 && element < axis.in;
      at += element * packed[axis.dim];
      if (a.mode == ResampleMode::kBilinear) {
        const double right =
            static_cast<double>(position - base * axis.unit) / static_cast<double>(axis.unit);
        weight *= t == 1 ? right : 1 - right;
      }
    }
    visit(inside ? at : -1, tap, weight);
  }
}

// Calls visit(row-major number of the output element, its places, offset of x's image and channel).
template <class F>
void ForEachPlace(const std::vector<ResampleAxis>& axes, const Dims& y, const Dims& packed_x,
                  F&& visit) {
  Dims place(axes.size());
  for (int64_t i = 0; i < NumElements(y); ++i) {
    int64_t rest = i;
    for (size_t s = axes.size(); s-- > 0;) {
      place[s] = rest % axes[s].out;
      rest /= axes[s].out;
    }
    const int64_t row = rest / y[1] * packed_x[0] + rest % y[1] * packed_x[1];
    visit(static_cast<size_t>(i), place, row);
  }
}

struct Maximum {
  double value = -kInfinity;
  int64_t tap = -1;
  void Take(double v, int64_t t, bool propagate_nan) {
    const bool first = tap < 0 && !std::isnan(v);
    const bool nan = propagate_nan && std::isnan(v) && !std::isnan(value);
    if (!first && !nan && !(v > value)) return;
    value = v;
    tap = t;
  }
};

// The divisor of the sum of the taps inside x.
double Divisor(ResampleMode mode, int64_t taps, int64_t inside) {
  if (mode == ResampleMode::kAvgIncludePadding) return static_cast<double>(taps);
  if (mode == ResampleMode::kAvgExcludePadding)
    return static_cast<double>(std::max<int64_t>(inside, 1));
  return 1;
}

}  // namespace

Dims ResampleOutputDims(const ResampleAttrs& a, const Dims& x) {
  Dims dims = x;
  for (size_t s = 0; s < a.window.size(); ++s) {
    const int64_t room = x[s + 2] * a.unit[s] + a.pre_padding[s] + a.post_padding[s] - a.window[s];
    dims[s + 2] = std::max<int64_t>(FloorDiv(room, a.stride[s]) + 1, 0);
  }
  return dims;
}

std::vector<ResampleAxis> ResampleAxes(const ResampleAttrs& a, const Dims& x, const Dims& y) {
  std::vector<ResampleAxis> axes;
  for (size_t s = 0; s < a.window.size(); ++s) {
    ResampleAxis axis{.dim = s + 2, .in = x[s + 2], .out = y[s + 2]};
    if (IsPooling(a.mode)) {
      axis.step = a.stride[s] / a.unit[s];
      axis.offset = -(a.pre_padding[s] / a.unit[s]);
      axis.taps = a.window[s] / a.unit[s];
    } else {
      // u in halves of the unit; nearest rounds it.
      const bool nearest = a.mode == ResampleMode::kNearest;
      axis.step = 2 * a.stride[s];
      axis.offset = a.stride[s] - 2 * a.pre_padding[s] + (nearest ? a.unit[s] : 0);
      axis.unit = 2 * a.unit[s];
      axis.taps = nearest ? 1 : 2;
      const int64_t common = std::gcd(std::gcd(axis.step, axis.offset), axis.unit);
      axis.step /= common;
      axis.offset /= common;
      axis.unit /= common;
    }
    axes.push_back(axis);
  }
  return axes;
}

PaddingTap PaddingTapOf(const ResampleAttrs& a) {
  if (a.mode == ResampleMode::kAvgExcludePadding) return PaddingTap::kSkipped;
  if (a.padding == PaddingMode::kEdge) return PaddingTap::kEdge;
  const bool max = a.mode == ResampleMode::kMax;
  if (a.padding == PaddingMode::kZero) return max ? PaddingTap::kZero : PaddingTap::kSkipped;
  return max ? PaddingTap::kSkipped : PaddingTap::kNegInf;
}

Status VerifyResampleFwd(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(RejectBool(graph, node));
  const auto& a = node.As<ResampleAttrs>();
  const Tensor& y = *OutputOf(graph, node, 0);
  RETURN_IF_ERROR(VerifyGeometry(node, *InputOf(graph, node, 0), y));
  const Tensor* previous = InputOf(graph, node, 1);
  if ((previous != nullptr) != (a.beta != 0))
    return Status::Error(Code::kBadParam, "a previous y goes with a beta that is not 0");
  if (previous != nullptr) RETURN_IF_ERROR(ExpectDims(*previous, y.dims, "y"));
  const Tensor* index = OutputOf(graph, node, 1);
  return index == nullptr ? Status() : CheckIndex(a, *index, y.dims);
}

Status InferResampleFwd(Graph& graph, const Node& node) {
  const Tensor x = graph[node.inputs[0]];
  const auto& a = node.As<ResampleAttrs>();
  if (!CheckLengths(a, x).ok()) return {};  // Verify has the sentence
  for (const TensorId id : node.outputs) {
    if (id != kAbsent) SetDims(graph[id], ResampleOutputDims(a, x.dims), &x);
  }
  return {};
}

void EvalResampleFwd(const EvalArgs& args) {
  const auto& a = args.node.As<ResampleAttrs>();
  const Dims &x = InputOf(args.graph, args.node, 0)->dims,
             &y = OutputOf(args.graph, args.node, 0)->dims;
  const auto axes = ResampleAxes(a, x, y);
  const Dims packed = PackedStrides(x);
  const PaddingTap padding = PaddingTapOf(a);
  const bool has_index = args.outputs.size() > 1 && args.outputs[1] != nullptr;
  ForEachPlace(axes, y, packed, [&](size_t i, const Dims& place, int64_t row) {
    Maximum max;
    double sum = 0;
    int64_t taps = 0, inside = 0;
    ForEachTap(axes, a, packed, place, row, [&](int64_t element, int64_t tap, double weight) {
      ++taps;
      if (element < 0 && padding == PaddingTap::kSkipped) return;
      inside += element >= 0;
      const double beyond = padding == PaddingTap::kNegInf ? -kInfinity : 0;
      const double v = element >= 0 ? (*args.inputs[0])[static_cast<size_t>(element)] : beyond;
      if (a.mode == ResampleMode::kMax)
        max.Take(v, tap, a.propagate_nan);
      else
        sum += weight * v;
    });
    double result =
        a.alpha * (a.mode == ResampleMode::kMax ? max.value : sum / Divisor(a.mode, taps, inside));
    if (a.beta != 0) result += a.beta * (*args.inputs[1])[i];
    (*args.outputs[0])[i] = result;
    if (has_index) (*args.outputs[1])[i] = static_cast<double>(std::max<int64_t>(max.tap, 0));
  });
}

Status VerifyResampleBwd(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(RejectBool(graph, node));
  const auto& a = node.As<ResampleAttrs>();
  const Tensor &dy = *InputOf(graph, node, kDy), &dx = *OutputOf(graph, node, 0);
  RETURN_IF_ERROR(VerifyGeometry(node, dx, dy));
  if (const Tensor* index = InputOf(graph, node, kIndex))
    RETURN_IF_ERROR(CheckIndex(a, *index, dy.dims));
  const Tensor* x = InputOf(graph, node, kX);
  if (x != nullptr) RETURN_IF_ERROR(ExpectDims(*x, dx.dims, "dx"));
  if (a.mode == ResampleMode::kMax && x == nullptr && InputOf(graph, node, kIndex) == nullptr)
    return Status::Error(Code::kBadParam, "the gradient of maxpool needs the index, or x");
  const Tensor* y = InputOf(graph, node, 3);
  if (y != nullptr) RETURN_IF_ERROR(ExpectDims(*y, dy.dims, "dy"));
  const Tensor* previous = InputOf(graph, node, 4);
  if ((previous != nullptr) != (a.beta != 0))
    return Status::Error(Code::kBadParam, "a previous dx goes with a beta that is not 0");
  return previous == nullptr ? Status() : ExpectDims(*previous, dx.dims, "dx");
}

Status InferResampleBwd(Graph& graph, const Node& node) {
  Tensor& dx = graph[node.outputs[0]];
  if (dx.dims.empty()) {
    return Status::Error(Code::kBadParam, "%{} has no extents: resample_bwd's output says them",
                         dx.name);
  }
  const Tensor dy = graph[node.inputs[0]];
  SetDims(dx, {}, &dy);
  return {};
}

void EvalResampleBwd(const EvalArgs& args) {
  const auto& a = args.node.As<ResampleAttrs>();
  const Dims &dy = InputOf(args.graph, args.node, kDy)->dims,
             &dx = OutputOf(args.graph, args.node, 0)->dims;
  const auto axes = ResampleAxes(a, dx, dy);
  const Dims packed = PackedStrides(dx);
  const PaddingTap padding = PaddingTapOf(a);
  const auto values = [&](size_t i) { return i < args.inputs.size() ? args.inputs[i] : nullptr; };
  std::vector<double>& result = *args.outputs[0];
  std::ranges::fill(result, 0);
  ForEachPlace(axes, dy, packed, [&](size_t i, const Dims& place, int64_t row) {
    int64_t taps = 0, inside = 0;
    Maximum max;
    const bool is_max = a.mode == ResampleMode::kMax, search = is_max && values(kIndex) == nullptr;
    ForEachTap(axes, a, packed, place, row, [&](int64_t element, int64_t tap, double) {
      ++taps;
      inside += element >= 0;
      if (!search || (element < 0 && padding == PaddingTap::kSkipped)) return;
      max.Take(element >= 0 ? (*values(kX))[static_cast<size_t>(element)] : 0, tap,
               a.propagate_nan);
    });
    const double found = static_cast<double>(std::max<int64_t>(max.tap, 0));
    const double chosen = is_max && !search ? (*values(kIndex))[i] : found;
    const double gradient = (*values(kDy))[i] / Divisor(a.mode, taps, inside);
    ForEachTap(axes, a, packed, place, row, [&](int64_t element, int64_t tap, double weight) {
      if (element < 0 || (is_max && static_cast<double>(tap) != chosen)) return;
      result[static_cast<size_t>(element)] += weight * gradient;
    });
  });
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] *= a.alpha;
    if (a.beta != 0) result[i] += a.beta * (*values(4))[i];
  }
}

}  // namespace kiln::graph
