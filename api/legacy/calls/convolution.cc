// cudnnConvolutionForward, cudnnConvolutionBackwardData, cudnnConvolutionBackwardFilter,
// cudnnConvolutionBackwardBias and cudnnConvolutionBiasActivationForward. Reference 5.2.8
// to 5.2.10, 6.2.1 and 6.2.2.
#include "api/legacy/calls/convolution.h"

#include <algorithm>

#include "api/legacy/calls/convolution_conditions.h"
#include "api/legacy/descriptors/modes.h"
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::TensorId;

// The directions in the order of ConvDirection.
constexpr DirectionRow kDirections[] = {
    {.function = "cudnnConvolutionForward",
     .op = GraphOp::kConvFprop,
     .algorithms = CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
     .results = 10,
     .least_workspace = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
     .any_workspace = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
     .winograd = CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED},
    {.function = "cudnnConvolutionBackwardData",
     .op = GraphOp::kConvDgrad,
     .algorithms = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT,
     .results = 8,
     .least_workspace = CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
     .any_workspace = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
     .winograd = CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED},
    {.function = "cudnnConvolutionBackwardFilter",
     .op = GraphOp::kConvWgrad,
     .algorithms = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT,
     .results = 9,
     .least_workspace = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
     .any_workspace = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
     .winograd = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED},
};

struct ConvTypes {
  int x, w, compute, y;
};
// Table 17 of the reference; gradients take the rows of floating types.
constexpr ConvTypes kTypes[] = {
    {CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_DATA_HALF},
    {CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, CUDNN_DATA_HALF},
    {CUDNN_DATA_BFLOAT16, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16},
    {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE},
    {CUDNN_DATA_INT8, CUDNN_DATA_INT8, CUDNN_DATA_INT32, CUDNN_DATA_INT8},
    {CUDNN_DATA_INT8, CUDNN_DATA_INT8, CUDNN_DATA_INT32, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_INT8x4, CUDNN_DATA_INT8x4, CUDNN_DATA_INT32, CUDNN_DATA_INT8x4},
    {CUDNN_DATA_INT8x4, CUDNN_DATA_INT8x4, CUDNN_DATA_INT32, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_UINT8, CUDNN_DATA_INT8, CUDNN_DATA_INT32, CUDNN_DATA_INT8},
    {CUDNN_DATA_UINT8, CUDNN_DATA_INT8, CUDNN_DATA_INT32, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_UINT8x4, CUDNN_DATA_INT8x4, CUDNN_DATA_INT32, CUDNN_DATA_INT8x4},
    {CUDNN_DATA_UINT8x4, CUDNN_DATA_INT8x4, CUDNN_DATA_INT32, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_INT8x32, CUDNN_DATA_INT8x32, CUDNN_DATA_INT32, CUDNN_DATA_INT8x32},
};

Status CheckTypes(const ConvProblem& p) {
  const bool forward = p.direction == ConvDirection::kForward;
  bool tensors_fit = false;
  for (const ConvTypes& row : kTypes) {
    if (row.x != p.x.type || row.w != p.w.type || row.y != p.y.type) continue;
    tensors_fit = true;
    if (row.compute == p.conv.compute && (forward || row.compute != CUDNN_DATA_INT32)) return {};
  }
  return Status::Error(tensors_fit ? Code::kNotSupported : Code::kBadParam,
                       "types of x, w, y and of the computation: {}, {}, {} and {}", p.x.type,
                       p.w.type, p.y.type, p.conv.compute);
}

