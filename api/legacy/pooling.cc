// cudnnPoolingForward. Reference 3.2.69.
//
// y may be larger than the windows that fit into x and its padding, or smaller: then windows reach
// behind the padding, or elements of x belong to none. Negative padding cuts x off.
#include <algorithm>

#include "api/legacy/call.h"
#include "api/legacy/functions.h"
#include "api/legacy/window.h"
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

Windows WindowsOf(const PoolingDesc& p, const TensorDesc& x, const TensorDesc& y) {
  Windows w;
  w.dims = Dims(x.dims.begin(), x.dims.begin() + x.rank);
  w.part = {.start = Dims(w.dims.size(), 0), .step = Dims(w.dims.size(), 1)};
  w.attrs.mode = ModeOf(p);
  w.attrs.padding = w.attrs.mode == graph::ResampleMode::kMax ? graph::PaddingMode::kNegInf
                                                              : graph::PaddingMode::kZero;
  w.attrs.propagate_nan = p.nan == CUDNN_PROPAGATE_NAN;
  for (size_t s = 0; s < static_cast<size_t>(p.spatial); ++s) {
    const int64_t start = std::clamp<int64_t>(-p.padding[s], 0, x.dims[s + 2] - 1);
    // Behind the last place that a window reads, counted from the first element.
    const int64_t end = int64_t{y.dims[s + 2] - 1} * p.stride[s] + p.window[s] - p.padding[s];
    const int64_t stop = std::clamp<int64_t>(end, start + 1, x.dims[s + 2]);
    w.part.start[s + 2] = start;
    w.dims[s + 2] = stop - start;
    w.attrs.window.push_back(p.window[s]);
    w.attrs.stride.push_back(p.stride[s]);
    w.attrs.pre_padding.push_back(std::max(p.padding[s], 0));
    w.attrs.post_padding.push_back(std::max<int64_t>(end - stop, 0));
    w.attrs.unit.push_back(1);
  }
  return w;
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

}  // namespace kiln::api::legacy
