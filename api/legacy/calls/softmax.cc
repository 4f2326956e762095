// cudnnSoftmaxForward and cudnnSoftmaxBackward. Reference 3.2.96 and 4.1.19.
//
//   FAST      e = exp(x),           y = e / sum(e)            dx = (dy - sum(dy * y)) * y
//   ACCURATE  e = exp(x - max(x)),  y = e / sum(e)            the same
//   LOG       d = x - max(x),       y = d - log(sum(exp(d)))  dx = dy - exp(y) * sum(dy)
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"

namespace kiln::api::legacy {
namespace {

using graph::PointwiseMode;
using graph::ReductionMode;
using graph::TensorId;

struct Kind {
  int32_t algorithm, mode;
};

Status CheckKind(const Kind& kind) {
  RETURN_IF_ERROR(CheckEnum(kind.algorithm, CUDNN_SOFTMAX_LOG, "cudnnSoftmaxAlgorithm_t"));
  return CheckEnum(kind.mode, CUDNN_SOFTMAX_MODE_CHANNEL, "cudnnSoftmaxMode_t");
}

Status CheckTensors(const TensorDesc& x, std::initializer_list<const TensorDesc*> others) {
  RETURN_IF_ERROR(CheckSet(x, "the tensor descriptor"));
  for (const TensorDesc* other : others) {
    RETURN_IF_ERROR(CheckSameDims(x, *other));
    RETURN_IF_ERROR(CheckSameType(x, *other));
  }
  return CheckFloat(x);
}

// Operations along what is normalised: the channels of a place, or all of an image.
class Rows {
 public:
  Rows(CallGraph& g, const Kind& kind, const TensorDesc& x) : g_(g), compute_(ComputeType(x)) {
    kept_.assign(x.dims.begin(), x.dims.begin() + x.rank);
    const bool instance = kind.mode == CUDNN_SOFTMAX_MODE_INSTANCE;
    std::fill(kept_.begin() + 1, instance ? kept_.end() : kept_.begin() + 2, 1);
  }
  // The sum of one element is the element.
  TensorId Sum(TensorId x) { return Reduce(ReductionMode::kAdd, x); }
  TensorId Largest(TensorId x) { return Reduce(ReductionMode::kMax, x); }
  TensorId Apply(PointwiseMode mode, std::vector<TensorId> inputs) {
    return g_.Pointwise(mode, std::move(inputs), compute_);
  }

 private:
  TensorId Reduce(ReductionMode mode, TensorId x) {
    if (g_.DimsOf(x) == kept_) return Apply(PointwiseMode::kIdentity, {x});
    return g_.builder().Reduction(mode, x, kept_, {.dtype = compute_, .compute = compute_});
  }

  CallGraph& g_;
  const DType compute_;
  Dims kept_;
};

TensorId Forward(CallGraph& g, const Kind& kind, const TensorDesc& desc, TensorId x) {
  Rows rows(g, kind, desc);
  if (kind.algorithm != CUDNN_SOFTMAX_FAST)
    x = rows.Apply(PointwiseMode::kSub, {x, rows.Largest(x)});
  const TensorId power = rows.Apply(PointwiseMode::kExp, {x}), sum = rows.Sum(power);
  if (kind.algorithm == CUDNN_SOFTMAX_LOG)
    return rows.Apply(PointwiseMode::kSub, {x, rows.Apply(PointwiseMode::kLog, {sum})});
  return rows.Apply(PointwiseMode::kDiv, {power, sum});
}

TensorId Backward(CallGraph& g, const Kind& kind, const TensorDesc& desc, TensorId y, TensorId dy) {
  Rows rows(g, kind, desc);
  if (kind.algorithm == CUDNN_SOFTMAX_LOG) {
    const TensorId power = rows.Apply(PointwiseMode::kExp, {y});
    return rows.Apply(PointwiseMode::kSub,
                      {dy, rows.Apply(PointwiseMode::kMul, {power, rows.Sum(dy)})});
  }
  const TensorId sum = rows.Sum(rows.Apply(PointwiseMode::kMul, {dy, y}));
  return rows.Apply(PointwiseMode::kMul, {rows.Apply(PointwiseMode::kSub, {dy, sum}), y});
}

}  // namespace

Status SoftmaxForward(void* handle, int algorithm, int mode, const void* alpha, void* x_desc,
                      const void* x, const void* beta, void* y_desc, void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* to, Get<TensorDesc>(y_desc));
  RETURN_IF_ERROR(CheckInPlace(x, *from, y, *to));
  const Kind kind = {.algorithm = algorithm, .mode = mode};
  Call call(*h, "cudnnSoftmaxForward");
  call.Add(kind);
  const Operand input = call.Memory(*from, x), output = call.Memory(*to, y);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckKind(kind));
    RETURN_IF_ERROR(CheckTensors(*from, {to}));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    return g.Write(Forward(g, kind, *from, value), output, blend);
  });
}

Status SoftmaxBackward(void* handle, int algorithm, int mode, const void* alpha, void* y_desc,
                       const void* y, void* dy_desc, const void* dy, const void* beta,
                       void* dx_desc, void* dx) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorDesc* yd, Get<TensorDesc>(y_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dyd, Get<TensorDesc>(dy_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dxd, Get<TensorDesc>(dx_desc));
  RETURN_IF_ERROR(CheckInPlace(dy, *dyd, dx, *dxd));
  const Kind kind = {.algorithm = algorithm, .mode = mode};
  Call call(*h, "cudnnSoftmaxBackward");
  call.Add(kind);
  const Operand result = call.Memory(*yd, y), gradient = call.Memory(*dyd, dy);
  const Operand output = call.Memory(*dxd, dx);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckKind(kind));
    RETURN_IF_ERROR(CheckTensors(*yd, {dyd, dxd}));
    RETURN_IF_ERROR(CheckSameStrides(*yd, *dyd));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(result));
    ASSIGN_OR_RETURN(const TensorId grad, g.Read(gradient));
    return g.Write(Backward(g, kind, *yd, value, grad), output, blend);
  });
}

}  // namespace kiln::api::legacy
