// cudnnTransformTensor, cudnnTransformTensorEx, cudnnAddTensor, cudnnOpTensor, cudnnScaleTensor and
// cudnnSetTensor. Reference 3.2.2, 3.2.68, 3.2.75, 3.2.90, 3.2.100 and 3.2.101.
#include <algorithm>
#include <limits>

#include "api/legacy/descriptors/modes.h"
#include "api/legacy/descriptors/transform.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::TensorId;

constexpr int kMostDims = 5;

Status CheckRank(const TensorDesc& tensor) {
  if (tensor.rank <= kMostDims) return {};
  return Status::Error(Code::kNotSupported, "{} dims; up to {} are possible", tensor.rank,
                       kMostDims);
}

// Each extent that of c, or 1.
Status CheckBroadcast(const TensorDesc& a, const TensorDesc& c) {
  bool fits = a.rank == c.rank;
  for (size_t d = 0; fits && d < static_cast<size_t>(c.rank); ++d)
    fits = a.dims[d] == c.dims[d] || a.dims[d] == 1;
  if (fits) return {};
  return Status::Error(Code::kBadParam, "the extents of {} are not 1 or those of {}", Text(a),
                       Text(c));
}

// ---- cudnnOpTensor

struct OpTensorTypes {
  int compute, a, b, c;
};
// Table 7 of the reference.
constexpr OpTensorTypes kOpTensorTypes[] = {
    {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_INT8, CUDNN_DATA_INT8, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_HALF},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_DATA_HALF},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_INT8, CUDNN_DATA_INT8, CUDNN_DATA_INT8},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_INT8},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_BFLOAT16, CUDNN_DATA_BFLOAT16},
};

Status CheckTypes(const OpTensorDesc& op, const TensorDesc& a, const TensorDesc& b,
                  const TensorDesc& c) {
  bool computes = false;
  for (const OpTensorTypes& row : kOpTensorTypes) {
    if (row.a != a.type || row.b != b.type || row.c != c.type) continue;
    computes = true;
    if (row.compute == op.compute) return {};
  }
  return Status::Error(computes ? Code::kNotSupported : Code::kBadParam,
                       "types of A, B, C and of the computation: {}, {}, {} and {}", a.type, b.type,
                       c.type, op.compute);
}

bool IsUnary(int op) { return op == CUDNN_OP_TENSOR_SQRT || op == CUDNN_OP_TENSOR_NOT; }

// NOT is 1 - a.
TensorId Apply(CallGraph& g, const OpTensorDesc& op, TensorId a, TensorId b, DType compute) {
  graph::PointwiseAttrs attrs{.propagate_nan = op.nan == CUDNN_PROPAGATE_NAN};
  switch (op.op) {
    case CUDNN_OP_TENSOR_ADD:
      attrs.mode = PointwiseMode::kAdd;
      break;
    case CUDNN_OP_TENSOR_MUL:
      attrs.mode = PointwiseMode::kMul;
      break;
    case CUDNN_OP_TENSOR_MIN:
      attrs.mode = PointwiseMode::kMin;
      break;
    case CUDNN_OP_TENSOR_MAX:
      attrs.mode = PointwiseMode::kMax;
      break;
    case CUDNN_OP_TENSOR_SQRT:
      attrs.mode = PointwiseMode::kSqrt;
      break;
    default:
      attrs.mode = PointwiseMode::kSub;
      b = std::exchange(a, g.Constant(1, static_cast<int64_t>(g.DimsOf(a).size()), compute));
  }
  if (op.op == CUDNN_OP_TENSOR_SQRT) return g.Pointwise(attrs, {a}, compute);
  return g.Pointwise(attrs, {a, b}, compute);
}

// ---- cudnnTransformTensor

// INT8, INT8x4 and INT8x32 are one type in other layouts.
Status CheckSameElements(const TensorDesc& x, const TensorDesc& y) {
  RETURN_IF_ERROR(CheckSameDims(x, y));
  ASSIGN_OR_RETURN(const DType type, ElementType(x.type));
  ASSIGN_OR_RETURN(const DType other, ElementType(y.type));
  if (type == other) return {};
  return CheckSameType(x, y);
}

Status Transform(Handle& handle, const char* function, const void* alpha, const TensorDesc& x_desc,
                 const void* x, const void* beta, const TensorDesc& y_desc, void* y) {
  Call call(handle, function);
  const Operand from = call.Memory(x_desc, x), to = call.Memory(y_desc, y);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, to));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckSameElements(x_desc, y_desc));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(from));
    return g.Write(value, to, blend);
  });
}

}  // namespace

