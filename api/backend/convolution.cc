#include "api/backend/convolution.h"

#include "ir/shape.h"

namespace kiln::api {
namespace {

constexpr AttrRow kConvolutionRows[] = {
    Attr<&ConvolutionDesc::compute_type>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE),
    Attr<&ConvolutionDesc::mode>(CUDNN_ATTR_CONVOLUTION_CONV_MODE),
    Attr<&ConvolutionDesc::spatial_dims>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS),
    Attr<&ConvolutionDesc::dilations>(CUDNN_ATTR_CONVOLUTION_DILATIONS, Use::kRequired,
                                      CUDNN_DIM_MAX),
    Attr<&ConvolutionDesc::strides>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Use::kRequired,
                                    CUDNN_DIM_MAX),
    Attr<&ConvolutionDesc::pre_paddings>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Use::kRequired,
                                         CUDNN_DIM_MAX),
    Attr<&ConvolutionDesc::post_paddings>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Use::kRequired,
                                          CUDNN_DIM_MAX),
};

using Op = OperationConvolution;

constexpr AttrRow kForwardRows[] = {
    Attr<&Op::alpha>(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, Use::kOptional),
    Attr<&Op::beta>(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, Use::kOptional),
    Attr<&Op::convolution>(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
    Attr<&Op::filter>(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W),
    Attr<&Op::image>(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X),
    Attr<&Op::response>(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y),
};

constexpr AttrRow kBwdDataRows[] = {
    Attr<&Op::alpha>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, Use::kOptional),
    Attr<&Op::beta>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, Use::kOptional),
    Attr<&Op::convolution>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
    Attr<&Op::filter>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W),
    Attr<&Op::image>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX),
    Attr<&Op::response>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY),
};

constexpr AttrRow kBwdFilterRows[] = {
    Attr<&Op::alpha>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, Use::kOptional),
    Attr<&Op::beta>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, Use::kOptional),
    Attr<&Op::convolution>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC),
    Attr<&Op::filter>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW),
    Attr<&Op::image>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X),
    Attr<&Op::response>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY),
};

// Dimensions of the three tensors with groups folded into channels, whichever way the client wrote
// them: [N, GC, …] or [N, G, C, …]; [GK, C, …] or [G, K, C, …]; [N, GK, …] or [N, G, K, …].
struct Geometry {
  int64_t batch_x, batch_y, channels, filters, group_channels, responses;
};

Geometry GeometryOf(const Op& op, bool has_group_dim) {
  const Dims x = op.image->PlainDims(), w = op.filter->PlainDims(), y = op.response->PlainDims();
  if (has_group_dim) return {x[0], y[0], x[1] * x[2], w[0] * w[1], w[2], y[1] * y[2]};
  return {x[0], y[0], x[1], w[0], w[1], y[1]};
}

Status CheckChannels(const Op& op, bool has_group_dim) {
  Geometry g = GeometryOf(op, has_group_dim);
  const TensorDesc &x = *op.image, &w = *op.filter, &y = *op.response;
  if (g.batch_x != g.batch_y) {
    return Status::Error(Code::kBadParam, "image {} and response {} differ in the batch", x.Text(),
                         y.Text());
  }
  if (g.channels % g.group_channels != 0) {
    return Status::Error(Code::kBadParam,
                         "image {} has {} channels, no multiple of the filter's {} ({})", x.Text(),
                         g.channels, g.group_channels, w.Text());
  }
  int64_t groups = g.channels / g.group_channels;
  const Dims xd = x.PlainDims(), wd = w.PlainDims(), yd = y.PlainDims();
  if (has_group_dim && (xd[1] != wd[0] || yd[1] != wd[0] || xd[2] != wd[2])) {
    return Status::Error(Code::kBadParam,
                         "image {}, filter {} and response {} differ in groups or channels",
                         x.Text(), w.Text(), y.Text());
  }
  if (g.filters % groups != 0) {
    return Status::Error(Code::kBadParam, "filter {} has {} outputs for {} groups", w.Text(),
                         g.filters, groups);
  }
  if (g.responses != g.filters) {
    return Status::Error(Code::kBadParam, "response {} has {} channels; filter {} gives {}",
                         y.Text(), g.responses, w.Text(), g.filters);
  }
  return {};
}