Status CheckShapes(const ConvProblem& p) {
  for (const TensorDesc* t : {&p.x, &p.y}) RETURN_IF_ERROR(CheckSet(*t, "a tensor descriptor"));
  if (p.filter.rank == 0) return Status::Text(Code::kBadParam, "the filter descriptor was not set");
  if (p.x.rank != p.w.rank || p.x.rank != p.y.rank || p.x.rank != p.conv.spatial + 2)
    return Status::Error(Code::kBadParam, "{}, {}, {} and {} spatial dims: ranks differ", Text(p.x),
                         Text(p.filter), Text(p.y), p.conv.spatial);
  if (p.x.rank != 4 && p.x.rank != 5)
    return Status::Error(Code::kNotSupported, "{} dims; 4 and 5 are possible", p.x.rank);
  if (p.w.dims[0] % p.conv.groups != 0)
    return Status::Error(Code::kBadParam, "{} filters in {} groups", p.w.dims[0], p.conv.groups);
  ASSIGN_OR_RETURN(const Lengths dims, OutputDims(p.conv, p.x, p.filter));
  if (dims == p.y.dims) return {};
  // The reference has another size in space as not supported.
  const bool in_space = dims[0] == p.y.dims[0] && dims[1] == p.y.dims[1];
  const bool forward = p.direction == ConvDirection::kForward;
  return Status::Error(forward && in_space ? Code::kNotSupported : Code::kBadParam,
                       "{} is not what {} makes of {}", Text(p.y), Text(p.filter), Text(p.x));
}

// True if the winograd engines may take it, as far as descriptors say.
bool MayBeWinograd(const ConvProblem& p) {
  bool is_small = p.conv.spatial == 2 && p.conv.groups == 1;
  for (int32_t s = 0; is_small && s < p.conv.spatial; ++s)
    is_small = p.w.dims[static_cast<size_t>(s) + 2] == 3 && p.conv.stride[s] == 1 &&
               p.conv.dilation[s] == 1;
  return is_small && p.x.type == CUDNN_DATA_FLOAT && p.y.type == CUDNN_DATA_FLOAT;
}

DType ComputeOf(const ConvProblem& p) {
  if (p.conv.compute == CUDNN_DATA_INT32) return DType::kI32;
  return p.conv.compute == CUDNN_DATA_DOUBLE ? DType::kF64 : DType::kF32;
}

Dims SpatialOf(const SpatialLengths& lengths, int32_t count) {
  return Dims(lengths.begin(), lengths.begin() + count);
}

Dims DimsOf(const TensorDesc& t) { return Dims(t.dims.begin(), t.dims.begin() + t.rank); }

struct CallMemory {
  void* workspace;
  size_t workspace_bytes;
};

Status RunConvolution(void* handle, ConvDirection direction, const void* alpha, void* x_desc,
                      const void* x, void* w_desc, const void* w, void* conv_desc, int algorithm,
                      const CallMemory& memory, const void* beta, void* y_desc, const void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ConvProblem p, ProblemOf(direction, x_desc, w_desc, conv_desc, y_desc));
  Call call(*h, RowOf(direction).function);
  const ConvOperands o = AddTo(call, p, algorithm, {.x = x, .w = w, .y = y});
  const Operand& result = direction == ConvDirection::kForward        ? o.y
                          : direction == ConvDirection::kBackwardData ? o.x
                                                                      : o.w;
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, result));
  return call.Run(
      {.data = memory.workspace,
       .bytes = static_cast<int64_t>(memory.workspace_bytes),
       .is_parameter = true},
      [&](CallGraph& g) { return MakeConvolution(g, p, algorithm, o, blend); },
      [&] { return MinReportedWorkspace(*h, p, algorithm); });
}

// ---- with bias and activation

struct Epilogue {
  const TensorDesc &z, &bias;
  const ActivationDesc& activation;
};

Status CheckEpilogue(const ConvProblem& p, const Epilogue& e) {
  const int mode = e.activation.mode;
  if (mode != CUDNN_ACTIVATION_RELU && mode != CUDNN_ACTIVATION_IDENTITY)
    return Status::Error(Code::kNotSupported, "activation {}; RELU and IDENTITY are possible",
                         mode);
  if (e.activation.nan != CUDNN_NOT_PROPAGATE_NAN)
    return Status::Text(Code::kNotSupported, "reluNanOpt must be CUDNN_NOT_PROPAGATE_NAN");
  if (e.z.rank != p.conv.spatial + 2) return Status::Error(Code::kBadParam, "z is {}", Text(e.z));
  if (e.z.dims != p.y.dims || e.z.type != p.y.type)
    return Status::Error(Code::kNotSupported, "z is {}, y is {}", Text(e.z), Text(p.y));
  const bool is_bias = e.bias.rank >= 2 && e.bias.dims[0] == 1 && e.bias.strides[1] == 1 &&
                       e.bias.dims[1] == p.w.dims[0] && e.bias.rank == p.y.rank;
  const bool integers = p.conv.compute == CUDNN_DATA_INT32;
  if (!is_bias || e.bias.type != (integers ? int32_t{CUDNN_DATA_FLOAT} : p.y.type))
    return Status::Error(Code::kNotSupported, "the bias is {}, y is {}", Text(e.bias), Text(p.y));
  return {};
}

