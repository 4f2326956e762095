// cudnnActivationForward and cudnnActivationBackward. Reference 3.2.1 and 4.1.1.
#include "api/legacy/descriptors/modes.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"

namespace kiln::api::legacy {
namespace {

using graph::PointwiseAttrs;
using graph::PointwiseMode;
using graph::TensorId;

struct ModeRow {
  PointwiseMode forward, backward;
};
// The modes by cudnnActivationMode_t.
constexpr ModeRow kModes[] = {
    {PointwiseMode::kSigmoidFwd, PointwiseMode::kSigmoidBwd},
    {PointwiseMode::kReluFwd, PointwiseMode::kReluBwd},
    {PointwiseMode::kTanhFwd, PointwiseMode::kTanhBwd},
    {PointwiseMode::kReluFwd, PointwiseMode::kReluBwd},  // clipped
    {PointwiseMode::kEluFwd, PointwiseMode::kEluBwd},
    {PointwiseMode::kIdentity, PointwiseMode::kIdentity},
    {PointwiseMode::kSwishFwd, PointwiseMode::kSwishBwd},
};
static_assert(std::size(kModes) == CUDNN_ACTIVATION_SWISH + 1);

PointwiseAttrs AttrsOf(const ActivationDesc& activation, bool forward) {
  const ModeRow& row = kModes[activation.mode];
  PointwiseAttrs attrs{.mode = forward ? row.forward : row.backward,
                       .propagate_nan = activation.nan == CUDNN_PROPAGATE_NAN};
  if (activation.mode == CUDNN_ACTIVATION_CLIPPED_RELU) attrs.relu_upper = activation.coefficient;
  if (activation.mode == CUDNN_ACTIVATION_ELU) attrs.elu_alpha = activation.coefficient;
  if (activation.mode == CUDNN_ACTIVATION_SWISH) attrs.swish_beta = activation.swish_beta;
  return attrs;
}

// The reference has the identity for cudnnConvolutionBiasActivationForward alone.
Status CheckMode(const ActivationDesc& activation) {
  if (activation.mode != CUDNN_ACTIVATION_IDENTITY) return {};
  return Status::Text(Code::kBadParam, "CUDNN_ACTIVATION_IDENTITY is no activation by itself");
}

// dy times the derivative. Sigmoid, tanh and ELU have theirs by y, as clients that compute forward
// in place have no x: x is then y.
TensorId Gradient(CallGraph& g, const ActivationDesc& activation, TensorId x, TensorId y,
                  TensorId dy, DType compute) {
  const auto rank = static_cast<int64_t>(g.DimsOf(x).size());
  const auto apply = [&](PointwiseMode mode, TensorId left, TensorId right) {
    return g.Pointwise(mode, {left, right}, compute);
  };
  switch (activation.mode) {
    case CUDNN_ACTIVATION_SIGMOID: {
      const TensorId rest = apply(PointwiseMode::kSub, g.Constant(1, rank, compute), y);
      return apply(PointwiseMode::kMul, dy, apply(PointwiseMode::kMul, y, rest));
    }
    case CUDNN_ACTIVATION_TANH: {
      const TensorId square = apply(PointwiseMode::kMul, y, y);
      return apply(PointwiseMode::kMul, dy,
                   apply(PointwiseMode::kSub, g.Constant(1, rank, compute), square));
    }
    case CUDNN_ACTIVATION_ELU: {
      const TensorId alpha = g.Constant(activation.coefficient, rank, compute);
      const TensorId below = apply(PointwiseMode::kMul, dy, apply(PointwiseMode::kAdd, y, alpha));
      // y has the sign of x, so that x need not be read, unless what is below zero was turned over.
      const TensorId signs = activation.coefficient >= 0 ? y : x;
      const TensorId is_above =
          g.builder().Apply(graph::GraphOp::kPointwise, {signs, g.Constant(0, rank, compute)},
                            PointwiseAttrs{.mode = PointwiseMode::kCmpGt},
                            {.dtype = DType::kBool, .compute = compute});
      return g.Pointwise(PointwiseMode::kBinarySelect, {dy, below, is_above}, compute);
    }
    default:
      return g.Pointwise(AttrsOf(activation, false), {dy, x}, compute);
  }
}

// Gradients of these are functions of y; of the others, of x. The other tensor may be NULL.
bool ReadsResult(int mode) {
  return mode == CUDNN_ACTIVATION_SIGMOID || mode == CUDNN_ACTIVATION_TANH ||
         mode == CUDNN_ACTIVATION_ELU;
}

}  // namespace

Status ActivationForward(void* handle, void* activation_desc, const void* alpha, void* x_desc,
                         const void* x, const void* beta, void* y_desc, void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ActivationDesc* activation, Get<ActivationDesc>(activation_desc));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* to, Get<TensorDesc>(y_desc));
  RETURN_IF_ERROR(CheckInPlace(x, *from, y, *to));
  Call call(*h, "cudnnActivationForward");
  call.Add(*activation);
  const Operand input = call.Memory(*from, x), output = call.Memory(*to, y);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckMode(*activation));
    RETURN_IF_ERROR(CheckSameDims(*from, *to));
    RETURN_IF_ERROR(CheckSameType(*from, *to));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    return g.Write(g.Pointwise(AttrsOf(*activation, true), {value}, ComputeType(*from)), output,
                   blend);
  });
}

Status ActivationBackward(void* handle, void* activation_desc, const void* alpha, void* y_desc,
                          const void* y, void* dy_desc, const void* dy, void* x_desc, const void* x,
                          const void* beta, void* dx_desc, void* dx) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ActivationDesc* activation, Get<ActivationDesc>(activation_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dyd, Get<TensorDesc>(dy_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dxd, Get<TensorDesc>(dx_desc));
  const bool reads_y = ReadsResult(activation->mode);
  ASSIGN_OR_RETURN(const TensorDesc* yd, GetOr(y_desc, reads_y ? nullptr : dyd));
  ASSIGN_OR_RETURN(const TensorDesc* xd, GetOr(x_desc, reads_y ? dxd : nullptr));
  RETURN_IF_ERROR(NotNull(reads_y ? y : x, reads_y ? "y" : "x"));
  RETURN_IF_ERROR(CheckInPlace(dy, *dyd, dx, *dxd));
  Call call(*h, "cudnnActivationBackward");
  call.Add(*activation);
  const Operand oy = call.Memory(*yd, y), ody = call.Memory(*dyd, dy);
  const Operand ox = call.Memory(*xd, x), odx = call.Memory(*dxd, dx);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, odx));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckMode(*activation));
    for (const TensorDesc* other : {yd, dyd, dxd}) {
      RETURN_IF_ERROR(AsNotSupported(CheckSameDims(*xd, *other)));
      RETURN_IF_ERROR(AsNotSupported(CheckSameType(*xd, *other)));
    }
    RETURN_IF_ERROR(AsNotSupported(CheckSameStrides(*xd, *dxd)));
    RETURN_IF_ERROR(AsNotSupported(CheckSameStrides(*yd, *dyd)));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(ox));
    ASSIGN_OR_RETURN(const TensorId result, g.Read(oy));
    ASSIGN_OR_RETURN(const TensorId gradient, g.Read(ody));
    return g.Write(Gradient(g, *activation, value, result, gradient, ComputeType(*xd)), odx, blend);
  });
}

}  // namespace kiln::api::legacy
