// Convolutions: fprop, dgrad and wgrad in 1 to 3 spatial dims, with groups, strides, dilation,
// asymmetric padding and rotation of the filter. The three are one loop nest that differs in which
// operand is the sum.
//
// Extents: out = floor((in + pre + post - dilation * (filter - 1) - 1) / stride) + 1, and 0 where
// the filter does not fit. dgrad takes every dx, and wgrad every dw, whose forward convolution has
// the extents of dy; where these are not given, the smallest such extents are inferred.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

// Times kMaxExtent still far from overflow.
constexpr int64_t kMaxGeometry = int64_t{1} << 22;

// The operands by their part in the forward convolution, whichever of them is computed.
struct ConvTensors {
  const Tensor* x;
  const Tensor* w;
  const Tensor* y;
};

ConvTensors Parts(const Graph& graph, const Node& node) {
  const Tensor* first = InputOf(graph, node, 0);
  const Tensor* second = InputOf(graph, node, 1);
  const Tensor* out = OutputOf(graph, node, 0);
  switch (node.op) {
    case GraphOp::kConvDgrad:
      return {out, second, first};
    case GraphOp::kConvWgrad:
      return {first, out, second};
    default:
      return {first, second, out};
  }
}

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

int64_t OutExtent(const ConvAttrs& a, size_t d, int64_t in, int64_t filter) {
  const int64_t room = in + a.pre_padding[d] + a.post_padding[d] - a.dilation[d] * (filter - 1) - 1;
  return std::max<int64_t>(0, FloorDiv(room, a.stride[d]) + 1);
}

Status VerifyAttrs(const ConvAttrs& a, size_t spatial) {
  struct Row {
    const char* name;
    const Dims& values;
    int64_t minimum;
  };
  for (const Row& row :
       {Row{"pre_padding", a.pre_padding, 0}, Row{"post_padding", a.post_padding, 0},
        Row{"stride", a.stride, 1}, Row{"dilation", a.dilation, 1}}) {
    if (row.values.size() != spatial) {
      return Status::Error(Code::kBadParam, "{} has {} values for {} spatial dims", row.name,
                           row.values.size(), spatial);
    }
    for (const int64_t value : row.values) {
      if (value >= row.minimum && value <= kMaxGeometry) continue;
      return Status::Error(Code::kBadParam, "{} [{}] has a value outside {}..{}", row.name,
                           fmt::join(row.values, ","), row.minimum, kMaxGeometry);
    }
  }
  return {};
}

// Channels, filters and batch agree; the spatial extents follow in VerifySpatial.
Status VerifyChannels(const ConvTensors& t) {
  const int64_t channels = t.x->dims[1], filter_channels = t.w->dims[1], filters = t.w->dims[0];
  if (filter_channels == 0 ? channels != 0 : channels % filter_channels != 0) {
    return Status::Error(
        Code::kShapeMismatch,
        "filter {} has {} input channels, which do not divide the {} channels of {}", Shape(*t.w),
        filter_channels, channels, Shape(*t.x));
  }
  const int64_t groups = filter_channels == 0 ? 1 : channels / filter_channels;
  if (groups > 0 && filters % groups != 0) {
    return Status::Error(Code::kShapeMismatch,
                         "filter {} has {} output channels, not a multiple of the {} groups "
                         "({} channels of {} / {} of the filter)",
                         Shape(*t.w), filters, groups, channels, Shape(*t.x), filter_channels);
  }
  if (t.x->dims[0] != t.y->dims[0]) {
    return Status::Error(Code::kShapeMismatch, "batch of {} and of {} differ", Shape(*t.x),
                         Shape(*t.y));
  }
  if (t.y->dims[1] != filters) {
    return Status::Error(Code::kShapeMismatch, "{} has {} channels, filter {} makes {}",
                         Shape(*t.y), t.y->dims[1], Shape(*t.w), filters);
  }
  return {};
}