// 9.19 takes every algorithm but DIRECT here, with both activations, whether or not the convolution
// by itself may have it: the name says nothing but how much workspace there may be.
Status CheckFused(const ConvProblem& p, int algorithm) {
  RETURN_IF_ERROR(Check(p, RowOf(p.direction).any_workspace));
  if (algorithm != CUDNN_CONVOLUTION_FWD_ALGO_DIRECT && algorithm >= 0 &&
      algorithm < RowOf(p.direction).algorithms)
    return {};
  return Status::Error(Code::kNotSupported, "algorithm {}, which takes no problem", algorithm);
}

int FusedPlanOf(const ConvProblem& p, int algorithm) {
  const DirectionRow& row = RowOf(p.direction);
  return algorithm == row.least_workspace ? algorithm : row.any_workspace;
}

}  // namespace

const DirectionRow& RowOf(ConvDirection direction) {
  return kDirections[static_cast<size_t>(direction)];
}

Result<ConvProblem> ProblemOf(ConvDirection direction, void* x, void* w, void* conv, void* y) {
  ASSIGN_OR_RETURN(const TensorDesc* xd, Get<TensorDesc>(x));
  ASSIGN_OR_RETURN(const FilterDesc* wd, Get<FilterDesc>(w));
  ASSIGN_OR_RETURN(const ConvolutionDesc* cd, Get<ConvolutionDesc>(conv));
  ASSIGN_OR_RETURN(const TensorDesc* yd, Get<TensorDesc>(y));
  ConvProblem problem = {
      .direction = direction, .x = *xd, .w = {}, .y = *yd, .conv = *cd, .filter = *wd};
  ASSIGN_OR_RETURN(problem.w, Described(*wd));
  // The call shall not reorder them: cudnnReorderFilterAndBias has done it.
  problem.w.reordered = wd->type == CUDNN_DATA_INT8x32 && cd->reorder == CUDNN_NO_REORDER;
  return problem;
}

ConvolutionDesc PlainOf(const ConvolutionDesc& conv, const Lengths& filter) {
  ConvolutionDesc plain = conv;
  bool has_one_place = true;
  for (size_t s = 0; s < static_cast<size_t>(conv.spatial); ++s) {
    if (filter[s + 2] == 1) plain.dilation[s] = 1;
    has_one_place = has_one_place && filter[s + 2] == 1;
  }
  if (has_one_place) plain.mode = CUDNN_CROSS_CORRELATION;
  return plain;
}

ConvOperands AddTo(Call& call, const ConvProblem& p, int algorithm, const ConvPointers& pointers) {
  call.Add(p.conv);
  call.Add(algorithm);
  return {.x = call.Memory(p.x, pointers.x),
          .w = call.Memory(p.w, pointers.w),
          .y = call.Memory(p.y, pointers.y)};
}

Status Check(const ConvProblem& p, int algorithm) {
  RETURN_IF_ERROR(CheckShapes(p));
  RETURN_IF_ERROR(CheckTypes(p));
  return CheckConditions(p, algorithm);
}

int PlannedAs(const ConvProblem& p, int algorithm) {
  const DirectionRow& row = RowOf(p.direction);
  if (algorithm == row.least_workspace) return algorithm;
  if (algorithm == row.winograd && MayBeWinograd(p)) return algorithm;
  return row.any_workspace;
}

