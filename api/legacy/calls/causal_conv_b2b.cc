// cudnnB2BCausalConv1d{Forward,Backward} of cudnn_subquadratic_ops.h (9.26): a short filter on each
// of the three channels of a dim, a gate, a longer filter, and a second gate, as the blocks of
// Hyena have them.
//
//   p0, p1, p2 = causal(x[:,:,i], weightsProj[:,i])        g = p1 p2
//   y = causal(g, weightsMixer) + skipBias g               yGated = y p0
//
// A client of the graph's depthwise convolution (causal_conv.cc has its sum), once for the 3 D rows
// of x and once for the D of g. What lies between is kept in f32 (f64), so that nothing is rounded
// to the type of the tensors but y. Backward reads y for the gradient of p0, makes the rest again,
// and adds the gradients of filters and bias to what their memory holds.
//
// The work on each of B, D, L places is 2 (3 Kp + Km) + 4 flops, thrice as many backward. x, y and
// yGated are 5 elements a place; the three p, and g, go through memory in f32 beside them, 40 bytes
// a place, as Kiln's convolutions are kernels of their own.
#include "api/legacy/calls/causal_conv.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/places.h"

namespace kiln::api::legacy {
namespace {

using namespace causal;  // NOLINT: what this file shares with those of the other functions
using graph::PointwiseMode;

constexpr int kParts = 3;

struct Problem {
  int32_t batch, dim, length, proj_taps, mixer_taps;
  int32_t type, gradient_type;  // of the gradients of filters and bias
};

Status CheckTaps(int64_t taps, int64_t most, std::string_view name) {
  if (taps >= 2 && taps <= most) return {};
  return Status::Error(Code::kBadParam, "{} is {}; it is between 2 and {}", name, taps, most);
}

Status Check(const Problem& p) {
  RETURN_IF_ERROR(CheckExtent(p.batch, 1, "batch"));
  RETURN_IF_ERROR(CheckExtent(p.dim, 1, "dim"));
  RETURN_IF_ERROR(CheckExtent(p.length, 1, "seqLen"));
  RETURN_IF_ERROR(CheckTaps(p.proj_taps, 32, "kernelSizeProj"));
  RETURN_IF_ERROR(CheckTaps(p.mixer_taps, 256, "kernelSizeMixer"));
  RETURN_IF_ERROR(CheckType(p.type, "dataType"));
  const int64_t row = int64_t{kParts} * p.length;
  for (const int64_t extent : {row, int64_t{p.mixer_taps}}) {
    if (extent * p.dim <= INT32_MAX) continue;
    return Status::Error(Code::kNotSupported, "{} channels of {} are more than {} elements", p.dim,
                         extent, INT32_MAX);
  }
  const int32_t wide = p.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  if (p.gradient_type == wide) return {};
  return Status::Error(Code::kNotSupported, "dwDataType is {}; beside dataType {} it is {}",
                       p.gradient_type, p.type, wide);
}

// ---- tensors: [batch,channels,length], [channels,1,taps] and [1,dim,1]

TensorDesc ImageDesc(const Problem& p, int32_t channels) {
  TensorDesc desc = {.type = p.type, .rank = 3};
  desc.dims = {p.batch, channels, p.length};
  desc.strides = {channels * p.length, p.length, 1};
  return desc;
}

TensorDesc FilterDescOf(int32_t type, int32_t channels, int32_t taps) {
  TensorDesc desc = {.type = type, .rank = 3};
  desc.dims = {channels, 1, taps};
  desc.strides = {taps, taps, 1};
  return desc;
}

TensorDesc SkipDesc(int32_t type, int32_t dim) {
  TensorDesc desc = {.type = type, .rank = 3};
  desc.dims = {1, dim, 1};
  desc.strides = {dim, 1, 1};
  return desc;
}

struct Descs {
  explicit Descs(const Problem& p)
      : x(ImageDesc(p, kParts * p.dim)),
        y(ImageDesc(p, p.dim)),
        proj(FilterDescOf(p.type, kParts * p.dim, p.proj_taps)),
        mixer(FilterDescOf(p.type, p.dim, p.mixer_taps)),
        skip(SkipDesc(p.type, p.dim)),
        dproj(FilterDescOf(p.gradient_type, kParts * p.dim, p.proj_taps)),
        dmixer(FilterDescOf(p.gradient_type, p.dim, p.mixer_taps)),
        dskip(SkipDesc(p.gradient_type, p.dim)) {}
  TensorDesc x, y, proj, mixer, skip, dproj, dmixer, dskip;
};

// ---- graphs

struct Inputs {
  Operand x, proj, mixer, skip;
};

// The values that forward and backward make of x, in the compute type.
struct Gates {
  std::array<TensorId, kParts> p;
  TensorId product;  // of p1 and p2
};

class Maker {
 public:
  Maker(CallGraph& g, const Problem& p, const Descs& descs)
      : g_(g), p_(p), descs_(descs), compute_(ComputeType(descs.y)) {
    g.wishes.only_fma = KeepsBits(p.type);
  }

