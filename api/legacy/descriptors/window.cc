#include "api/legacy/descriptors/window.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

enum class Sign : uint8_t { kAny, kNotNegative, kPositive };

// One list of lengths, a number for each spatial dim.
struct LengthRow {
  const int* from;
  SpatialLengths* to;
  Sign sign;
  std::string_view name;
};

Status CheckLength(int value, Sign sign, std::string_view name) {
  if (sign == Sign::kPositive && value <= 0)
    return Status::Error(Code::kBadParam, "{} is {}; it must be positive", name, value);
  if (sign == Sign::kNotNegative && value < 0)
    return Status::Error(Code::kBadParam, "{} is {}; it must not be negative", name, value);
  return {};
}

Status CheckCount(int spatial, int least) {
  if (spatial < least)
    return Status::Error(Code::kBadParam, "{} spatial dims; {} to {} are possible", spatial, least,
                         kMostSpatialDims);
  if (spatial > kMostSpatialDims)
    return Status::Error(Code::kNotSupported, "{} spatial dims; {} to {} are possible", spatial,
                         least, kMostSpatialDims);
  return {};
}

// All of the client's lists, or none.
Status Fill(std::span<const LengthRow> rows, int spatial) {
  const auto count = static_cast<size_t>(spatial);
  for (const LengthRow& row : rows) {
    if (spatial > 0) RETURN_IF_ERROR(NotNull(row.from, row.name));
    for (size_t d = 0; d < count; ++d)
      RETURN_IF_ERROR(CheckLength(row.from[d], row.sign, row.name));
  }
  for (const LengthRow& row : rows) {
    *row.to = {};
    std::copy_n(row.from, count, row.to->begin());
  }
  return {};
}

Status SetPooling(PoolingDesc& pooling, int mode, int nan, int spatial, const int* window,
                  const int* padding, const int* stride) {
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_POOLING_MAX_DETERMINISTIC, "cudnnPoolingMode_t"));
  RETURN_IF_ERROR(CheckEnum(nan, CUDNN_PROPAGATE_NAN, "cudnnNanPropagation_t"));
  RETURN_IF_ERROR(CheckCount(spatial, 1));
  PoolingDesc made = {.mode = mode, .nan = nan, .spatial = spatial};
  const LengthRow rows[] = {{window, &made.window, Sign::kPositive, "the window"},
                            {padding, &made.padding, Sign::kAny, "the padding"},
                            {stride, &made.stride, Sign::kPositive, "the stride"}};
  RETURN_IF_ERROR(Fill(rows, spatial));
  pooling = made;
  return {};
}

Status CheckComputeType(int type) {
  for (const int known : {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_INT32})
    if (type == known) return {};
  return Status::Error(Code::kBadParam,
                       "data type {} is no compute type of a convolution; FLOAT, DOUBLE, HALF and "
                       "INT32 are",
                       type);
}

// Math type, reorder type and groups are set apart, and stay.
Status SetConvolution(ConvolutionDesc& convolution, int spatial, const int* padding,
                      const int* stride, const int* dilation, int mode, int compute) {
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_CROSS_CORRELATION, "cudnnConvolutionMode_t"));
  RETURN_IF_ERROR(CheckComputeType(compute));
  RETURN_IF_ERROR(CheckCount(spatial, 0));
  ConvolutionDesc made = convolution;
  made.mode = mode;
  made.compute = compute;
  made.spatial = spatial;
  const LengthRow rows[] = {{padding, &made.padding, Sign::kNotNegative, "the padding"},
                            {stride, &made.stride, Sign::kPositive, "the stride"},
                            {dilation, &made.dilation, Sign::kPositive, "the dilation"}};
  RETURN_IF_ERROR(Fill(rows, spatial));
  convolution = made;
  return {};
}

// Places of a window of `length` elements; 0 where it does not fit once.
int64_t Places(int64_t extent, int64_t padding, int64_t length, int64_t stride) {
  const int64_t room = extent + 2 * padding - length;
  return room < 0 ? 0 : room / stride + 1;
}

