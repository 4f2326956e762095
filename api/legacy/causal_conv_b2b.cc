// cudnnB2BCausalConv1d{Forward,Backward} of cudnn_subquadratic_ops.h (9.26): a short filter on each
// of the three channels of a dim, a gate, a longer filter, and a second gate, as the blocks of Hyena
// have them.
//
//   p0, p1, p2 = causal(x[:,:,i], weightsProj[:,i])        g = p1 p2
//   y = causal(g, weightsMixer) + skipBias g               yGated = y p0
//
// A client of the graph's depthwise convolution (causal_conv.cc has its sum). The three channels of
// x, and of what belongs to them, are operands of their own, 3 rows apart in one memory. What lies
// between is kept in f32 (f64), so that nothing is rounded to the type of the tensors but y. Backward
// reads y for the gradient of p0, makes the rest again, and adds the gradients of filters and bias to
// what their memory holds.
//
// Of B, D, L places: 2 (3 Kp + Km) + 4 flops each, thrice as many backward. x, y and yGated are 5
// elements a place; p0, p1 and g go through memory in f32 beside them, as Kiln's convolutions are
// kernels of their own.
#include "api/legacy/causal_conv.h"
#include "api/legacy/functions.h"

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

// ---- tensors, [batch,dim,length], [dim,1,taps] and [1,dim,1]

TensorDesc ImageDesc(const Problem& p, int32_t parts = 1) {
  TensorDesc desc = {.type = p.type, .rank = 3};
  desc.dims = {p.batch, p.dim, p.length};
  desc.strides = {parts * p.dim * p.length, parts * p.length, 1};
  return desc;
}

TensorDesc FilterDescOf(const Problem& p, int32_t type, int32_t taps, int32_t parts = 1) {
  TensorDesc desc = {.type = type, .rank = 3};
  desc.dims = {p.dim, 1, taps};
  desc.strides = {parts * taps, taps, 1};
  return desc;
}

TensorDesc SkipDesc(const Problem& p, int32_t type) {
  TensorDesc desc = {.type = type, .rank = 3};
  desc.dims = {1, p.dim, 1};
  desc.strides = {p.dim, 1, 1};
  return desc;
}

struct Descs {
  explicit Descs(const Problem& p)
      : x(ImageDesc(p, kParts)),
        y(ImageDesc(p)),
        proj(FilterDescOf(p, p.type, p.proj_taps, kParts)),
        mixer(FilterDescOf(p, p.type, p.mixer_taps)),
        skip(SkipDesc(p, p.type)),
        dproj(FilterDescOf(p, p.gradient_type, p.proj_taps, kParts)),
        dmixer(FilterDescOf(p, p.gradient_type, p.mixer_taps)),
        dskip(SkipDesc(p, p.gradient_type)) {}
  TensorDesc x, y, proj, mixer, skip, dproj, dmixer, dskip;
};

// Where part i begins, whose rows of `row` elements lie beside those of the others.
const void* PartOf(const void* memory, int part, int32_t row, int32_t type) {
  return static_cast<const char*>(memory) + int64_t{part} * row * ElementBytes(type);
}

// ---- graphs

struct Pointers {
  const void *x, *proj, *mixer, *skip;
};

struct Inputs {
  std::array<Operand, kParts> x, proj;
  Operand mixer, skip;
};

Inputs AddInputs(Call& call, const Problem& p, const Descs& descs, const Pointers& at) {
  Inputs in;
  for (int i = 0; i < kParts; ++i) {
    const auto part = static_cast<size_t>(i);
    in.x[part] = call.Memory(descs.x, PartOf(at.x, i, p.length, p.type));
    in.proj[part] = call.Memory(descs.proj, PartOf(at.proj, i, p.proj_taps, p.type));
  }
  in.mixer = call.Memory(descs.mixer, at.mixer);
  in.skip = call.Memory(descs.skip, at.skip);
  return in;
}

