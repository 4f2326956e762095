// cudnnCausalConv1d{Forward,Backward} and their Nwh forms, of cudnn_subquadratic_ops.h
// (9.22, 9.26): a filter for each channel, whose last tap stands on the place itself, then a bias
// and SiLU.
//
//   a[n,c,l] = b[c] + sum over k of w[c,k] x[n, c, l - (K-1) + k],   y = a or a * sigmoid(a)
//
// A client of the graph's depthwise convolution with K-1 places of padding in front. The functions
// take a stream and no handle: they run on the current context's device. Gradients of w and b are
// added to what their memory holds, as programs that clear it before expect. There is no parameter
// for workspace: what a backward pass needs (the gradient in front of SiLU, partial sums) is lent
// in the order of the stream.
#include "api/legacy/calls/causal_conv.h"

#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

using namespace causal;  // NOLINT: what this file shares with those of the other functions
using graph::PointwiseMode;

// The dim that lies innermost: places (x[N,C,L], w[C,K]), or channels (x[N,L,C], w[K,C]).
enum class Order : int32_t { kPlaces, kChannels };

struct Problem {
  Order order;
  int32_t batch, dim, length, taps;
  int32_t type, gradient_type;  // of w's and b's gradients
  int32_t activation;

  bool is_empty() const { return batch == 0 || dim == 0 || length == 0; }
  bool has_silu() const { return activation == CUDNN_CAUSAL_CONV1D_ACTIVATION_SILU; }
};

Status Check(const Problem& p) {
  RETURN_IF_ERROR(CheckExtent(p.batch, 0, "batch"));
  RETURN_IF_ERROR(CheckExtent(p.dim, 0, "dim"));
  RETURN_IF_ERROR(CheckExtent(p.length, 0, "seqLen"));
  RETURN_IF_ERROR(CheckExtent(p.taps, 1, "kernelSize"));
  RETURN_IF_ERROR(CheckType(p.type, "dataType"));
  RETURN_IF_ERROR(CheckType(p.gradient_type, "dwDataType"));
  RETURN_IF_ERROR(CheckEnum(p.activation, CUDNN_CAUSAL_CONV1D_ACTIVATION_SILU,
                            "cudnnCausalConv1dActivation_t"));
  for (const int64_t extent : {p.length, p.taps}) {
    if (extent * p.dim <= INT32_MAX) continue;
    return Status::Error(Code::kNotSupported, "{} channels of {} are more than {} elements", p.dim,
                         extent, INT32_MAX);
  }
  return {};
}

// ---- tensors

TensorDesc ImageDesc(const Problem& p) {
  TensorDesc desc = {.type = p.type, .rank = 3};
  desc.dims = {p.batch, p.dim, p.length};
  desc.strides = {p.dim * p.length, p.length, 1};
  if (p.order == Order::kChannels) desc.strides = {p.dim * p.length, 1, p.dim};
  return desc;
}

TensorDesc FilterDescOf(const Problem& p, int32_t type) {
  TensorDesc desc = {.type = type, .rank = 3};
  desc.dims = {p.dim, 1, p.taps};
  desc.strides = {p.taps, p.taps, 1};
  if (p.order == Order::kChannels) desc.strides = {1, p.dim, p.dim};
  return desc;
}

TensorDesc BiasDesc(const Problem& p, int32_t type) {
  TensorDesc desc = {.type = type, .rank = 3};
  desc.dims = {1, p.dim, 1};
  desc.strides = {p.dim, 1, 1};
  return desc;
}

// ---- graphs

struct Inputs {
  Operand x, w, bias;  // a bias without a slot: none
};

// The value that SiLU is applied to.
Result<TensorId> BeforeActivation(CallGraph& g, const Problem& p, const Inputs& in) {
  ASSIGN_OR_RETURN(const TensorId x, g.Read(in.x));
  ASSIGN_OR_RETURN(const TensorId w, g.Read(in.w));
  g.wishes.only_fma = KeepsBits(p.type);
  const TensorId sum = Convolve(g, GraphOp::kConvFprop, {.taps = p.taps}, {x, w}, *in.x.desc);
  if (in.bias.slot < 0) return sum;
  ASSIGN_OR_RETURN(const TensorId bias, g.Read(in.bias));
  return g.Pointwise(PointwiseMode::kAdd, {sum, bias}, ComputeType(*in.x.desc));
}

// The gradient of that, in the type of dy.
Result<TensorId> GradientBefore(CallGraph& g, const Problem& p, const Inputs& in,
                                const Operand& dy) {
  ASSIGN_OR_RETURN(const TensorId gradient, g.Read(dy));
  if (!p.has_silu()) return gradient;
  ASSIGN_OR_RETURN(const TensorId before, BeforeActivation(g, p, in));
  ASSIGN_OR_RETURN(const DType type, ElementType(p.type));
  return g.builder().Apply(GraphOp::kPointwise, {gradient, before},
                           graph::PointwiseAttrs{.mode = PointwiseMode::kSwishBwd},
                           {.dtype = type, .compute = ComputeType(*dy.desc)});
}

// ---- calls

struct Pointers {
  const void *x, *w, *bias, *dy = nullptr;
  void *y = nullptr, *dx = nullptr, *dw = nullptr, *dbias = nullptr;
};

Inputs AddInputs(Call& call, const TensorDesc& image, const TensorDesc& filter,
                 const TensorDesc& bias, const Pointers& at) {
  Inputs in = {.x = call.Memory(image, at.x), .w = call.Memory(filter, at.w), .bias = {}};
  if (at.bias != nullptr) in.bias = call.Memory(bias, at.bias);
  return in;
}