Status CheckSpatial(const TensorDesc& x, int spatial, std::string_view what) {
  if (x.rank == spatial + 2 && spatial > 0) return {};
  return Status::Error(Code::kBadParam, "{} of {} spatial dims over {}", what, spatial, Text(x));
}

Status PlaceIn(Lengths& dims, size_t dim, int64_t places, const TensorDesc& x) {
  if (places <= 0)
    return Status::Error(Code::kBadParam, "the window does not fit into dim {} of {}", dim,
                         Text(x));
  dims[dim] = static_cast<int32_t>(places);
  return {};
}

void CopySpatial(const SpatialLengths& from, int count, int* to) {
  if (to != nullptr) std::copy_n(from.begin(), std::max(count, 0), to);
}

Status CheckWanted(int wanted) {
  if (wanted <= kMostSpatialDims) return {};
  return Status::Error(Code::kNotSupported, "{} dims are asked for; {} are possible", wanted,
                       kMostSpatialDims);
}

}  // namespace

Result<Lengths> OutputDims(const PoolingDesc& p, const TensorDesc& x) {
  RETURN_IF_ERROR(CheckSpatial(x, p.spatial, "pooling"));
  Lengths dims = x.dims;
  for (size_t s = 0; s < static_cast<size_t>(p.spatial); ++s) {
    const int64_t places = Places(x.dims[s + 2], p.padding[s], p.window[s], p.stride[s]);
    RETURN_IF_ERROR(PlaceIn(dims, s + 2, places, x));
  }
  return dims;
}

Result<Lengths> OutputDims(const ConvolutionDesc& c, const TensorDesc& x, const FilterDesc& w) {
  RETURN_IF_ERROR(CheckSpatial(x, c.spatial, "a convolution"));
  const bool fits = w.rank == x.rank && int64_t{w.dims[1]} * c.groups == x.dims[1];
  if (!fits)
    return Status::Error(Code::kBadParam, "{} in {} groups does not fit to {}", Text(w), c.groups,
                         Text(x));
  Lengths dims = x.dims;
  dims[1] = w.dims[0];
  for (size_t s = 0; s < static_cast<size_t>(c.spatial); ++s) {
    const int64_t length = int64_t{c.dilation[s]} * (w.dims[s + 2] - 1) + 1;
    RETURN_IF_ERROR(
        PlaceIn(dims, s + 2, Places(x.dims[s + 2], c.padding[s], length, c.stride[s]), x));
  }
  return dims;
}

// ---- pooling

Status CreatePoolingDescriptor(void** out) { return CreateDescriptor<PoolingDesc>(out); }
Status DestroyPoolingDescriptor(void* object) { return DestroyDescriptor<PoolingDesc>(object); }

Status SetPooling2dDescriptor(void* object, int mode, int nan, int window_height, int window_width,
                              int vertical_padding, int horizontal_padding, int vertical_stride,
                              int horizontal_stride) {
  ASSIGN_OR_RETURN(PoolingDesc * pooling, Get<PoolingDesc>(object));
  const int window[] = {window_height, window_width};
  const int padding[] = {vertical_padding, horizontal_padding};
  const int stride[] = {vertical_stride, horizontal_stride};
  return SetPooling(*pooling, mode, nan, 2, window, padding, stride);
}

Status SetPoolingNdDescriptor(void* object, int mode, int nan, int spatial, const int* window,
                              const int* padding, const int* stride) {
  ASSIGN_OR_RETURN(PoolingDesc * pooling, Get<PoolingDesc>(object));
  return SetPooling(*pooling, mode, nan, spatial, window, padding, stride);
}

Status GetPooling2dDescriptor(void* object, int* mode, int* nan, int* window_height,
                              int* window_width, int* vertical_padding, int* horizontal_padding,
                              int* vertical_stride, int* horizontal_stride) {
  ASSIGN_OR_RETURN(const PoolingDesc* p, Get<PoolingDesc>(object));
  Store(mode, p->mode);
  Store(nan, p->nan);
  Store(window_height, p->window[0]);
  Store(window_width, p->window[1]);
  Store(vertical_padding, p->padding[0]);
  Store(horizontal_padding, p->padding[1]);
  Store(vertical_stride, p->stride[0]);
  Store(horizontal_stride, p->stride[1]);
  return {};
}

