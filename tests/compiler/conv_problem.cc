#include "tests/compiler/conv_problem.h"

#include "ir/graph/builder.h"

namespace kiln::compiler {

using graph::Graph;
using graph::GraphOp;
using graph::TensorId;

namespace {

Dims Strides(const Dims& dims, bool channels_last) {
  Dims strides(dims.size());
  int64_t step = 1;
  if (channels_last) {
    strides[1] = 1;
    step = dims[1];
  }
  for (size_t d = dims.size(); d-- > 0;) {
    if (d == 1 && channels_last) continue;
    strides[d] = step;
    step *= dims[d];
  }
  return strides;
}

}  // namespace

Graph Build(const ConvProblem& p) {
  graph::GraphBuilder b(p.name);
  Dims x = {p.images, p.groups * p.channels}, w = {p.groups * p.filters, p.channels};
  Dims y = {p.images, p.groups * p.filters};
  for (size_t s = 0; s < p.image.size(); ++s) {
    x.push_back(p.image[s]);
    w.push_back(p.taps[s]);
    const int64_t reach = (p.taps[s] - 1) * p.dilation[s] + 1;
    y.push_back((p.image[s] + 2 * p.pad[s] - reach) / p.stride[s] + 1);
  }
  const graph::ConvAttrs attrs{.pre_padding = p.pad,
                               .post_padding = p.pad,
                               .stride = p.stride,
                               .dilation = p.dilation,
                               .flip = p.flip};
  const auto input = [&](const char* name, const Dims& dims) {
    return b.Input(name, p.type, dims, Strides(dims, p.last));
  };
  const auto per_channel = [&](const char* name, int64_t channels) {
    Dims dims(x.size(), 1);
    dims[1] = channels;
    return b.Input(name, p.type, dims, Strides(dims, p.last));
  };
  const DType compute = p.type == DType::kF64 ? DType::kF64 : DType::kF32;
  const bool dgrad = p.op == GraphOp::kConvDgrad, wgrad = p.op == GraphOp::kConvWgrad;
  TensorId first = dgrad ? input("dy", y) : input("x", x);
  const TensorId second = wgrad ? input("dy", y) : input("w", w);
  const Dims made = dgrad ? x : wgrad ? w : y;
  if (p.fused) {
    const TensorId scale = per_channel("scale", dgrad ? y[1] : x[1]);
    first = b.Pointwise(graph::PointwiseMode::kMul, {first, scale},
                        {.dtype = p.type, .compute = compute, .dims = {}});
    first = b.Pointwise(graph::PointwiseMode::kAdd, {first, scale},
                        {.dtype = p.type, .compute = compute, .dims = {}});
  }
  TensorId c =
      b.Apply(p.op, {first, second}, attrs, {.dtype = compute, .compute = compute, .dims = made});
  if ((p.fused || p.followed) && !wgrad) {
    c = b.Pointwise(graph::PointwiseMode::kAdd, {c, per_channel("bias", made[1])},
                    {.dtype = compute, .compute = compute, .dims = {}});
    c = b.Pointwise(graph::PointwiseMode::kAdd, {c, input("residual", made)},
                    {.dtype = compute, .compute = compute, .dims = {}});
    const TensorId r = b.Pointwise(graph::PointwiseMode::kReluFwd, {c},
                                   {.dtype = compute, .compute = compute, .dims = {}});
    b.Output(c, "before", compute, Strides(made, p.last));
    c = r;
  }
  b.Output(c, "result", p.type, Strides(made, p.last));
  return *b.Finish();
}

}  // namespace kiln::compiler