// What forward and backward make of x, in the compute type.
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

  Result<Gates> MakeGates(const Inputs& in) {
    Gates gates;
    for (size_t i = 0; i < kParts; ++i) {
      ASSIGN_OR_RETURN(const TensorId x, g_.Read(in.x[i]));
      ASSIGN_OR_RETURN(const TensorId w, g_.Read(in.proj[i]));
      gates.p[i] = Convolve(g_, GraphOp::kConvFprop, {.taps = p_.proj_taps}, {x, w}, descs_.y);
    }
    gates.product = Times(gates.p[1], gates.p[2]);
    return gates;
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
    std::array<Operand, kParts> dx;
    std::array<Sum, kParts> dproj;
    Sum dmixer, dskip;
  };

  Status Backward(const Inputs& in, const Operand& y, const Operand& dy, const Results& out) {
    ASSIGN_OR_RETURN(const Gates gates, MakeGates(in));
    ASSIGN_OR_RETURN(const TensorId mixer, g_.Read(in.mixer));
    ASSIGN_OR_RETURN(const TensorId skip, g_.Read(in.skip));
    ASSIGN_OR_RETURN(const TensorId before_gate, g_.Read(y));
    ASSIGN_OR_RETURN(const TensorId gated, g_.Read(dy));
    const TensorId sum = Times(gated, gates.p[0]);  // the gradient of y
    const Taps taps = {.taps = p_.mixer_taps};
    const TensorId product = Plus(Convolve(g_, GraphOp::kConvDgrad, taps, {sum, mixer}, descs_.y),
                                  Times(sum, skip));
    RETURN_IF_ERROR(AddTo(
        g_, out.dmixer,
        Convolve(g_, GraphOp::kConvWgrad, taps, {gates.product, sum}, descs_.mixer)));
    RETURN_IF_ERROR(AddTo(g_, out.dskip,
                          g_.builder().Reduction(graph::ReductionMode::kAdd,
                                                 Times(sum, gates.product), DimsOf(descs_.skip),
                                                 {.dtype = compute_, .compute = compute_})));
    const std::array<TensorId, kParts> of_parts = {Times(gated, before_gate),
                                                   Times(product, gates.p[2]),
                                                   Times(product, gates.p[1])};
    for (size_t i = 0; i < kParts; ++i)
      RETURN_IF_ERROR(Project(in.x[i], in.proj[i], of_parts[i], out.dx[i], out.dproj[i]));
    return {};
  }

 private:
  TensorId Times(TensorId a, TensorId b) {
    return g_.Pointwise(PointwiseMode::kMul, {a, b}, compute_);
  }
  TensorId Plus(TensorId a, TensorId b) {
    return g_.Pointwise(PointwiseMode::kAdd, {a, b}, compute_);
  }
  Status Project(const Operand& of_x, const Operand& of_w, TensorId gradient, const Operand& dx,
                 const Sum& dw) {
    const Taps taps = {.taps = p_.proj_taps};
    ASSIGN_OR_RETURN(const TensorId x, g_.Read(of_x));
    ASSIGN_OR_RETURN(const TensorId w, g_.Read(of_w));
    RETURN_IF_ERROR(
        g_.Write(Convolve(g_, GraphOp::kConvDgrad, taps, {gradient, w}, descs_.y), dx));
    return AddTo(g_, dw, Convolve(g_, GraphOp::kConvWgrad, taps, {x, gradient},
                                  FilterDescOf(p_, p_.type, p_.proj_taps)));
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
                              void* y_gated, int batch, int dim, int seq_len,
                              int kernel_size_proj, int kernel_size_mixer, int type) {
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
  const Inputs in = AddInputs(
      call, p, descs, {.x = x, .proj = weights_proj, .mixer = weights_mixer, .skip = skip_bias});
  const Operand out = call.Memory(descs.y, y), gated = call.Memory(descs.y, y_gated);
  return call.Run(kLent, [&](CallGraph& g) -> Status {
    return Maker(g, p, descs).Forward(in, out, gated);
  });
}

Status B2BCausalConv1dBackward(void* stream, const void* x, const void* weights_proj,
                               const void* weights_mixer, const void* skip_bias, const void* y,
                               const void* dy, void* dx, void* dweights_proj, void* dweights_mixer,
                               void* dskip_bias, int batch, int dim, int seq_len,
                               int kernel_size_proj, int kernel_size_mixer, int type,
                               int gradient_type) {
  const Problem p = {batch,         dim, seq_len, kernel_size_proj, kernel_size_mixer, type,
                     gradient_type};
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
  const Inputs in = AddInputs(
      call, p, descs, {.x = x, .proj = weights_proj, .mixer = weights_mixer, .skip = skip_bias});
  const Operand out = call.Memory(descs.y, y), gradient = call.Memory(descs.y, dy);
  Maker::Results results;
  for (int i = 0; i < kParts; ++i) {
    const auto part = static_cast<size_t>(i);
    results.dx[part] = call.Memory(descs.x, PartOf(dx, i, p.length, p.type));
    results.dproj[part] =
        SumIn(call, descs.dproj, PartOf(dweights_proj, i, p.proj_taps, p.gradient_type));
  }
  results.dmixer = SumIn(call, descs.dmixer, dweights_mixer);
  results.dskip = SumIn(call, descs.dskip, dskip_bias);
  return call.Run(kLent, [&](CallGraph& g) -> Status {
    return Maker(g, p, descs).Backward(in, out, gradient, results);
  });
}

}  // namespace kiln::api::legacy