Status GetPoolingNdDescriptor(void* object, int wanted, int* mode, int* nan, int* spatial,
                              int* window, int* padding, int* stride) {
  ASSIGN_OR_RETURN(const PoolingDesc* p, Get<PoolingDesc>(object));
  RETURN_IF_ERROR(CheckWanted(wanted));
  Store(mode, p->mode);
  Store(nan, p->nan);
  Store(spatial, p->spatial);
  const int count = std::min(wanted, p->spatial);
  CopySpatial(p->window, count, window);
  CopySpatial(p->padding, count, padding);
  CopySpatial(p->stride, count, stride);
  return {};
}

Status GetPooling2dForwardOutputDim(void* object, void* x, int* n, int* c, int* h, int* w) {
  ASSIGN_OR_RETURN(const PoolingDesc* pooling, Get<PoolingDesc>(object));
  ASSIGN_OR_RETURN(const TensorDesc* tensor, Get<TensorDesc>(x));
  RETURN_IF_ERROR(CheckSpatial(*tensor, 2, "2-D pooling"));
  ASSIGN_OR_RETURN(const Lengths dims, OutputDims(*pooling, *tensor));
  int* const places[] = {n, c, h, w};
  for (size_t d = 0; d < 4; ++d) Store(places[d], dims[d]);
  return {};
}

Status GetPoolingNdForwardOutputDim(void* object, void* x, int rank, int* out) {
  ASSIGN_OR_RETURN(const PoolingDesc* pooling, Get<PoolingDesc>(object));
  ASSIGN_OR_RETURN(const TensorDesc* tensor, Get<TensorDesc>(x));
  RETURN_IF_ERROR(NotNull(out, "outDimA"));
  ASSIGN_OR_RETURN(const Lengths dims, OutputDims(*pooling, *tensor));
  if (rank != tensor->rank)
    return Status::Error(Code::kBadParam, "{} extents are asked for; the tensor has {}", rank,
                         tensor->rank);
  std::copy_n(dims.begin(), rank, out);
  return {};
}

// ---- convolutions

Status CreateConvolutionDescriptor(void** out) { return CreateDescriptor<ConvolutionDesc>(out); }
Status DestroyConvolutionDescriptor(void* object) {
  return DestroyDescriptor<ConvolutionDesc>(object);
}

Status SetConvolution2dDescriptor(void* object, int pad_h, int pad_w, int u, int v, int dilation_h,
                                  int dilation_w, int mode, int compute) {
  ASSIGN_OR_RETURN(ConvolutionDesc * convolution, Get<ConvolutionDesc>(object));
  const int padding[] = {pad_h, pad_w}, stride[] = {u, v}, dilation[] = {dilation_h, dilation_w};
  return SetConvolution(*convolution, 2, padding, stride, dilation, mode, compute);
}

Status SetConvolutionNdDescriptor(void* object, int spatial, const int* padding, const int* stride,
                                  const int* dilation, int mode, int compute) {
  ASSIGN_OR_RETURN(ConvolutionDesc * convolution, Get<ConvolutionDesc>(object));
  return SetConvolution(*convolution, spatial, padding, stride, dilation, mode, compute);
}

Status GetConvolution2dDescriptor(void* object, int* pad_h, int* pad_w, int* u, int* v,
                                  int* dilation_h, int* dilation_w, int* mode, int* compute) {
  ASSIGN_OR_RETURN(const ConvolutionDesc* c, Get<ConvolutionDesc>(object));
  Store(pad_h, c->padding[0]);
  Store(pad_w, c->padding[1]);
  Store(u, c->stride[0]);
  Store(v, c->stride[1]);
  Store(dilation_h, c->dilation[0]);
  Store(dilation_w, c->dilation[1]);
  Store(mode, c->mode);
  Store(compute, c->compute);
  return {};
}