Status VerifySpatial(const ConvAttrs& attrs, const ConvTensors& t) {
  Dims expected = t.y->dims;
  for (size_t d = 0; d + 2 < expected.size(); ++d) {
    if (t.w->dims[d + 2] < 1)
      return Status::Error(Code::kShapeMismatch, "filter {} has an empty extent", Shape(*t.w));
    expected[d + 2] = OutExtent(attrs, d, t.x->dims[d + 2], t.w->dims[d + 2]);
  }
  return ExpectDims(*t.y, expected,
                    fmt::format("the convolution of {} with {}", Shape(*t.x), Shape(*t.w)));
}

Status VerifyConv(const Graph& graph, const Node& node) {
  const auto& attrs = node.As<ConvAttrs>();
  if (InputOf(graph, node, 0) == nullptr || InputOf(graph, node, 1) == nullptr) {
    return Status::Error(Code::kBadParam, "a convolution has two operands");
  }
  RETURN_IF_ERROR(CheckCompute(node, false));
  RETURN_IF_ERROR(RejectBool(graph, node));
  const ConvTensors t = Parts(graph, node);
  const int64_t rank = t.x->rank();
  for (const Tensor* tensor : {t.x, t.w, t.y}) {
    if (tensor->rank() == rank && rank >= 3 && rank <= 5) continue;
    return Status::Error(Code::kShapeMismatch,
                         "{}: x, w and y of a convolution have the same 3 to 5 dims; x is {}",
                         Shape(*tensor), Shape(*t.x));
  }
  RETURN_IF_ERROR(VerifyAttrs(attrs, static_cast<size_t>(rank - 2)));
  RETURN_IF_ERROR(VerifyChannels(t));
  RETURN_IF_ERROR(VerifySpatial(attrs, t));
  const Tensor* previous = InputOf(graph, node, 2);
  if ((previous != nullptr) != (attrs.beta != 0)) {
    return Status::Error(Code::kBadParam,
                         "beta is {}: the third operand, which it scales, must be {}", attrs.beta,
                         attrs.beta != 0 ? "there" : "absent");
  }
  if (previous == nullptr) return {};
  return ExpectDims(*previous, OutputOf(graph, node, 0)->dims, "the result that it is added to");
}

// Attributes fit the rank, so that Infer may index them.
bool Inferable(const ConvAttrs& attrs, const Tensor& a, const Tensor& b) {
  return a.rank() == b.rank() && a.rank() >= 3 &&
         VerifyAttrs(attrs, static_cast<size_t>(a.rank() - 2)).ok();
}

// Infers the extents of output 0 from those of the two operands: `outer` gives the first two,
// `extent` the others.
template <class Outer, class Extent>
Status InferConv(Graph& graph, const Node& node, Outer&& outer, Extent&& extent) {
  const auto& attrs = node.As<ConvAttrs>();
  const Tensor& a = graph[node.inputs[0]];
  const Tensor& b = graph[node.inputs[1]];
  if (!Inferable(attrs, a, b)) return {};  // Verify has the sentence
  Dims dims = outer(a, b);
  for (size_t d = 0; d + 2 < a.dims.size(); ++d) {
    dims.push_back(std::max<int64_t>(0, extent(attrs, d, a.dims[d + 2], b.dims[d + 2])));
  }
  SetDims(graph[node.outputs[0]], dims, &a);
  return {};
}

// ---- evaluation

// The convolution with its spatial dims padded to three, as [depth, height, width].
struct ConvLoops {
  int64_t batch, groups, filters_per_group, channels_per_group;
  std::array<int64_t, 3> in, out, filter, pre, stride, dilation;
  bool flip;
};