Result<TensorId> Convolve(CallGraph& g, const ConvProblem& p, int algorithm,
                          const ConvOperands& o) {
  RETURN_IF_ERROR(Check(p, algorithm));
  return ConvolveAs(g, p, PlannedAs(p, algorithm), o);
}

Result<TensorId> ConvolveAs(CallGraph& g, const ConvProblem& p, int planned,
                            const ConvOperands& o) {
  g.wishes.least_workspace = planned == RowOf(p.direction).least_workspace;
  g.wishes.only_fma = p.conv.math == CUDNN_FMA_MATH;
  g.wishes.winograd = planned == RowOf(p.direction).winograd;
  const bool forward = p.direction == ConvDirection::kForward;
  const bool data = p.direction == ConvDirection::kBackwardData;
  ASSIGN_OR_RETURN(const TensorId first, g.Read(data ? o.y : o.x));
  ASSIGN_OR_RETURN(const TensorId second, g.Read(forward || data ? o.w : o.y));
  return Convolve(g, p, first, second);
}

TensorId Convolve(CallGraph& g, const ConvProblem& p, TensorId first, TensorId second) {
  const ConvolutionDesc conv = PlainOf(p.conv, p.w.dims);
  graph::ConvAttrs attrs;
  attrs.pre_padding = attrs.post_padding = SpatialOf(conv.padding, conv.spatial);
  attrs.stride = SpatialOf(conv.stride, conv.spatial);
  attrs.dilation = SpatialOf(conv.dilation, conv.spatial);
  attrs.flip = conv.mode == CUDNN_CONVOLUTION;
  const DType compute = ComputeOf(p);
  const TensorDesc& result = p.direction == ConvDirection::kForward        ? p.y
                             : p.direction == ConvDirection::kBackwardData ? p.x
                                                                           : p.w;
  return g.builder().Apply(RowOf(p.direction).op, {first, second}, attrs,
                           {.dtype = compute,
                            .compute = compute,
                            .dims = DimsOf(result),
                            .strides = DimsOf({.rank = result.rank, .dims = result.strides})});
}

Status MakeConvolution(CallGraph& g, const ConvProblem& p, int algorithm, const ConvOperands& o,
                       const Blend& blend) {
  ASSIGN_OR_RETURN(const TensorId result, Convolve(g, p, algorithm, o));
  switch (p.direction) {
    case ConvDirection::kForward:
      return g.Write(result, o.y, blend);
    case ConvDirection::kBackwardData:
      return g.Write(result, o.x, blend);
    case ConvDirection::kBackwardFilter:
      return g.Write(result, o.w, blend);
  }
  return {};
}

Status ConvolutionForward(void* handle, const void* alpha, void* x_desc, const void* x,
                          void* w_desc, const void* w, void* conv_desc, int algorithm,
                          void* workspace, size_t workspace_bytes, const void* beta, void* y_desc,
                          void* y) {
  return RunConvolution(handle, ConvDirection::kForward, alpha, x_desc, x, w_desc, w, conv_desc,
                        algorithm, {workspace, workspace_bytes}, beta, y_desc, y);
}

Status ConvolutionBackwardData(void* handle, const void* alpha, void* w_desc, const void* w,
                               void* dy_desc, const void* dy, void* conv_desc, int algorithm,
                               void* workspace, size_t workspace_bytes, const void* beta,
                               void* dx_desc, void* dx) {
  return RunConvolution(handle, ConvDirection::kBackwardData, alpha, dx_desc, dx, w_desc, w,
                        conv_desc, algorithm, {workspace, workspace_bytes}, beta, dy_desc, dy);
}

Status ConvolutionBackwardFilter(void* handle, const void* alpha, void* x_desc, const void* x,
                                 void* dy_desc, const void* dy, void* conv_desc, int algorithm,
                                 void* workspace, size_t workspace_bytes, const void* beta,
                                 void* dw_desc, void* dw) {
  return RunConvolution(handle, ConvDirection::kBackwardFilter, alpha, x_desc, x, dw_desc, dw,
                        conv_desc, algorithm, {workspace, workspace_bytes}, beta, dy_desc, dy);
}

