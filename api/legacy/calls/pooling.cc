// cudnnPoolingForward and cudnnPoolingBackward. Reference 3.2.69 and 4.1.18.
//
// y may be larger than the windows that fit into x and its padding, or smaller: then windows reach
// behind the padding, or elements of x belong to none. Negative padding cuts x off.
#include <algorithm>

#include "api/legacy/descriptors/window.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::TensorId;

graph::ResampleMode ModeOf(const PoolingDesc& pooling) {
  if (pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING)
    return graph::ResampleMode::kAvgIncludePadding;
  if (pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING)
    return graph::ResampleMode::kAvgExcludePadding;
  return graph::ResampleMode::kMax;
}

// The windows of one call, over the part of x that they reach.
struct Windows {
  graph::ResampleAttrs attrs;
  graph::SliceAttrs part;  // of x
  Dims dims;               // of that part
};

// Without their lengths.
graph::ResampleAttrs KindOf(const PoolingDesc& p) {
  graph::ResampleAttrs attrs;
  attrs.mode = ModeOf(p);
  attrs.padding = attrs.mode == graph::ResampleMode::kMax ? graph::PaddingMode::kNegInf
                                                          : graph::PaddingMode::kZero;
  attrs.propagate_nan = p.nan == CUDNN_PROPAGATE_NAN;
  return attrs;
}

void AddAxis(graph::ResampleAttrs& attrs, int64_t window, int64_t stride, int64_t before,
             int64_t after) {
  attrs.window.push_back(window);
  attrs.stride.push_back(stride);
  attrs.pre_padding.push_back(before);
  attrs.post_padding.push_back(after);
  attrs.unit.push_back(1);
}

Windows WindowsOf(const PoolingDesc& p, const TensorDesc& x, const TensorDesc& y) {
  Windows w{.attrs = KindOf(p), .part = {}, .dims = {}};
  w.dims = Dims(x.dims.begin(), x.dims.begin() + x.rank);
  w.part = {.start = Dims(w.dims.size(), 0), .step = Dims(w.dims.size(), 1)};
  for (size_t s = 0; s < static_cast<size_t>(p.spatial); ++s) {
    const int64_t start = std::clamp<int64_t>(-p.padding[s], 0, x.dims[s + 2] - 1);
    // The end lies behind the last place that a window reads, counted from the first element.
    const int64_t end = int64_t{y.dims[s + 2] - 1} * p.stride[s] + p.window[s] - p.padding[s];
    const int64_t stop = std::clamp<int64_t>(end, start + 1, x.dims[s + 2]);
    w.part.start[s + 2] = start;
    w.dims[s + 2] = stop - start;
    AddAxis(w.attrs, p.window[s], p.stride[s], std::max(p.padding[s], 0),
            std::max<int64_t>(end - stop, 0));
  }
  return w;
}

// The windows of y among as many as fit into all of x, of which the others have no gradient.
struct AllWindows {
  graph::ResampleAttrs attrs;
  Dims before, count;  // those in front of y's first one, and all, along each spatial dim
};

AllWindows AllWindowsOf(const PoolingDesc& p, const TensorDesc& x, const TensorDesc& y) {
  AllWindows w{.attrs = KindOf(p), .before = {}, .count = {}};
  for (size_t s = 0; s < static_cast<size_t>(p.spatial); ++s) {
    const int64_t stride = p.stride[s], cut = std::max(-p.padding[s], 0);
    const int64_t before = (cut + stride - 1) / stride;
    const int64_t padding = before * stride + p.padding[s];
    int64_t count = before + y.dims[s + 2];
    const int64_t left = x.dims[s + 2] - ((count - 1) * stride + p.window[s] - padding);
    if (left > 0) count += left / stride;
    AddAxis(w.attrs, p.window[s], stride, padding, std::max<int64_t>(-left, 0));
    w.before.push_back(before);
    w.count.push_back(count);
  }
  return w;
}

// The gradient of each of them; 0 of those that are none of y's.
TensorId OfAll(CallGraph& g, TensorId dy, const AllWindows& windows) {
  const auto rank = static_cast<int64_t>(g.DimsOf(dy).size());
  for (size_t s = 0; s < windows.count.size(); ++s) {
    if (windows.count[s] == g.DimsOf(dy)[s + 2]) continue;
    const auto axis = static_cast<int64_t>(s) + 2;
    Dims places(static_cast<size_t>(rank), 1);
    places[s + 2] = windows.count[s];
    TensorId place =
        g.builder().Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = axis},
                          {.dtype = DType::kI64, .compute = DType::kI64, .dims = places});
    if (windows.before[s] != 0) {
      const auto before = static_cast<double>(windows.before[s]);
      place = g.Pointwise(graph::PointwiseMode::kSub,
                          {place, g.Constant(before, rank, DType::kI64)}, DType::kI64);
    }
    const DType dtype = g.builder().graph()[dy].dtype;
    dy = g.builder().Apply(GraphOp::kGather, {dy, place}, graph::GatherAttrs{.axis = axis},
                           {.dtype = dtype, .compute = kiln::MovingType(dtype)});
  }
  return dy;
}