ConvLoops LoopsOf(const EvalArgs& args) {
  const auto& attrs = args.node.As<ConvAttrs>();
  const ConvTensors t = Parts(args.graph, args.node);
  ConvLoops loops{.batch = t.x->dims[0],
                  .groups = t.w->dims[1] == 0 ? 1 : t.x->dims[1] / t.w->dims[1],
                  .filters_per_group = 0,
                  .channels_per_group = t.w->dims[1],
                  .in = {1, 1, 1},
                  .out = {1, 1, 1},
                  .filter = {1, 1, 1},
                  .pre = {0, 0, 0},
                  .stride = {1, 1, 1},
                  .dilation = {1, 1, 1},
                  .flip = attrs.flip};
  loops.filters_per_group = loops.groups == 0 ? 0 : t.w->dims[0] / loops.groups;
  const size_t spatial = t.x->dims.size() - 2;
  for (size_t d = 0; d < spatial; ++d) {
    const size_t at = 3 - spatial + d;
    loops.in[at] = t.x->dims[d + 2];
    loops.out[at] = t.y->dims[d + 2];
    loops.filter[at] = t.w->dims[d + 2];
    loops.pre[at] = attrs.pre_padding[d];
    loops.stride[at] = attrs.stride[d];
    loops.dilation[at] = attrs.dilation[d];
  }
  return loops;
}

// One filter tap along one output row: y[y_at + i] and x[x_at + i * x_step] meet at w[w_at], for i
// < count.
struct ConvRow {
  int64_t x_at, x_step, w_at, y_at, count;
};

// The outputs along dim d whose input under tap f lies inside, [first, last).
std::array<int64_t, 2> Inside(const ConvLoops& c, size_t d, int64_t tap) {
  const int64_t shift = tap * c.dilation[d] - c.pre[d];  // in = out * stride + shift
  const int64_t first = std::max<int64_t>(0, CeilDiv(std::max<int64_t>(0, -shift), c.stride[d]));
  const int64_t last = shift >= c.in[d] ? 0 : CeilDiv(c.in[d] - shift, c.stride[d]);
  return {first, std::min(last, c.out[d])};
}

// The rows of one (image, filter, channel): all taps, all output rows.
template <class F>
void ForEachTapRow(const ConvLoops& c, int64_t x_base, int64_t w_base, int64_t y_base, F&& visit) {
  const auto stored = [&](size_t d, int64_t tap) { return c.flip ? c.filter[d] - 1 - tap : tap; };
  for (int64_t fd = 0; fd < c.filter[0]; ++fd) {
    for (int64_t fh = 0; fh < c.filter[1]; ++fh) {
      for (int64_t fw = 0; fw < c.filter[2]; ++fw) {
        const auto [d0, d1] = Inside(c, 0, fd);
        const auto [h0, h1] = Inside(c, 1, fh);
        const auto [w0, w1] = Inside(c, 2, fw);
        if (w0 >= w1) continue;
        const int64_t w_at =
            w_base + (stored(0, fd) * c.filter[1] + stored(1, fh)) * c.filter[2] + stored(2, fw);
        const int64_t iw = w0 * c.stride[2] + fw * c.dilation[2] - c.pre[2];
        for (int64_t od = d0; od < d1; ++od) {
          const int64_t id = od * c.stride[0] + fd * c.dilation[0] - c.pre[0];
          for (int64_t oh = h0; oh < h1; ++oh) {
            const int64_t ih = oh * c.stride[1] + fh * c.dilation[1] - c.pre[1];
            visit(ConvRow{x_base + (id * c.in[1] + ih) * c.in[2] + iw, c.stride[2], w_at,
                          y_base + (od * c.out[1] + oh) * c.out[2] + w0, w1 - w0});
          }
        }
      }
    }
  }
}

template <class F>
void ForEachConvRow(const ConvLoops& c, F&& visit) {
  const int64_t in_size = c.in[0] * c.in[1] * c.in[2];
  const int64_t out_size = c.out[0] * c.out[1] * c.out[2];
  const int64_t filter_size = c.filter[0] * c.filter[1] * c.filter[2];
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t k = 0; k < c.groups * c.filters_per_group; ++k) {
      const int64_t group = k / c.filters_per_group;
      for (int64_t ch = 0; ch < c.channels_per_group; ++ch) {
        const int64_t x_plane = (n * c.groups + group) * c.channels_per_group + ch;
        ForEachTapRow(c, x_plane * in_size, (k * c.channels_per_group + ch) * filter_size,
                      (n * c.groups * c.filters_per_group + k) * out_size, visit);
      }
    }
  }
}

