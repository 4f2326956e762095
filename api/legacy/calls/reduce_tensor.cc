// cudnnReduceTensor with its two questions about sizes. Reference 3.2.56, 3.2.57 and 3.2.71.
#include <algorithm>
#include <limits>

#include "api/legacy/descriptors/modes.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::ReductionMode;
using graph::TensorId;

constexpr const char* kFunction = "cudnnReduceTensor";  // of the sizes too: they speak of its plan

bool IsExtreme(int op) {
  return op == CUDNN_REDUCE_TENSOR_MIN || op == CUDNN_REDUCE_TENSOR_MAX ||
         op == CUDNN_REDUCE_TENSOR_AMAX;
}

bool WantsIndices(const ReduceTensorDesc& reduce) {
  return reduce.indices == CUDNN_REDUCE_TENSOR_FLATTENED_INDICES;
}

Status CheckShapes(const TensorDesc& a, const TensorDesc& c) {
  bool fits = a.rank == c.rank && a.rank > 0, reduces = false;
  for (size_t d = 0; fits && d < static_cast<size_t>(a.rank); ++d) {
    fits = c.dims[d] == a.dims[d] || c.dims[d] == 1;
    reduces |= c.dims[d] != a.dims[d];
  }
  if (fits && reduces) return {};
  return Status::Error(Code::kBadParam,
                       "{} is no reduction of {}: extents are kept or 1, and one "
                       "is 1 at least",
                       Text(c), Text(a));
}

Status CheckTypes(const ReduceTensorDesc& reduce, const TensorDesc& a, const TensorDesc& c) {
  const bool doubles = a.type == CUDNN_DATA_DOUBLE;
  if (doubles != (c.type == CUDNN_DATA_DOUBLE))
    return Status::Error(Code::kBadParam, "{} and {}: doubles do not mix", Text(a), Text(c));
  const int wanted = doubles ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  if (reduce.compute == wanted) return {};
  return Status::Error(Code::kNotSupported, "{} and {} are reduced in {}", Text(a), Text(c),
                       doubles ? "DOUBLE" : "FLOAT");
}

Status CheckIndices(const ReduceTensorDesc& reduce) {
  if (!WantsIndices(reduce)) return {};
  if (!IsExtreme(reduce.op))
    return Status::Error(Code::kBadParam, "reduction {} has no indices; MIN, MAX and AMAX have",
                         reduce.op);
  if (reduce.index_type != CUDNN_32BIT_INDICES)
    return Status::Text(Code::kNotSupported, "indices are of 32 bits");
  return {};
}

Status Check(const ReduceTensorDesc& reduce, const TensorDesc& a, const TensorDesc& c) {
  RETURN_IF_ERROR(CheckShapes(a, c));
  RETURN_IF_ERROR(CheckTypes(reduce, a, c));
  return CheckIndices(reduce);
}

// A place for each element of c, packed.
Result<TensorDesc> IndicesOf(const TensorDesc& c) {
  TensorDesc indices;
  RETURN_IF_ERROR(SetPackedTensor(indices, CUDNN_TENSOR_NCHW, CUDNN_DATA_INT32,
                                  std::span(c.dims).first(static_cast<size_t>(c.rank))));
  return indices;
}

// NaN where an element that is reduced is one, else 0.
TensorId NanOf(CallGraph& g, TensorId x, TensorId is_nan, const Dims& dims, DType compute) {
  const TensorId zero = g.Constant(0, static_cast<int64_t>(dims.size()), compute);
  const TensorId nans = g.Pointwise(PointwiseMode::kBinarySelect, {x, zero, is_nan}, compute);
  return g.builder().Reduction(ReductionMode::kAdd, nans, dims,
                               {.dtype = compute, .compute = compute});
}