Status TransformTensor(void* handle, const void* alpha, void* x_desc, const void* x,
                       const void* beta, void* y_desc, void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* to, Get<TensorDesc>(y_desc));
  return Transform(*h, "cudnnTransformTensor", alpha, *from, x, beta, *to, y);
}

Status AddTensor(void* handle, const void* alpha, void* a_desc, const void* a, const void* beta,
                 void* c_desc, void* c) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(a_desc));
  ASSIGN_OR_RETURN(const TensorDesc* to, Get<TensorDesc>(c_desc));
  Call call(*h, "cudnnAddTensor");
  const Operand x = call.Memory(*from, a), y = call.Memory(*to, c);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, y));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckRank(*to));
    RETURN_IF_ERROR(CheckSameType(*from, *to));
    RETURN_IF_ERROR(CheckBroadcast(*from, *to));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(x));
    return g.WriteBroadcast(value, y, blend);
  });
}

Status OpTensor(void* handle, void* op_desc, const void* alpha1, void* a_desc, const void* a,
                const void* alpha2, void* b_desc, const void* b, const void* beta, void* c_desc,
                void* c) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const OpTensorDesc* op, Get<OpTensorDesc>(op_desc));
  ASSIGN_OR_RETURN(const TensorDesc* ad, Get<TensorDesc>(a_desc));
  ASSIGN_OR_RETURN(const TensorDesc* cd, Get<TensorDesc>(c_desc));
  // An operation on A alone takes A for B, so that B need not be there.
  const TensorDesc* bd = ad;
  if (!IsUnary(op->op)) {
    ASSIGN_OR_RETURN(bd, Get<TensorDesc>(b_desc));
    RETURN_IF_ERROR(NotNull(b, "B"));
  }
  Call call(*h, "cudnnOpTensor");
  call.Add(*op);
  const Operand x = call.Memory(*ad, a), y = call.Memory(*cd, c);
  const Operand w = IsUnary(op->op) ? x : call.Memory(*bd, b);
  ASSIGN_OR_RETURN(const Scalar first, call.Factor(alpha1, *cd, 1, "alpha1"));
  Scalar second;
  if (!IsUnary(op->op)) {
    ASSIGN_OR_RETURN(second, call.Factor(alpha2, *cd, 1, "alpha2"));
  }
  static constexpr double kOne = 1;
  static constexpr float kOneF = 1;
  const void* const one =
      ComputeType(*cd) == DType::kF64 ? static_cast<const void*>(&kOne) : &kOneF;
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(one, beta, y));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckRank(*cd));
    RETURN_IF_ERROR(CheckTypes(*op, *ad, *bd, *cd));
    RETURN_IF_ERROR(CheckSameDims(*ad, *cd));
    RETURN_IF_ERROR(CheckBroadcast(*bd, *cd));
    const DType compute = ComputeType(*cd);
    const auto read = [&](const Operand& operand, const Scalar& factor) -> Result<TensorId> {
      ASSIGN_OR_RETURN(const TensorId value, g.Read(operand));
      if (factor.slot < 0) return value;
      return g.Pointwise(PointwiseMode::kMul, {value, g.Read(factor, cd->rank)}, compute);
    };
    ASSIGN_OR_RETURN(const TensorId left, read(x, first));
    TensorId right = left;
    if (!IsUnary(op->op)) {
      ASSIGN_OR_RETURN(right, read(w, second));
    }
    return g.Write(Apply(g, *op, left, right, compute), y, blend);
  });
}

Status ScaleTensor(void* handle, void* y_desc, void* y, const void* alpha) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorDesc* desc, Get<TensorDesc>(y_desc));
  Call call(*h, "cudnnScaleTensor");
  const Operand before = call.Memory(*desc, y), after = call.Memory(*desc, y);
  Blend blend;
  ASSIGN_OR_RETURN(blend.alpha,
                   call.Factor(alpha, *desc, std::numeric_limits<double>::quiet_NaN(), "alpha"));
  return call.Run({}, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const TensorId value, g.Read(before));
    return g.Write(value, after, blend);
  });
}

Status SetTensor(void* handle, void* y_desc, void* y, const void* value) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorDesc* desc, Get<TensorDesc>(y_desc));
  Call call(*h, "cudnnSetTensor");
  const Operand memory = call.Memory(*desc, y);
  ASSIGN_OR_RETURN(const Scalar scalar, call.Value(value, *desc));
  return call.Run({}, [&](CallGraph& g) -> Status {
    if (desc->vector > 1)
      return Status::Error(Code::kNotSupported, "{}: one value for each place of a vector",
                           Text(*desc));
    return g.WriteBroadcast(g.Read(scalar, desc->rank), memory, {});
  });
}

}  // namespace kiln::api::legacy