// Runs the loops and applies alpha, beta and the compute type's wrap-around.
template <class F>
void EvalConv(const EvalArgs& args, F&& accumulate) {
  const auto& attrs = args.node.As<ConvAttrs>();
  std::vector<double>& result = *args.outputs[0];
  std::ranges::fill(result, 0);
  ForEachConvRow(LoopsOf(args), accumulate);
  const std::vector<double>* previous = args.inputs.size() > 2 ? args.inputs[2] : nullptr;
  const bool integer = IsInteger(args.node.compute);
  for (size_t i = 0; i < result.size(); ++i) {
    if (integer) result[i] = static_cast<double>(ToComputeInt(args.node.compute, result[i]));
    result[i] *= attrs.alpha;
    if (previous != nullptr) result[i] += attrs.beta * (*previous)[i];
  }
}

}  // namespace

Status VerifyConvFprop(const Graph& graph, const Node& node) { return VerifyConv(graph, node); }
Status VerifyConvDgrad(const Graph& graph, const Node& node) { return VerifyConv(graph, node); }
Status VerifyConvWgrad(const Graph& graph, const Node& node) { return VerifyConv(graph, node); }

Status InferConvFprop(Graph& graph, const Node& node) {
  return InferConv(
      graph, node, [](const Tensor& x, const Tensor& w) { return Dims{x.dims[0], w.dims[0]}; },
      OutExtent);
}

Status InferConvDgrad(Graph& graph, const Node& node) {
  return InferConv(
      graph, node, [](const Tensor& dy, const Tensor& w) { return Dims{dy.dims[0], w.dims[1]}; },
      [](const ConvAttrs& a, size_t d, int64_t out, int64_t filter) {
        return (out - 1) * a.stride[d] + a.dilation[d] * (filter - 1) + 1 - a.pre_padding[d] -
               a.post_padding[d];
      });
}

Status InferConvWgrad(Graph& graph, const Node& node) {
  return InferConv(
      graph, node, [](const Tensor& x, const Tensor& dy) { return Dims{dy.dims[1], x.dims[1]}; },
      [](const ConvAttrs& a, size_t d, int64_t in, int64_t out) {
        const int64_t excess = in + a.pre_padding[d] + a.post_padding[d] - out * a.stride[d];
        return 1 + std::max<int64_t>(0, CeilDiv(std::max<int64_t>(0, excess), a.dilation[d]));
      });
}

void EvalConvFprop(const EvalArgs& args) {
  const double* x = args.inputs[0]->data();
  const double* w = args.inputs[1]->data();
  double* y = args.outputs[0]->data();
  EvalConv(args, [=](const ConvRow& r) {
    const double tap = w[r.w_at];
    for (int64_t i = 0; i < r.count; ++i) y[r.y_at + i] += tap * x[r.x_at + i * r.x_step];
  });
}

void EvalConvDgrad(const EvalArgs& args) {
  const double* dy = args.inputs[0]->data();
  const double* w = args.inputs[1]->data();
  double* dx = args.outputs[0]->data();
  EvalConv(args, [=](const ConvRow& r) {
    const double tap = w[r.w_at];
    for (int64_t i = 0; i < r.count; ++i) dx[r.x_at + i * r.x_step] += tap * dy[r.y_at + i];
  });
}

void EvalConvWgrad(const EvalArgs& args) {
  const double* x = args.inputs[0]->data();
  const double* dy = args.inputs[1]->data();
  double* dw = args.outputs[0]->data();
  EvalConv(args, [=](const ConvRow& r) {
    double sum = 0;
    for (int64_t i = 0; i < r.count; ++i) sum += x[r.x_at + i * r.x_step] * dy[r.y_at + i];
    dw[r.w_at] += sum;
  });
}

}  // namespace kiln::graph