Status GetConvolutionNdDescriptor(void* object, int wanted, int* spatial, int* padding, int* stride,
                                  int* dilation, int* mode, int* compute) {
  ASSIGN_OR_RETURN(const ConvolutionDesc* c, Get<ConvolutionDesc>(object));
  RETURN_IF_ERROR(CheckWanted(wanted));
  Store(spatial, c->spatial);
  Store(mode, c->mode);
  Store(compute, c->compute);
  const int count = std::min(wanted, c->spatial);
  CopySpatial(c->padding, count, padding);
  CopySpatial(c->stride, count, stride);
  CopySpatial(c->dilation, count, dilation);
  return {};
}

Status SetConvolutionMathType(void* object, int math) {
  ASSIGN_OR_RETURN(ConvolutionDesc * convolution, Get<ConvolutionDesc>(object));
  RETURN_IF_ERROR(CheckEnum(math, CUDNN_FMA_MATH, "cudnnMathType_t"));
  convolution->math = math;
  return {};
}

Status GetConvolutionMathType(void* object, int* math) {
  ASSIGN_OR_RETURN(const ConvolutionDesc* convolution, Get<ConvolutionDesc>(object));
  RETURN_IF_ERROR(NotNull(math, "the place for the math type"));
  *math = convolution->math;
  return {};
}

Status SetConvolutionGroupCount(void* object, int groups) {
  ASSIGN_OR_RETURN(ConvolutionDesc * convolution, Get<ConvolutionDesc>(object));
  RETURN_IF_ERROR(CheckLength(groups, Sign::kPositive, "the number of groups"));
  convolution->groups = groups;
  return {};
}

Status GetConvolutionGroupCount(void* object, int* groups) {
  ASSIGN_OR_RETURN(const ConvolutionDesc* convolution, Get<ConvolutionDesc>(object));
  RETURN_IF_ERROR(NotNull(groups, "the place for the number of groups"));
  *groups = convolution->groups;
  return {};
}

Status SetConvolutionReorderType(void* object, int reorder) {
  ASSIGN_OR_RETURN(ConvolutionDesc * convolution, Get<ConvolutionDesc>(object));
  RETURN_IF_ERROR(CheckEnum(reorder, CUDNN_NO_REORDER, "cudnnReorderType_t"));
  convolution->reorder = reorder;
  return {};
}

Status GetConvolutionReorderType(void* object, int* reorder) {
  ASSIGN_OR_RETURN(const ConvolutionDesc* convolution, Get<ConvolutionDesc>(object));
  RETURN_IF_ERROR(NotNull(reorder, "the place for the reorder type"));
  *reorder = convolution->reorder;
  return {};
}

Status GetConvolution2dForwardOutputDim(void* object, void* x, void* w, int* n, int* c, int* h,
                                        int* width) {
  ASSIGN_OR_RETURN(const ConvolutionDesc* convolution, Get<ConvolutionDesc>(object));
  ASSIGN_OR_RETURN(const TensorDesc* tensor, Get<TensorDesc>(x));
  ASSIGN_OR_RETURN(const FilterDesc* filter, Get<FilterDesc>(w));
  ASSIGN_OR_RETURN(const Lengths dims, OutputDims(*convolution, *tensor, *filter));
  int* const places[] = {n, c, h, width};
  for (size_t d = 0; d < 4; ++d) Store(places[d], dims[d]);
  return {};
}

Status GetConvolutionNdForwardOutputDim(void* object, void* x, void* w, int rank, int* out) {
  ASSIGN_OR_RETURN(const ConvolutionDesc* convolution, Get<ConvolutionDesc>(object));
  ASSIGN_OR_RETURN(const TensorDesc* tensor, Get<TensorDesc>(x));
  ASSIGN_OR_RETURN(const FilterDesc* filter, Get<FilterDesc>(w));
  RETURN_IF_ERROR(NotNull(out, "tensorOuputDimA"));
  ASSIGN_OR_RETURN(const Lengths dims, OutputDims(*convolution, *tensor, *filter));
  if (rank < 0 || rank > tensor->rank)
    return Status::Error(Code::kBadParam, "{} extents are asked for; the tensor has {}", rank,
                         tensor->rank);
  std::copy_n(dims.begin(), rank, out);
  return {};
}

}  // namespace kiln::api::legacy