Status Check(const PoolingDesc& pooling, const TensorDesc& x, const TensorDesc& y) {
  RETURN_IF_ERROR(CheckSet(x, "xDesc"));
  RETURN_IF_ERROR(CheckSameType(x, y));
  const bool fits = x.rank == y.rank && x.dims[0] == y.dims[0] && x.dims[1] == y.dims[1];
  if (!fits)
    return Status::Error(Code::kBadParam, "{} and {} differ elsewhere than in space", Text(x),
                         Text(y));
  if (pooling.spatial == 0 || pooling.spatial + 2 != x.rank)
    return Status::Error(Code::kBadParam, "pooling of {} spatial dims over {}", pooling.spatial,
                         Text(x));
  if (pooling.spatial > 3)
    return Status::Error(Code::kNotSupported, "pooling of {} spatial dims; 3 are possible",
                         pooling.spatial);
  return {};
}

}  // namespace

Status PoolingForward(void* handle, void* pooling_desc, const void* alpha, void* x_desc,
                      const void* x, const void* beta, void* y_desc, void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const PoolingDesc* pooling, Get<PoolingDesc>(pooling_desc));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* to, Get<TensorDesc>(y_desc));
  Call call(*h, "cudnnPoolingForward");
  call.Add(*pooling);
  const Operand input = call.Memory(*from, x), output = call.Memory(*to, y);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(Check(*pooling, *from, *to));
    const DType compute = ComputeType(*from);
    ASSIGN_OR_RETURN(TensorId value, g.Read(input));
    const Windows windows = WindowsOf(*pooling, *from, *to);
    if (windows.dims != g.DimsOf(value)) {
      const DType dtype = g.builder().graph()[value].dtype;
      value = g.builder().Apply(
          GraphOp::kSlice, {value}, windows.part,
          {.dtype = dtype, .compute = kiln::MovingType(dtype), .dims = windows.dims});
    }
    value = g.builder().Apply(GraphOp::kResampleFwd, {value}, windows.attrs,
                              {.dtype = compute, .compute = compute});
    return g.Write(value, output, blend);
  });
}

Status PoolingBackward(void* handle, void* pooling_desc, const void* alpha, void* y_desc,
                       const void* y, void* dy_desc, const void* dy, void* x_desc, const void* x,
                       const void* beta, void* dx_desc, void* dx) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const PoolingDesc* pooling, Get<PoolingDesc>(pooling_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dyd, Get<TensorDesc>(dy_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dxd, Get<TensorDesc>(dx_desc));
  const bool is_max =
      pooling->mode == CUDNN_POOLING_MAX || pooling->mode == CUDNN_POOLING_MAX_DETERMINISTIC;
  ASSIGN_OR_RETURN(const TensorDesc* yd, GetOr(y_desc, is_max ? nullptr : dyd));
  ASSIGN_OR_RETURN(const TensorDesc* xd, GetOr(x_desc, is_max ? nullptr : dxd));
  for (const void* pointer : {x, y})
    if (is_max) RETURN_IF_ERROR(NotNull(pointer, "one of x and y, where maxima are"));
  Call call(*h, "cudnnPoolingBackward");
  call.Add(*pooling);
  call.Add(*yd);  // nothing reads y: maxima are found in x
  const Operand gradient = call.Memory(*dyd, dy), input = call.Memory(*xd, x);
  const Operand result = call.Memory(*dxd, dx);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, result));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(Check(*pooling, *xd, *yd));
    for (const auto& [one, other] : {std::pair{yd, dyd}, {xd, dxd}}) {
      RETURN_IF_ERROR(CheckSameDims(*one, *other));
      RETURN_IF_ERROR(CheckSameStrides(*one, *other));
      RETURN_IF_ERROR(CheckSameType(*one, *other));
    }
    RETURN_IF_ERROR(CheckFloat(*xd));
    const AllWindows windows = AllWindowsOf(*pooling, *xd, *yd);
    const DType compute = ComputeType(*xd);
    ASSIGN_OR_RETURN(const TensorId grad, g.Read(gradient));
    std::vector<TensorId> operands = {OfAll(g, grad, windows)};
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    if (windows.attrs.mode == graph::ResampleMode::kMax)
      operands.insert(operands.end(), {graph::kAbsent, value});
    const TensorId spread = g.builder().Apply(
        GraphOp::kResampleBwd, operands, windows.attrs,
        {.dtype = compute,
         .compute = compute,
         .dims = g.DimsOf(value),
         .strides = Dims(dxd->strides.begin(), dxd->strides.begin() + dxd->rank)});
    return g.Write(spread, result, blend);
  });
}

}  // namespace kiln::api::legacy