  Status Forward(const Inputs& in, const Operand& y, const Operand& y_gated) {
    ASSIGN_OR_RETURN(const Gates gates, MakeGates(in));
    ASSIGN_OR_RETURN(const TensorId mixer, g_.Read(in.mixer));
    ASSIGN_OR_RETURN(const TensorId skip, g_.Read(in.skip));
    const TensorId mixed = Convolve(g_, GraphOp::kConvFprop, {.taps = p_.mixer_taps},
                                    {gates.product, mixer}, descs_.y);
    const TensorId sum = Plus(mixed, Times(gates.product, skip));
    RETURN_IF_ERROR(g_.Write(sum, y));
    return g_.Write(Times(sum, gates.p[0]), y_gated);
  }

  struct Results {
    Operand dx;
    Sum dproj, dmixer, dskip;
  };

  Status Backward(const Inputs& in, const Operand& y, const Operand& dy, const Results& out) {
    ASSIGN_OR_RETURN(const Gates gates, MakeGates(in));
    ASSIGN_OR_RETURN(const TensorId mixer, g_.Read(in.mixer));
    ASSIGN_OR_RETURN(const TensorId skip, g_.Read(in.skip));
    ASSIGN_OR_RETURN(const TensorId before_gate, g_.Read(y));
    ASSIGN_OR_RETURN(const TensorId gated, g_.Read(dy));
    const TensorId sum = Times(gated, gates.p[0]);  // the gradient of y
    const Taps taps = {.taps = p_.mixer_taps};
    const TensorId product =
        Plus(Convolve(g_, GraphOp::kConvDgrad, taps, {sum, mixer}, descs_.y), Times(sum, skip));
    RETURN_IF_ERROR(
        AddTo(g_, out.dmixer,
              Convolve(g_, GraphOp::kConvWgrad, taps, {gates.product, sum}, descs_.mixer)));
    RETURN_IF_ERROR(AddTo(
        g_, out.dskip,
        g_.builder().Reduction(graph::ReductionMode::kAdd, Times(sum, gates.product),
                               DimsOf(descs_.skip), {.dtype = compute_, .compute = compute_})));
    return Project(in,
                   Interleaved({Times(gated, before_gate), Times(product, gates.p[2]),
                                Times(product, gates.p[1])}),
                   out);
  }

 private:
  TensorId Times(TensorId a, TensorId b) {
    return g_.Pointwise(PointwiseMode::kMul, {a, b}, compute_);
  }
  TensorId Plus(TensorId a, TensorId b) {
    return g_.Pointwise(PointwiseMode::kAdd, {a, b}, compute_);
  }

  Result<Gates> MakeGates(const Inputs& in) {
    ASSIGN_OR_RETURN(const TensorId x, g_.Read(in.x));
    ASSIGN_OR_RETURN(const TensorId w, g_.Read(in.proj));
    const TensorId all =
        Convolve(g_, GraphOp::kConvFprop, {.taps = p_.proj_taps}, {x, w}, descs_.x);
    Gates gates;
    for (int i = 0; i < kParts; ++i)
      gates.p[static_cast<size_t>(i)] = g_.builder().Apply(
          GraphOp::kSlice, {all}, graph::SliceAttrs{.start = {0, i, 0}, .step = {1, kParts, 1}},
          {.dtype = compute_, .compute = compute_, .dims = DimsOf(descs_.y)});
    gates.product = Times(gates.p[1], gates.p[2]);
    return gates;
  }

  // The inverse of those slices.
  TensorId Interleaved(const std::array<TensorId, kParts>& parts) {
    std::vector<TensorId> rows;
    for (const TensorId part : parts)
      rows.push_back(Reshaped(g_, part, {p_.batch, p_.dim, 1, p_.length}));
    const TensorId all = g_.builder().Apply(
        GraphOp::kConcat, std::move(rows), graph::ConcatAttrs{.axis = 2},
        {.dtype = compute_, .compute = compute_, .dims = {p_.batch, p_.dim, kParts, p_.length}});
    return Reshaped(g_, all, DimsOf(descs_.x));
  }