// Adds what tells calls apart beside their tensors: which of them are there.
void AddKey(Call& call, const Problem& p, const Pointers& at) {
  call.Add(p);
  call.Add(static_cast<char>(at.bias != nullptr));
  call.Add(static_cast<char>(at.dbias != nullptr));
}

Status Forward(const char* function, void* stream, const Problem& p, const Pointers& at) {
  RETURN_IF_ERROR(Check(p));
  if (p.is_empty()) return {};
  RETURN_IF_ERROR(NotNull(at.x, "x"));
  RETURN_IF_ERROR(NotNull(at.w, "weight"));
  RETURN_IF_ERROR(NotNull(at.y, "y"));
  RETURN_IF_ERROR(CheckApart(at.x, at.y, "x and y"));
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  const TensorDesc image = ImageDesc(p), filter = FilterDescOf(p, p.type),
                   bias = BiasDesc(p, p.type);
  Call call(handle, function);
  AddKey(call, p, at);
  const Inputs in = AddInputs(call, image, filter, bias, at);
  const Operand y = call.Memory(image, at.y);
  return call.Run(kFromSession, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(TensorId value, BeforeActivation(g, p, in));
    if (p.has_silu()) value = g.Pointwise(PointwiseMode::kSwishFwd, {value}, ComputeType(image));
    return g.Write(value, y);
  });
}

Status CheckBackward(const Pointers& at) {
  RETURN_IF_ERROR(NotNull(at.x, "x"));
  RETURN_IF_ERROR(NotNull(at.w, "weight"));
  RETURN_IF_ERROR(NotNull(at.dy, "dy"));
  RETURN_IF_ERROR(NotNull(at.dx, "dx"));
  RETURN_IF_ERROR(NotNull(at.dw, "dweight"));
  RETURN_IF_ERROR(CheckApart(at.dy, at.dx, "dy and dx"));
  return CheckApart(at.x, at.dx, "x and dx");
}

Status Backward(const char* function, void* stream, const Problem& p, const Pointers& at) {
  RETURN_IF_ERROR(Check(p));
  if (p.is_empty()) return {};
  RETURN_IF_ERROR(CheckBackward(at));
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  const TensorDesc image = ImageDesc(p), filter = FilterDescOf(p, p.type),
                   bias = BiasDesc(p, p.type), dfilter = FilterDescOf(p, p.gradient_type),
                   dbias_desc = BiasDesc(p, p.gradient_type);
  Call call(handle, function);
  AddKey(call, p, at);
  const Inputs in = AddInputs(call, image, filter, bias, at);
  const Operand dy = call.Memory(image, at.dy), dx = call.Memory(image, at.dx);
  const Sum dw = SumIn(call, dfilter, at.dw);
  const Sum dbias = at.dbias != nullptr ? SumIn(call, dbias_desc, at.dbias) : Sum{};
  return call.Run(kFromSession, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const TensorId gradient, GradientBefore(g, p, in, dy));
    ASSIGN_OR_RETURN(const TensorId x, g.Read(in.x));
    ASSIGN_OR_RETURN(const TensorId w, g.Read(in.w));
    g.wishes.only_fma = KeepsBits(p.type);
    const Taps taps = {.taps = p.taps};
    RETURN_IF_ERROR(g.Write(Convolve(g, GraphOp::kConvDgrad, taps, {gradient, w}, image), dx));
    RETURN_IF_ERROR(AddTo(g, dw, Convolve(g, GraphOp::kConvWgrad, taps, {x, gradient}, filter)));
    if (at.dbias == nullptr) return {};
    const DType compute = ComputeType(image);
    return AddTo(g, dbias,
                 g.builder().Reduction(graph::ReductionMode::kAdd, gradient, DimsOf(bias),
                                       {.dtype = compute, .compute = compute}));
  });
}

}  // namespace

Status CausalConv1dForward(void* stream, const void* x, const void* weight, const void* bias,
                           void* y, int batch, int dim, int seq_len, int kernel_size, int type,
                           int activation) {
  return Forward("cudnnCausalConv1dForward", stream,
                 {Order::kPlaces, batch, dim, seq_len, kernel_size, type, type, activation},
                 {.x = x, .w = weight, .bias = bias, .y = y});
}

Status CausalConv1dNwhForward(void* stream, const void* x, const void* weight, const void* bias,
                              void* y, int batch, int dim, int seq_len, int kernel_size, int type,
                              int activation) {
  return Forward("cudnnCausalConv1dNwhForward", stream,
                 {Order::kChannels, batch, dim, seq_len, kernel_size, type, type, activation},
                 {.x = x, .w = weight, .bias = bias, .y = y});
}

Status CausalConv1dBackward(void* stream, const void* x, const void* weight, const void* bias,
                            const void* dy, void* dx, void* dweight, void* dbias, int batch,
                            int dim, int seq_len, int kernel_size, int type, int gradient_type,
                            int activation) {
  return Backward(
      "cudnnCausalConv1dBackward", stream,
      {Order::kPlaces, batch, dim, seq_len, kernel_size, type, gradient_type, activation},
      {.x = x, .w = weight, .bias = bias, .dy = dy, .dx = dx, .dw = dweight, .dbias = dbias});
}

Status CausalConv1dNwhBackward(void* stream, const void* x, const void* weight, const void* bias,
                               const void* dy, void* dx, void* dweight, void* dbias, int batch,
                               int dim, int seq_len, int kernel_size, int type, int gradient_type,
                               int activation) {
  return Backward(
      "cudnnCausalConv1dNwhBackward", stream,
      {Order::kChannels, batch, dim, seq_len, kernel_size, type, gradient_type, activation},
      {.x = x, .w = weight, .bias = bias, .dy = dy, .dx = dx, .dw = dweight, .dbias = dbias});
}

}  // namespace kiln::api::legacy
