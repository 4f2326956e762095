#include "api/backend/resample.h"

#include <algorithm>
#include <numeric>

#include "ir/graph/ops.h"

namespace kiln::api {
namespace {

constexpr int64_t kMostLength = int64_t{1} << 20;  // of numerators and denominators

constexpr AttrRow kResampleRows[] = {
    Attr<&ResampleDesc::mode>(CUDNN_ATTR_RESAMPLE_MODE),
    Attr<&ResampleDesc::compute_type>(CUDNN_ATTR_RESAMPLE_COMP_TYPE, Use::kOptional),
    Attr<&ResampleDesc::spatial_dims>(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS),
    Attr<&ResampleDesc::post_paddings>(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, Use::kOptional,
                                       CUDNN_DIM_MAX),
    Attr<&ResampleDesc::pre_paddings>(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, Use::kOptional,
                                      CUDNN_DIM_MAX),
    Attr<&ResampleDesc::strides>(CUDNN_ATTR_RESAMPLE_STRIDES, Use::kRequired, CUDNN_DIM_MAX),
    Attr<&ResampleDesc::window>(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, Use::kRequired, CUDNN_DIM_MAX),
    Attr<&ResampleDesc::nan_propagation>(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, Use::kOptional),
    Attr<&ResampleDesc::padding_mode>(CUDNN_ATTR_RESAMPLE_PADDING_MODE, Use::kOptional),
};

constexpr AttrRow kFwdRows[] = {
    Attr<&ResampleFwdDesc::x>(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC),
    Attr<&ResampleFwdDesc::y>(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC),
    Attr<&ResampleFwdDesc::index>(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, Use::kOptional),
    Attr<&ResampleFwdDesc::alpha>(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_ALPHA, Use::kOptional),
    Attr<&ResampleFwdDesc::beta>(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_BETA, Use::kOptional),
    Attr<&ResampleFwdDesc::resample>(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC),
};

constexpr AttrRow kBwdRows[] = {
    Attr<&ResampleBwdDesc::dx>(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC),
    Attr<&ResampleBwdDesc::dy>(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC),
    Attr<&ResampleBwdDesc::index>(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, Use::kOptional),
    Attr<&ResampleBwdDesc::alpha>(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_ALPHA, Use::kOptional),
    Attr<&ResampleBwdDesc::beta>(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_BETA, Use::kOptional),
    Attr<&ResampleBwdDesc::resample>(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC),
    Attr<&ResampleBwdDesc::x>(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC, Use::kOptional),
    Attr<&ResampleBwdDesc::y>(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_YDESC, Use::kOptional),
};

// Pooling's extents follow from x's; those of an interpolation say how far it goes.
Status CheckExtents(const ResampleDesc& resample, const TensorDesc& x, const TensorDesc& y) {
  const auto spatial = static_cast<size_t>(resample.spatial_dims);
  if (x.dims.size() != spatial + 2 || y.dims.size() != spatial + 2) {
    return Status::Error(Code::kBadParam, "{} and {} have not {} spatial dimensions behind N and C",
                         x.Text(), y.Text(), spatial);
  }
  Dims dims(x.dims.begin(), x.dims.end());
  const graph::ResampleAttrs attrs = resample.Attrs(1, 0);
  const bool pools =
      attrs.mode != graph::ResampleMode::kNearest && attrs.mode != graph::ResampleMode::kBilinear;
  const Dims want = graph::ResampleOutputDims(attrs, dims);
  for (size_t d = 0; d < (pools ? want.size() : 2); ++d) {
    if (want[d] == y.dims[d]) continue;
    return Status::Error(Code::kBadParam, "dimension {} of {} must be {}: it resamples {}", d,
                         y.Text(), want[d], x.Text());
  }
  return {};
}

Status CheckSame(const char* name, const Ref<TensorDesc>& tensor, const TensorDesc& like) {
  if (tensor == nullptr || tensor->dims == like.dims) return {};
  return Status::Error(Code::kBadParam, "{} is {}, unlike {}", name, tensor->Text(), like.Text());
}

// An operand that is the result's previous value, where beta asks for it.
GraphImport::Operand Previous(const FloatOrDouble& beta, const Ref<TensorDesc>& result) {
  return beta.value != 0 ? result.get() : nullptr;
}

}  // namespace

Status Member<Lengths>::Set(Lengths& member, const AttrIn& in, int64_t limit) {
  if (in.count < 0 || in.count > limit) {
    return Status::Error(Code::kBadParam, "takes at most {} elements, not {}", limit, in.count);
  }
  Lengths loaded;
  loaded.values.Resize(static_cast<size_t>(in.count));
  for (int64_t i = 0; i < in.count; ++i) {
    cudnnFraction_t& length = loaded.values[static_cast<size_t>(i)];
    length.denominator = 1;
    RETURN_IF_ERROR(in.type == CUDNN_TYPE_INT64 ? LoadElement(in.data, i, &length.numerator)
                                                : LoadElement(in.data, i, &length));
  }
  member = std::move(loaded);
  return {};
}

// Read as integers, fractions lose what is behind the point.
Status Member<Lengths>::Get(const Lengths& member, const AttrOut& out) {
  if (out.type == CUDNN_TYPE_FRACTION) return StoreElements(member.values, out);
  std::vector<int64_t> whole;
  for (const cudnnFraction_t& length : member.values)
    whole.push_back(length.denominator == 0 ? 0 : length.numerator / length.denominator);
  return StoreElements(whole, out);
}

std::span<const AttrRow> ResampleDesc::Rows() { return kResampleRows; }
std::span<const AttrRow> ResampleFwdDesc::Rows() { return kFwdRows; }
std::span<const AttrRow> ResampleBwdDesc::Rows() { return kBwdRows; }

Status ResampleDesc::Finalize() {
  if (spatial_dims < 1 || spatial_dims > 3) {
    return Status::Error(Code::kBadParam, "{} spatial dimensions; 1 to 3 are possible",
                         spatial_dims);
  }
  const auto spatial = static_cast<size_t>(spatial_dims);
  for (Lengths* padding : {&pre_paddings, &post_paddings}) {
    if (!padding->values.empty()) continue;
    padding->values.Resize(spatial);
    std::ranges::fill(padding->values, cudnnFraction_t{.numerator = 0, .denominator = 1});
  }
  for (const Lengths* lengths : {&window, &strides, &pre_paddings, &post_paddings}) {
    if (lengths->values.size() != spatial) {
      return Status::Error(Code::kBadParam, "{} lengths for {} spatial dimensions",
                           lengths->values.size(), spatial);
    }
    const bool padding = lengths == &pre_paddings || lengths == &post_paddings;
    for (const cudnnFraction_t& length : lengths->values) {
      if (length.denominator >= 1 && length.denominator <= kMostLength &&
          length.numerator >= (padding ? 0 : 1) && length.numerator <= kMostLength)
        continue;
      return Status::Error(Code::kBadParam, "{}/{} is no {}", length.numerator, length.denominator,
                           padding ? "padding" : "window or stride");
    }
  }
  for (const int64_t unit : Attrs(1, 0).unit) {
    if (unit <= kMostLength) continue;
    return Status::Error(Code::kBadParam, "the lengths' common denominator {} is above {}", unit,
                         kMostLength);
  }
  return {};
}

graph::ResampleAttrs ResampleDesc::Attrs(double alpha, double beta) const {
  graph::ResampleAttrs attrs{.mode = static_cast<graph::ResampleMode>(mode),
                             .padding = static_cast<graph::PaddingMode>(padding_mode),
                             .propagate_nan = nan_propagation == CUDNN_PROPAGATE_NAN,
                             .alpha = alpha,
                             .beta = beta};
  const Lengths* lists[] = {&window, &strides, &pre_paddings, &post_paddings};
  Dims* results[] = {&attrs.window, &attrs.stride, &attrs.pre_padding, &attrs.post_padding};
  for (size_t s = 0; s < static_cast<size_t>(spatial_dims); ++s) {
    int64_t unit = 1;
    for (const Lengths* list : lists) {
      const cudnnFraction_t& length = list->values[s];
      const int64_t common = std::gcd(length.numerator, length.denominator);
      unit = std::min(std::lcm(unit, length.denominator / common), kMostLength + 1);
    }
    attrs.unit.push_back(unit);
    for (size_t i = 0; i < std::size(lists); ++i) {
      const cudnnFraction_t& length = lists[i]->values[s];
      results[i]->push_back(length.numerator * unit / length.denominator);
    }
  }
  return attrs;
}

Status ResampleFwdDesc::Finalize() {
  RETURN_IF_ERROR(CheckExtents(*resample, *x, *y));
  return CheckSame("the index", index, *y);
}

Status ResampleFwdDesc::Import(GraphImport& import) const {
  // An index that other modes are given is not written, as there is none.
  const bool has_index = resample->mode == CUDNN_RESAMPLE_MAXPOOL;
  return import.Add(graph::GraphOp::kResampleFwd, {x.get(), Previous(beta, y)},
                    {y.get(), has_index ? index.get() : nullptr}, resample->compute_type,
                    resample->Attrs(alpha.value, beta.value));
}

Status ResampleBwdDesc::Finalize() {
  RETURN_IF_ERROR(CheckExtents(*resample, *dx, *dy));
  RETURN_IF_ERROR(CheckSame("the index", index, *dy));
  RETURN_IF_ERROR(CheckSame("x", x, *dx));
  RETURN_IF_ERROR(CheckSame("y", y, *dy));
  const bool is_max = resample->mode == CUDNN_RESAMPLE_MAXPOOL;
  if (!is_max || index != nullptr || (x != nullptr && y != nullptr)) return {};
  return Status::Text(Code::kBadParam, "the gradient of maxpool needs the index, or x and y");
}

Status ResampleBwdDesc::Import(GraphImport& import) const {
  const bool is_max = resample->mode == CUDNN_RESAMPLE_MAXPOOL;
  return import.Add(graph::GraphOp::kResampleBwd,
                    {dy.get(), is_max ? index.get() : nullptr, is_max ? x.get() : nullptr,
                     is_max ? y.get() : nullptr, Previous(beta, dx)},
                    {dx.get()}, resample->compute_type, resample->Attrs(alpha.value, beta.value));
}

}  // namespace kiln::api