// The row-major number of each element among those that are reduced to one.
TensorId PlacesOf(CallGraph& g, const Dims& x, const Dims& y) {
  constexpr DType kType = DType::kI32;
  const auto rank = static_cast<int64_t>(x.size());
  TensorId places = graph::kAbsent;
  int64_t stride = 1;
  for (size_t d = x.size(); d-- > 0;) {
    if (x[d] == y[d]) continue;
    TensorId place =
        g.builder().Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = static_cast<int64_t>(d)},
                          {.dtype = kType, .compute = kType, .dims = x});
    if (stride != 1)
      place = g.Pointwise(PointwiseMode::kMul,
                          {place, g.Constant(static_cast<double>(stride), rank, kType)}, kType);
    places =
        places == graph::kAbsent ? place : g.Pointwise(PointwiseMode::kAdd, {places, place}, kType);
    stride *= x[d];
  }
  return places;
}

// The first element that is the extreme, or the first NaN where those propagate; 0 where there is
// neither.
TensorId FirstOf(CallGraph& g, TensorId is_extreme, const Dims& x, const Dims& y) {
  constexpr DType kType = DType::kI32;
  const auto rank = static_cast<int64_t>(x.size());
  const TensorId none = g.Constant(std::numeric_limits<int32_t>::max(), rank, kType);
  const TensorId candidates =
      g.Pointwise(PointwiseMode::kBinarySelect, {PlacesOf(g, x, y), none, is_extreme}, kType);
  const TensorId first =
      g.builder().Reduction(ReductionMode::kMin, candidates, y, {.dtype = kType, .compute = kType});
  const TensorId is_none = g.builder().Apply(GraphOp::kPointwise, {first, none},
                                             graph::PointwiseAttrs{.mode = PointwiseMode::kCmpEq},
                                             {.dtype = DType::kBool, .compute = kType});
  return g.Pointwise(PointwiseMode::kBinarySelect, {g.Constant(0, rank, kType), first, is_none},
                     kType);
}

struct Operands {
  Operand a, c, indices;
  Blend blend;
};

Status MakeReduction(CallGraph& g, const ReduceTensorDesc& reduce, const Operands& o) {
  RETURN_IF_ERROR(Check(reduce, *o.a.desc, *o.c.desc));
  const DType compute = ComputeType(*o.a.desc);
  ASSIGN_OR_RETURN(TensorId x, g.Read(o.a));
  const Dims from = g.DimsOf(x),
             to(o.c.desc->dims.begin(), o.c.desc->dims.begin() + o.c.desc->rank);
  const bool propagates = IsExtreme(reduce.op) && reduce.nan == CUDNN_PROPAGATE_NAN;
  const auto compare = [&](PointwiseMode mode, TensorId left, TensorId right) {
    return g.builder().Apply(GraphOp::kPointwise, {left, right},
                             graph::PointwiseAttrs{.mode = mode},
                             {.dtype = DType::kBool, .compute = compute});
  };
  TensorId y = g.builder().Reduction(static_cast<ReductionMode>(reduce.op), x, to,
                                     {.dtype = compute, .compute = compute});
  TensorId is_nan = graph::kAbsent;
  if (propagates) {
    is_nan = compare(PointwiseMode::kCmpNeq, x, x);
    y = g.Pointwise(PointwiseMode::kAdd, {y, NanOf(g, x, is_nan, to, compute)}, compute);
  }
  if (WantsIndices(reduce)) {
    if (reduce.op == CUDNN_REDUCE_TENSOR_AMAX) x = g.Pointwise(PointwiseMode::kAbs, {x}, compute);
    TensorId is_extreme = compare(PointwiseMode::kCmpEq, x, y);
    if (propagates)
      is_extreme = g.builder().Apply(GraphOp::kPointwise, {is_extreme, is_nan},
                                     graph::PointwiseAttrs{.mode = PointwiseMode::kLogicalOr},
                                     {.dtype = DType::kBool, .compute = DType::kBool});
    RETURN_IF_ERROR(g.Write(FirstOf(g, is_extreme, from, to), o.indices));
  }
  return g.Write(y, o.c, o.blend);
}

}  // namespace