  Status Project(const Inputs& in, TensorId gradient, const Results& out) {
    const Taps taps = {.taps = p_.proj_taps};
    ASSIGN_OR_RETURN(const TensorId x, g_.Read(in.x));
    ASSIGN_OR_RETURN(const TensorId w, g_.Read(in.proj));
    RETURN_IF_ERROR(
        g_.Write(Convolve(g_, GraphOp::kConvDgrad, taps, {gradient, w}, descs_.x), out.dx));
    return AddTo(g_, out.dproj,
                 Convolve(g_, GraphOp::kConvWgrad, taps, {x, gradient}, descs_.proj));
  }

  CallGraph& g_;
  const Problem& p_;
  const Descs& descs_;
  const DType compute_;
};

Status CheckPointers(std::initializer_list<std::pair<const void*, std::string_view>> pointers) {
  for (const auto& [pointer, name] : pointers) RETURN_IF_ERROR(NotNull(pointer, name));
  return {};
}

}  // namespace

Status B2BCausalConv1dForward(void* stream, const void* x, const void* weights_proj,
                              const void* weights_mixer, const void* skip_bias, void* y,
                              void* y_gated, int batch, int dim, int seq_len, int kernel_size_proj,
                              int kernel_size_mixer, int type) {
  const int wide = type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const Problem p = {batch, dim, seq_len, kernel_size_proj, kernel_size_mixer, type, wide};
  RETURN_IF_ERROR(CheckPointers({{x, "x"},
                                 {weights_proj, "weightsProj"},
                                 {weights_mixer, "weightsMixer"},
                                 {skip_bias, "skipBias"},
                                 {y, "y"},
                                 {y_gated, "yGated"}}));
  RETURN_IF_ERROR(Check(p));
  RETURN_IF_ERROR(CheckApart(x, y, "x and y"));
  RETURN_IF_ERROR(CheckApart(x, y_gated, "x and yGated"));
  RETURN_IF_ERROR(CheckApart(y, y_gated, "y and yGated"));
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  const Descs descs(p);
  Call call(handle, "cudnnB2BCausalConv1dForward");
  call.Add(p);
  const Inputs in = {.x = call.Memory(descs.x, x),
                     .proj = call.Memory(descs.proj, weights_proj),
                     .mixer = call.Memory(descs.mixer, weights_mixer),
                     .skip = call.Memory(descs.skip, skip_bias)};
  const Operand out = call.Memory(descs.y, y), gated = call.Memory(descs.y, y_gated);
  return call.Run(kFromSession, [&](CallGraph& g) -> Status {
    return Maker(g, p, descs).Forward(in, out, gated);
  });
}

Status B2BCausalConv1dBackward(void* stream, const void* x, const void* weights_proj,
                               const void* weights_mixer, const void* skip_bias, const void* y,
                               const void* dy, void* dx, void* dweights_proj, void* dweights_mixer,
                               void* dskip_bias, int batch, int dim, int seq_len,
                               int kernel_size_proj, int kernel_size_mixer, int type,
                               int gradient_type) {
  const Problem p = {batch, dim, seq_len, kernel_size_proj, kernel_size_mixer, type, gradient_type};
  RETURN_IF_ERROR(CheckPointers({{x, "x"},
                                 {weights_proj, "weightsProj"},
                                 {weights_mixer, "weightsMixer"},
                                 {skip_bias, "skipBias"},
                                 {y, "y"},
                                 {dy, "dy"},
                                 {dx, "dx"},
                                 {dweights_proj, "dweightsProj"},
                                 {dweights_mixer, "dweightsMixer"},
                                 {dskip_bias, "dskipBias"}}));
  RETURN_IF_ERROR(Check(p));
  RETURN_IF_ERROR(CheckApart(x, dx, "x and dx"));
  RETURN_IF_ERROR(CheckApart(y, dx, "y and dx"));
  RETURN_IF_ERROR(CheckApart(dy, dx, "dy and dx"));
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  const Descs descs(p);
  Call call(handle, "cudnnB2BCausalConv1dBackward");
  call.Add(p);
  const Inputs in = {.x = call.Memory(descs.x, x),
                     .proj = call.Memory(descs.proj, weights_proj),
                     .mixer = call.Memory(descs.mixer, weights_mixer),
                     .skip = call.Memory(descs.skip, skip_bias)};
  const Operand out = call.Memory(descs.y, y), gradient = call.Memory(descs.y, dy);
  const Maker::Results results = {.dx = call.Memory(descs.x, dx),
                                  .dproj = SumIn(call, descs.dproj, dweights_proj),
                                  .dmixer = SumIn(call, descs.dmixer, dweights_mixer),
                                  .dskip = SumIn(call, descs.dskip, dskip_bias)};
  return call.Run(kFromSession, [&](CallGraph& g) -> Status {
    return Maker(g, p, descs).Backward(in, out, gradient, results);
  });
}

}  // namespace kiln::api::legacy
