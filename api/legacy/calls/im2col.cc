// cudnnIm2Col and cudnnReorderFilterAndBias. Reference 5.2.31 and 5.2.32.
#include <algorithm>

#include "api/legacy/calls/convolution.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/places.h"

namespace kiln::api::legacy {
namespace {

using graph::TensorId;

bool HasFloats(int type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE || type == CUDNN_DATA_HALF ||
         type == CUDNN_DATA_BFLOAT16;
}

// The reference's matrix has a row for each place of the output and a column for each tap of each
// channel, "in format HW": rows are contiguous, so that memory has the transposed matrix.
Result<TensorDesc> DescribeColumns(const ConvolutionDesc& conv, const TensorDesc& x,
                                   const FilterDesc& w) {
  RETURN_IF_ERROR(CheckSet(x, "srcDesc"));
  for (const int type : {x.type, w.type, conv.compute}) {
    if (!HasFloats(type))
      return Status::Error(Code::kNotSupported, "columns of data type {}; floats are possible",
                           type);
  }
  if (conv.groups > 1)
    return Status::Error(Code::kNotSupported, "columns of {} groups", conv.groups);
  if (x.rank != 4)
    return Status::Error(Code::kNotSupported, "columns of {} dims; 4 are possible", x.rank);
  ASSIGN_OR_RETURN(const Lengths y, OutputDims(conv, x, w));
  int64_t rows = y[0], columns = x.dims[1];
  for (size_t d = 2; d < static_cast<size_t>(x.rank); ++d) {
    rows *= y[d];
    columns *= w.dims[d];
  }
  if (rows * columns > INT32_MAX)
    return Status::Error(Code::kNotSupported, "{} by {} columns", rows, columns);
  TensorDesc matrix;
  const int dims[] = {static_cast<int>(columns), static_cast<int>(rows)};
  RETURN_IF_ERROR(SetPackedTensor(matrix, CUDNN_TENSOR_NCHW, x.type, dims));
  return matrix;
}

// x[N,C,H,W] -> [N,C,R P,S Q] -> [N,C,R,P,S,Q] -> [C,R,S,N,P,Q] -> [C R S, N P Q].
TensorId Columns(CallGraph& g, TensorId x, const ConvolutionDesc& conv, const FilterDesc& w,
                 const Lengths& y) {
  const Dims from = g.DimsOf(x);
  for (size_t s = 0; s < 2; ++s) {
    const auto axis = static_cast<int64_t>(s) + 2;
    int64_t tap = conv.dilation[s], first = -int64_t{conv.padding[s]};
    if (conv.mode == CUDNN_CONVOLUTION) {
      first += tap * (w.dims[s + 2] - 1);
      tap = -tap;
    }
    const TensorId places =
        PlacesAlong(g, {w.dims[s + 2], y[s + 2]}, {tap, conv.stride[s]}, first, axis, 4);
    x = AtPlaces(g, x, places, axis);
  }
  x = Reshaped(g, x, {from[0], from[1], w.dims[2], y[2], w.dims[3], y[3]});
  x = Transposed(g, x, {1, 2, 4, 0, 3, 5});
  return Reshaped(g, x, {from[1] * w.dims[2] * w.dims[3], from[0] * y[2] * y[3]});
}

// ---- cudnnReorderFilterAndBias

Status CheckReorder(const FilterDesc& filter) {
  if (filter.rank == 0) return Status::Text(Code::kBadParam, "the filter descriptor was not set");
  if (filter.type != CUDNN_DATA_INT8x32)
    return Status::Error(Code::kNotSupported, "{}: filters of INT8x32 are reordered", Text(filter));
  return {};
}

Status Copy(Handle& handle, const char* part, const TensorDesc& from, const void* x,
            const TensorDesc& to, void* y) {
  Call call(handle, part);
  const Operand source = call.Memory(from, x), result = call.Memory(to, y);
  return call.Run({}, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const TensorId value, g.Read(source));
    return g.Write(value, result);
  });
}

}  // namespace

Status Im2Col(void* handle, void* x_desc, const void* x, void* w_desc, void* conv_desc,
              void* columns) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const FilterDesc* w, Get<FilterDesc>(w_desc));
  ASSIGN_OR_RETURN(const ConvolutionDesc* conv, Get<ConvolutionDesc>(conv_desc));
  RETURN_IF_ERROR(NotNull(x, "srcData"));
  RETURN_IF_ERROR(NotNull(columns, "colBuffer"));
  ASSIGN_OR_RETURN(const TensorDesc matrix, DescribeColumns(*conv, *from, *w));
  Call call(*h, "cudnnIm2Col");
  const ConvolutionDesc plain = PlainOf(*conv, w->dims);
  call.Add(plain);
  call.Add(*w);
  const Operand source = call.Memory(*from, x), result = call.Memory(matrix, columns);
  return call.Run({}, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const Lengths y, OutputDims(plain, *from, *w));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(source));
    return g.Write(Columns(g, value, plain, *w, y), result);
  });
}

Status ReorderFilterAndBias(void* handle, void* filter_desc, int reorder, const void* filter,
                            void* reordered_filter, int reorder_bias, const void* bias,
                            void* reordered_bias) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const FilterDesc* desc, Get<FilterDesc>(filter_desc));
  RETURN_IF_ERROR(CheckEnum(reorder, CUDNN_NO_REORDER, "cudnnReorderType_t"));
  RETURN_IF_ERROR(NotNull(filter, "filterData"));
  RETURN_IF_ERROR(NotNull(reordered_filter, "reorderedFilterData"));
  if (reorder_bias > 0) {
    RETURN_IF_ERROR(NotNull(bias, "biasData"));
    RETURN_IF_ERROR(NotNull(reordered_bias, "reorderedBiasData"));
  }
  RETURN_IF_ERROR(CheckReorder(*desc));
  ASSIGN_OR_RETURN(const TensorDesc from, Described(*desc));
  TensorDesc to = from;
  to.reordered = reorder == CUDNN_DEFAULT_REORDER;
  RETURN_IF_ERROR(Copy(*h, "cudnnReorderFilterAndBias", from, filter, to, reordered_filter));
  if (reorder_bias <= 0) return {};
  TensorDesc plain;
  const int dims[] = {1, desc->dims[0], 1, 1};
  RETURN_IF_ERROR(SetPackedTensor(plain, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, dims));
  TensorDesc fragments = plain;
  fragments.reordered = to.reordered;
  return Copy(*h, "cudnnReorderFilterAndBias", plain, bias, fragments, reordered_bias);
}

}  // namespace kiln::api::legacy