Status ConvolutionBackwardBias(void* handle, const void* alpha, void* dy_desc, const void* dy,
                               const void* beta, void* db_desc, void* db) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(dy_desc));
  ASSIGN_OR_RETURN(const TensorDesc* to, Get<TensorDesc>(db_desc));
  Call call(*h, "cudnnConvolutionBackwardBias");
  const Operand input = call.Memory(*from, dy), output = call.Memory(*to, db);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckSet(*from, "dyDesc"));
    RETURN_IF_ERROR(CheckSameType(*from, *to));
    bool fits = from->rank == to->rank && from->dims[1] == to->dims[1];
    for (size_t d = 0; fits && d < static_cast<size_t>(to->rank); ++d)
      fits = d == 1 || to->dims[d] == 1;
    if (!fits)
      return Status::Error(Code::kBadParam, "{} holds no bias of {}", Text(*to), Text(*from));
    const DType compute = ComputeType(*from);
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    const TensorId sum = g.builder().Reduction(graph::ReductionMode::kAdd, value, DimsOf(*to),
                                               {.dtype = compute, .compute = compute});
    return g.Write(sum, output, blend);
  });
}

Status ConvolutionBiasActivationForward(void* handle, const void* alpha1, void* x_desc,
                                        const void* x, void* w_desc, const void* w, void* conv_desc,
                                        int algorithm, void* workspace, size_t workspace_bytes,
                                        const void* alpha2, void* z_desc, const void* z,
                                        void* bias_desc, const void* bias, void* activation_desc,
                                        void* y_desc, void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ConvProblem p,
                   ProblemOf(ConvDirection::kForward, x_desc, w_desc, conv_desc, y_desc));
  ASSIGN_OR_RETURN(const TensorDesc* zd, Get<TensorDesc>(z_desc));
  ASSIGN_OR_RETURN(const TensorDesc* bd, Get<TensorDesc>(bias_desc));
  ASSIGN_OR_RETURN(const ActivationDesc* activation, Get<ActivationDesc>(activation_desc));
  Call call(*h, "cudnnConvolutionBiasActivationForward");
  call.Add(*activation);
  const ConvOperands o = AddTo(call, p, algorithm, {.x = x, .w = w, .y = y});
  TensorDesc bias_memory = *bd;
  bias_memory.reordered = p.w.reordered;
  const Operand add = call.Memory(*zd, z), offset = call.Memory(bias_memory, bias);
  ASSIGN_OR_RETURN(const Scalar first, call.Factor(alpha1, p.y, 1, "alpha1"));
  ASSIGN_OR_RETURN(const Scalar second, call.Factor(alpha2, p.y, 0, "alpha2"));
  return call.Run(
      {.data = workspace, .bytes = static_cast<int64_t>(workspace_bytes), .is_parameter = true},
      [&](CallGraph& g) -> Status {
        RETURN_IF_ERROR(CheckFused(p, algorithm));
        RETURN_IF_ERROR(CheckEpilogue(p, {*zd, *bd, *activation}));
        const DType compute = ComputeType(p.y);
        ASSIGN_OR_RETURN(TensorId value, ConvolveAs(g, p, FusedPlanOf(p, algorithm), o));
        if (first.slot >= 0)
          value = g.Pointwise(PointwiseMode::kMul, {value, g.Read(first, p.y.rank)}, compute);
        if (second.slot >= 0) {
          ASSIGN_OR_RETURN(TensorId other, g.Read(add));
          other = g.Pointwise(PointwiseMode::kMul, {other, g.Read(second, p.y.rank)}, compute);
          value = g.Pointwise(PointwiseMode::kAdd, {value, other}, compute);
        }
        ASSIGN_OR_RETURN(const TensorId constant, g.Read(offset));
        value = g.Pointwise(PointwiseMode::kAdd, {value, constant}, compute);
        if (activation->mode == CUDNN_ACTIVATION_RELU)
          value = g.Pointwise(PointwiseMode::kReluFwd, {value}, compute);
        return g.Write(value, o.y);
      },
      [&] { return MinReportedWorkspace(*h, p, FusedPlanOf(p, algorithm)); });
}

}  // namespace kiln::api::legacy