Status CheckSpatial(const Op& op, size_t first) {
  const ConvolutionDesc& c = *op.convolution;
  const TensorDesc &x = *op.image, &w = *op.filter, &y = *op.response;
  for (size_t i = 0; i < static_cast<size_t>(c.spatial_dims); ++i) {
    int64_t window = (w.dims[first + i] - 1) * c.dilations[i] + 1;
    int64_t padded = x.dims[first + i] + c.pre_paddings[i] + c.post_paddings[i];
    int64_t expected = padded < window ? 0 : (padded - window) / c.strides[i] + 1;
    if (y.dims[first + i] == expected) continue;
    return Status::Error(Code::kBadParam,
                         "response {} has extent {} in spatial dimension {}; image {} with filter "
                         "{}, padding {}+{}, "
                         "stride {} and dilation {} gives {}",
                         y.Text(), y.dims[first + i], i, x.Text(), w.Text(), c.pre_paddings[i],
                         c.post_paddings[i], c.strides[i], c.dilations[i], expected);
  }
  return {};
}

// `tensor` with dims [first, first+1] merged; its strides stay where the two are one run of memory.
Result<graph::TensorId> FoldGroups(GraphImport& import, const TensorDesc& tensor, size_t first) {
  ASSIGN_OR_RETURN(DType dtype, ElementType(tensor.data_type));
  Dims dims = tensor.PlainDims(), strides(tensor.strides.begin(), tensor.strides.end());
  auto at = static_cast<ptrdiff_t>(first);
  dims[first + 1] *= dims[first];
  dims.erase(dims.begin() + at);
  strides.erase(strides.begin() + at);
  bool one_run = tensor.vector_count == 1 &&
                 tensor.strides[first] == tensor.strides[first + 1] * tensor.dims[first + 1];
  return import.Temporary(dtype, dims, one_run ? strides : PackedStrides(dims));
}

}  // namespace

std::span<const AttrRow> ConvolutionDesc::Rows() { return kConvolutionRows; }
std::span<const AttrRow> ConvolutionForwardDesc::Rows() { return kForwardRows; }
std::span<const AttrRow> ConvolutionBwdDataDesc::Rows() { return kBwdDataRows; }
std::span<const AttrRow> ConvolutionBwdFilterDesc::Rows() { return kBwdFilterRows; }

Status ConvolutionDesc::Finalize() {
  struct Array {
    const char* name;
    const InlineVector<int64_t, CUDNN_DIM_MAX>& values;
    int64_t least;
  };
  if (spatial_dims < 1 || spatial_dims > CUDNN_DIM_MAX - 2) {
    return Status::Error(Code::kBadParam, "{} spatial dimensions; 1 to {} are possible",
                         spatial_dims, CUDNN_DIM_MAX - 2);
  }
  constexpr int64_t kMost = int64_t{1} << 40;  // keeps sums of paddings and windows within 64 bits
  for (const Array& a :
       {Array{"dilations", dilations, 1}, Array{"filter strides", strides, 1},
        Array{"pre-paddings", pre_paddings, 0}, Array{"post-paddings", post_paddings, 0}}) {
    if (static_cast<int64_t>(a.values.size()) != spatial_dims) {
      return Status::Error(Code::kBadParam, "{} {} for {} spatial dimensions", a.values.size(),
                           a.name, spatial_dims);
    }
    for (int64_t value : a.values) {
      if (value >= a.least && value <= kMost) continue;
      return Status::Error(Code::kBadParam, "{} among the {}, which are at least {}", value, a.name,
                           a.least);
    }
  }
  return {};
}