// The handle is not looked at, nor tensors where no indices are wanted.
Status GetReductionIndicesSize(void*, void* reduce_desc, void* a_desc, void* c_desc,
                               size_t* bytes) {
  ASSIGN_OR_RETURN(const ReduceTensorDesc* reduce, Get<ReduceTensorDesc>(reduce_desc));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  if (!WantsIndices(*reduce) && (a_desc == nullptr || c_desc == nullptr)) {
    *bytes = 0;
    return {};
  }
  ASSIGN_OR_RETURN(const TensorDesc* a, Get<TensorDesc>(a_desc));
  ASSIGN_OR_RETURN(const TensorDesc* c, Get<TensorDesc>(c_desc));
  RETURN_IF_ERROR(Check(*reduce, *a, *c));
  ASSIGN_OR_RETURN(const TensorDesc indices, IndicesOf(*c));
  *bytes = WantsIndices(*reduce) ? static_cast<size_t>(Span(indices)) * sizeof(int32_t) : 0;
  return {};
}

Status GetReductionWorkspaceSize(void* handle, void* reduce_desc, void* a_desc, void* c_desc,
                                 size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ReduceTensorDesc* reduce, Get<ReduceTensorDesc>(reduce_desc));
  ASSIGN_OR_RETURN(const TensorDesc* a, Get<TensorDesc>(a_desc));
  ASSIGN_OR_RETURN(const TensorDesc* c, Get<TensorDesc>(c_desc));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  RETURN_IF_ERROR(Check(*reduce, *a, *c));
  ASSIGN_OR_RETURN(const TensorDesc places, IndicesOf(*c));
  // As the call with factors that count: those of 1 and 0 need no more.
  static constexpr double kTwo = 2;
  static constexpr float kTwoF = 2;
  const void* const two = ComputeType(*c) == DType::kF64 ? static_cast<const void*>(&kTwo) : &kTwoF;
  Call call(*h, kFunction);
  call.Add(*reduce);
  Operands o = {.a = call.Memory(*a), .c = call.Memory(*c)};
  if (WantsIndices(*reduce)) o.indices = call.Memory(places);
  ASSIGN_OR_RETURN(o.blend, call.Scaling(two, two, o.c));
  ASSIGN_OR_RETURN(const int64_t wanted,
                   call.WorkspaceBytes([&](CallGraph& g) { return MakeReduction(g, *reduce, o); }));
  *bytes = static_cast<size_t>(wanted);
  return {};
}

Status ReduceTensor(void* handle, void* reduce_desc, void* indices, size_t indices_bytes,
                    void* workspace, size_t workspace_bytes, const void* alpha, void* a_desc,
                    const void* a, const void* beta, void* c_desc, void* c) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ReduceTensorDesc* reduce, Get<ReduceTensorDesc>(reduce_desc));
  ASSIGN_OR_RETURN(const TensorDesc* ad, Get<TensorDesc>(a_desc));
  ASSIGN_OR_RETURN(const TensorDesc* cd, Get<TensorDesc>(c_desc));
  Call call(*h, kFunction);
  call.Add(*reduce);
  Operands o = {.a = call.Memory(*ad, a), .c = call.Memory(*cd, c)};
  TensorDesc places;
  if (WantsIndices(*reduce)) {
    RETURN_IF_ERROR(Check(*reduce, *ad, *cd));
    ASSIGN_OR_RETURN(places, IndicesOf(*cd));
    if (indices_bytes < static_cast<size_t>(Span(places)) * sizeof(int32_t))
      return Status::Error(Code::kInvalidValue, "{} bytes for {} indices", indices_bytes,
                           Span(places));
    o.indices = call.Memory(places, indices);
  }
  ASSIGN_OR_RETURN(o.blend, call.Scaling(alpha, beta, o.c));
  Status status = call.Run(
      {.data = workspace, .bytes = static_cast<int64_t>(workspace_bytes), .is_parameter = true},
      [&](CallGraph& g) { return MakeReduction(g, *reduce, o); });
  if (status.code() != Code::kSizeInsufficient) return status;
  return Status::Text(Code::kInvalidValue, status.message());
}

}  // namespace kiln::api::legacy
