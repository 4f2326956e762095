// cudnnGetFoldedConvBackwardDataDescriptors: a convolution with stride s as one of stride 1, whose
// channels are blocks of s places. Reference 5.2.30.
//
//   y[p] = sum of w[r] x[p s + r - pad] over r. With r + b = t s + a, where b = s q - pad and
//   q = ceil(pad / s), that is x[s (p + t - q) + a]: channel a of x folded, at p + t - q. So
//     the filter is padded by b before, and folded;
//     the convolution has padding q;
//     it has results behind the last one of y, where dy is padded with zeros;
//     dx folded has ceil(H / s) places, of which unfolding cuts off what is behind the last.
#include <algorithm>

#include "api/legacy/calls/convolution.h"
#include "api/legacy/descriptors/transform.h"
#include "api/legacy/functions.h"
#include "api/lifecycle/handle.h"

namespace kiln::api::legacy {
namespace {

constexpr int kChannelBlock =
    8;  // folded channels come in multiples of it, where the fold divides it

struct Folded {
  FilterDesc w;
  TensorDesc dy, dx;
  ConvolutionDesc conv;
  TensorTransformDesc fold_w, pad_dy, fold_dx, unfold_dx;
};

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

Status CheckFolding(const ConvProblem& p, int format) {
  RETURN_IF_ERROR(CheckEnum(format, CUDNN_TENSOR_NCHW_VECT_C, "cudnnTensorFormat_t"));
  if (format == CUDNN_TENSOR_NCHW_VECT_C)
    return Status::Text(Code::kNotSupported, "a transform makes NCHW or NHWC, not NCHW_VECT_C");
  for (const TensorDesc* t : {&p.x, &p.y, &p.w}) {
    RETURN_IF_ERROR(CheckSet(*t, "a descriptor"));
    if (t->rank != 4) return Status::Error(Code::kBadParam, "{}: 4 dims are possible", Text(*t));
  }
  RETURN_IF_ERROR(Check(p, RowOf(p.direction).any_workspace));
  if (p.conv.groups > 1)
    return Status::Error(Code::kNotSupported, "{} groups: folding would mix their channels",
                         p.conv.groups);
  const ConvolutionDesc conv = PlainOf(p.conv, p.w.dims);
  if (conv.mode == CUDNN_CONVOLUTION)
    return Status::Error(Code::kNotSupported,
                         "CUDNN_CONVOLUTION with {}: folding would not flip blocks",
                         Text(p.filter));
  for (size_t s = 0; s < 2; ++s) {
    if (conv.dilation[s] != 1)
      return Status::Error(Code::kNotSupported, "dilation {} of {}; 1 is possible",
                           conv.dilation[s], Text(p.filter));
  }
  return {};
}

bool IsNhwc(const TensorDesc& t) { return t.strides[1] == 1 && t.strides[3] != 1; }

Result<Folded> Fold(const ConvProblem& p, int format) {
  Folded f = {.w = p.filter, .conv = p.conv};
  for (TensorTransformDesc* t : {&f.fold_w, &f.pad_dy, &f.fold_dx, &f.unfold_dx})
    *t = {.rank = 4, .format = format};
  int blocks = 1;
  for (size_t s = 0; s < 2; ++s) blocks *= p.conv.stride[s];
  const int unit = std::max(1, kChannelBlock / blocks), channels = p.w.dims[1],
            more = CeilDiv(channels, unit) * unit - channels;
  f.unfold_dx.direction = CUDNN_TRANSFORM_UNFOLD;
  f.unfold_dx.format = IsNhwc(p.x) ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  f.fold_w.after[1] = f.fold_dx.after[1] = more;
  f.unfold_dx.after[1] = -more;
  f.w.format = format;
  f.w.dims[1] = (channels + more) * blocks;
  Lengths dx = p.x.dims, dy = p.y.dims;
  dx[1] = (p.x.dims[1] + more) * blocks;
  for (size_t s = 0; s < 2; ++s) {
    const size_t d = s + 2;
    const int stride = p.conv.stride[s], padding = CeilDiv(p.conv.padding[s], stride),
              before = padding * stride - p.conv.padding[s];
    const int taps = CeilDiv(p.w.dims[d] + before, stride);
    dx[d] = CeilDiv(p.x.dims[d], stride);
    dy[d] = dx[d] + 2 * padding - taps + 1;
    f.w.dims[d] = taps;
    f.conv.padding[s] = padding;
    f.conv.stride[s] = 1;
    for (TensorTransformDesc* t : {&f.fold_w, &f.fold_dx, &f.unfold_dx})
      t->fold[s] = static_cast<uint32_t>(stride);
    f.fold_w.before[d] = before;
    f.fold_w.after[d] = taps * stride - before - p.w.dims[d];
    f.pad_dy.after[d] = dy[d] - p.y.dims[d];
    f.unfold_dx.after[d] = p.x.dims[d] - dx[d] * stride;
  }
  RETURN_IF_ERROR(SetPackedTensor(f.dx, format, p.x.type, std::span(dx).first(4)));
  RETURN_IF_ERROR(SetPackedTensor(f.dy, format, p.y.type, std::span(dy).first(4)));
  return f;
}

}  // namespace

// The handle is not looked at, and who does not unfold dx needs no transform for it.
Status GetFoldedConvBackwardDataDescriptors(void*, void* w, void* dy, void* conv, void* dx,
                                            int format, void* folded_w, void* padded_dy,
                                            void* folded_conv, void* folded_dx, void* fold_w,
                                            void* pad_dy, void* fold_dx, void* unfold_dx) {
  ASSIGN_OR_RETURN(const ConvProblem problem,
                   ProblemOf(ConvDirection::kBackwardData, dx, w, conv, dy));
  ASSIGN_OR_RETURN(FilterDesc * to_w, Get<FilterDesc>(folded_w));
  ASSIGN_OR_RETURN(TensorDesc * to_dy, Get<TensorDesc>(padded_dy));
  ASSIGN_OR_RETURN(ConvolutionDesc * to_conv, Get<ConvolutionDesc>(folded_conv));
  ASSIGN_OR_RETURN(TensorDesc * to_dx, Get<TensorDesc>(folded_dx));
  ASSIGN_OR_RETURN(TensorTransformDesc * to_fold_w, Get<TensorTransformDesc>(fold_w));
  ASSIGN_OR_RETURN(TensorTransformDesc * to_pad_dy, Get<TensorTransformDesc>(pad_dy));
  ASSIGN_OR_RETURN(TensorTransformDesc * to_fold_dx, Get<TensorTransformDesc>(fold_dx));
  TensorTransformDesc unwanted, *to_unfold_dx = &unwanted;
  if (unfold_dx != nullptr) {
    ASSIGN_OR_RETURN(to_unfold_dx, Get<TensorTransformDesc>(unfold_dx));
  }
  RETURN_IF_ERROR(CheckFolding(problem, format));
  ASSIGN_OR_RETURN(const Folded folded, Fold(problem, format));
  *to_w = folded.w;
  *to_dy = folded.dy;
  *to_conv = folded.conv;
  *to_dx = folded.dx;
  *to_fold_w = folded.fold_w;
  *to_pad_dy = folded.pad_dy;
  *to_fold_dx = folded.fold_dx;
  *to_unfold_dx = folded.unfold_dx;
  return {};
}

}  // namespace kiln::api::legacy