Status OperationConvolution::Finalize() {
  auto spatial = static_cast<size_t>(convolution->spatial_dims);
  size_t rank = image->dims.size();
  if (filter->dims.size() != rank || response->dims.size() != rank ||
      (rank != spatial + 2 && rank != spatial + 3)) {
    return Status::Error(Code::kBadParam,
                         "image {}, filter {} and response {} must all have {} or {} dimensions",
                         image->Text(), filter->Text(), response->Text(), spatial + 2, spatial + 3);
  }
  RETURN_IF_ERROR(CheckChannels(*this, rank == spatial + 3));
  return CheckSpatial(*this, rank - spatial);
}

Status OperationConvolution::ImportAs(GraphImport& import, graph::GraphOp op,
                                      const Ref<TensorDesc>& first, const Ref<TensorDesc>& second,
                                      const Ref<TensorDesc>& result) const {
  const ConvolutionDesc& c = *convolution;
  graph::ConvAttrs attrs{.pre_padding = Dims(c.pre_paddings.begin(), c.pre_paddings.end()),
                         .post_padding = Dims(c.post_paddings.begin(), c.post_paddings.end()),
                         .stride = Dims(c.strides.begin(), c.strides.end()),
                         .dilation = Dims(c.dilations.begin(), c.dilations.end()),
                         .flip = c.mode == CUDNN_CONVOLUTION,
                         .alpha = alpha.value,
                         .beta = beta.value};
  const TensorDesc* before = beta.value != 0 ? result.get() : nullptr;
  bool has_group_dim = image->dims.size() == static_cast<size_t>(c.spatial_dims) + 3;
  if (!has_group_dim) {
    return import.Add(op, {first.get(), second.get(), before}, {result.get()}, c.compute_type,
                      std::move(attrs));
  }
  // The graph's convolutions have groups folded into the channels: reshape on the way in and out.
  ASSIGN_OR_RETURN(DType compute, ComputeType(c.compute_type));
  auto group_dim = [&](const TensorDesc& t) { return &t == filter.get() ? size_t{0} : size_t{1}; };
  std::vector<graph::TensorId> inputs;
  for (const TensorDesc* in : {first.get(), second.get(), before}) {
    if (in == nullptr) continue;
    ASSIGN_OR_RETURN(graph::TensorId from,
                     in == result.get() ? import.Previous(*in) : import.Tensor(*in));
    ASSIGN_OR_RETURN(graph::TensorId folded, FoldGroups(import, *in, group_dim(*in)));
    ASSIGN_OR_RETURN(DType moving, ComputeType(MovingType(in->data_type)));
    import.AddNode(graph::GraphOp::kReshape, {from}, {folded}, moving, graph::ReshapeAttrs{});
    inputs.push_back(folded);
  }
  ASSIGN_OR_RETURN(graph::TensorId to, import.Tensor(*result));
  ASSIGN_OR_RETURN(graph::TensorId folded, FoldGroups(import, *result, group_dim(*result)));
  ASSIGN_OR_RETURN(DType moving, ComputeType(MovingType(result->data_type)));
  import.AddNode(op, std::move(inputs), {folded}, compute, std::move(attrs));
  import.AddNode(graph::GraphOp::kReshape, {folded}, {to}, moving, graph::ReshapeAttrs{});
  return {};
}

Status ConvolutionForwardDesc::Import(GraphImport& import) const {
  return ImportAs(import, graph::GraphOp::kConvFprop, image, filter, response);
}

Status ConvolutionBwdDataDesc::Import(GraphImport& import) const {
  return ImportAs(import, graph::GraphOp::kConvDgrad, response, filter, image);
}

Status ConvolutionBwdFilterDesc::Import(GraphImport& import) const {
  return ImportAs(import, graph::GraphOp::kConvWgrad, image, response, filter);
}

}  // namespace kiln::api
