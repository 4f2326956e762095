#include "api/legacy/descriptors/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "api/legacy/functions.h"
#include "api/spec/names.h"

namespace kiln::api::legacy {
namespace {

constexpr int64_t kMostElements = INT32_MAX;  // "2 Giga-elements"

struct TypeRow {
  int bytes, vector;
};
// The types by cudnnDataType_t; those behind are the backend API's alone.
constexpr TypeRow kTypes[] = {{4, 1}, {8, 1}, {2, 1}, {1, 1},   {4, 1},
                              {4, 4}, {1, 1}, {4, 4}, {32, 32}, {2, 1}};
static_assert(std::size(kTypes) == CUDNN_DATA_BFLOAT16 + 1);

Status CheckType(int type) { return CheckEnum(type, CUDNN_DATA_BFLOAT16, "data type of a tensor"); }

Status CheckExtents(std::span<const int> dims, std::string_view what) {
  for (const int n : dims) {
    if (n <= 0)
      return Status::Error(Code::kBadParam, "{} [{}] are not all positive", what,
                           fmt::join(dims, ","));
  }
  return {};
}

// A list of the client's, with as many lengths as it says.
Result<std::span<const int>> List(const int* lengths, int count, std::string_view what, int least) {
  RETURN_IF_ERROR(NotNull(lengths, what));
  if (count < least)
    return Status::Error(Code::kBadParam, "{}: {} dims; {} to {} are possible", what, count, least,
                         CUDNN_DIM_MAX);
  if (count > CUDNN_DIM_MAX)
    return Status::Error(Code::kNotSupported, "{}: {} dims; {} to {} are possible", what, count,
                         least, CUDNN_DIM_MAX);
  return std::span<const int>(lengths, static_cast<size_t>(count));
}

Lengths LengthsOf(std::span<const int> list) {
  Lengths lengths = {};
  std::ranges::copy(list, lengths.begin());
  return lengths;
}

// Channels of NCHW_VECT_C come in whole vectors of a type that has some.
Status CheckVectors(int type, int channels) {
  const int vector = VectorOf(type);
  if (vector == 1)
    return Status::Error(Code::kBadParam, "NCHW_VECT_C has no elements of type {}",
                         NameOf(static_cast<cudnnDataType_t>(type)));
  if (channels % vector != 0)
    return Status::Error(Code::kBadParam, "{} channels are not whole vectors of {}", channels,
                         vector);
  return {};
}

Status Commit(TensorDesc& tensor, const TensorDesc& made) {
  if (Span(made) > kMostElements) {
    return Status::Error(Code::kNotSupported, "{} spans {} elements; {} are possible", Text(made),
                         Span(made), kMostElements);
  }
  tensor = made;
  return {};
}

template <class T>
void CopyLengths(const Lengths& from, int count, T* to) {
  if (to != nullptr) std::copy_n(from.begin(), std::clamp(count, 0, CUDNN_DIM_MAX), to);
}

Status SetFilter(void* object, int type, int format, std::span<const int> dims) {
  ASSIGN_OR_RETURN(FilterDesc * filter, Get<FilterDesc>(object));
  RETURN_IF_ERROR(CheckType(type));
  RETURN_IF_ERROR(CheckEnum(format, CUDNN_TENSOR_NCHW_VECT_C, "cudnnTensorFormat_t"));
  RETURN_IF_ERROR(CheckExtents(dims, "the extents of a filter"));
  if (format == CUDNN_TENSOR_NCHW_VECT_C) RETURN_IF_ERROR(CheckVectors(type, dims[1]));
  *filter = {.type = type,
             .format = format,
             .rank = static_cast<int32_t>(dims.size()),
             .dims = LengthsOf(dims)};
  return {};
}

// One scale, bias, mean or variance for each channel, or for each activation of an image.
Status SetStatistics(TensorDesc& derived, const TensorDesc& x, bool per_channel) {
  Lengths dims = x.dims;
  dims[0] = 1;
  if (per_channel) std::fill(dims.begin() + 2, dims.begin() + x.rank, 1);
  const int type = x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  return SetPackedTensor(derived, CUDNN_TENSOR_NCHW, type,
                         std::span(dims).first(static_cast<size_t>(x.rank)));
}

}  // namespace

int ElementBytes(int type) { return kTypes[type].bytes; }
int VectorOf(int type) { return type <= CUDNN_DATA_BFLOAT16 ? kTypes[type].vector : 1; }

Lengths StridesOfFormat(int format, int rank, const Lengths& dims, int vector) {
  Lengths strides = {};
  int64_t stride = 1;
  const auto place = [&](int dim) {
    strides[static_cast<size_t>(dim)] = static_cast<int32_t>(std::min<int64_t>(stride, INT32_MAX));
    stride *= dims[static_cast<size_t>(dim)] / (dim == 1 ? vector : 1);
  };
  const bool channels_first = format == CUDNN_TENSOR_NHWC;
  if (channels_first) place(1);
  for (int dim = rank - 1; dim >= 0; --dim) {
    if (dim != 1 || !channels_first) place(dim);
  }
  return strides;
}

std::string Text(const TensorDesc& t) {
  const auto rank = static_cast<size_t>(t.rank);
  if (rank == 0) return "a tensor descriptor that was not set";
  return fmt::format("{} [{}] strides [{}]", NameOf(static_cast<cudnnDataType_t>(t.type)),
                     fmt::join(std::span(t.dims).first(rank), ","),
                     fmt::join(std::span(t.strides).first(rank), ","));
}

std::string Text(const FilterDesc& f) {
  if (f.rank == 0) return "a filter descriptor that was not set";
  return fmt::format("{} filter [{}]", NameOf(static_cast<cudnnDataType_t>(f.type)),
                     fmt::join(std::span(f.dims).first(static_cast<size_t>(f.rank)), ","));
}

int64_t Span(const TensorDesc& t) {
  int64_t span = t.rank == 0 ? 0 : 1;
  for (size_t d = 0; d < static_cast<size_t>(t.rank); ++d)
    span += (int64_t{t.dims[d]} / (d == 1 ? t.vector : 1) - 1) * t.strides[d];
  return span;
}

Status SetTensor(TensorDesc& tensor, int type, std::span<const int> dims,
                 std::span<const int> strides) {
  RETURN_IF_ERROR(CheckType(type));
  RETURN_IF_ERROR(CheckExtents(dims, "the extents of a tensor"));
  RETURN_IF_ERROR(CheckExtents(strides, "the strides of a tensor"));
  return Commit(tensor, {.type = type,
                         .rank = static_cast<int32_t>(dims.size()),
                         .dims = LengthsOf(dims),
                         .strides = LengthsOf(strides)});
}

Status SetPackedTensor(TensorDesc& tensor, int format, int type, std::span<const int> dims) {
  RETURN_IF_ERROR(CheckType(type));
  RETURN_IF_ERROR(CheckEnum(format, CUDNN_TENSOR_NCHW_VECT_C, "cudnnTensorFormat_t"));
  RETURN_IF_ERROR(CheckExtents(dims, "the extents of a tensor"));
  if (format == CUDNN_TENSOR_NCHW_VECT_C) RETURN_IF_ERROR(CheckVectors(type, dims[1]));
  TensorDesc made = {.type = type,
                     .rank = static_cast<int32_t>(dims.size()),
                     .vector = format == CUDNN_TENSOR_NCHW_VECT_C ? VectorOf(type) : 1,
                     .dims = LengthsOf(dims)};
  made.strides = StridesOfFormat(format, made.rank, made.dims, made.vector);
  return Commit(tensor, made);
}

Result<TensorDesc> Described(const FilterDesc& filter) {
  TensorDesc w;
  if (filter.rank == 0) return w;
  RETURN_IF_ERROR(SetPackedTensor(w, filter.format, filter.type,
                                  std::span(filter.dims).first(static_cast<size_t>(filter.rank))));
  return w;
}

// ---- tensors

Status CreateTensorDescriptor(void** out) { return CreateDescriptor<TensorDesc>(out); }
Status DestroyTensorDescriptor(void* object) { return DestroyDescriptor<TensorDesc>(object); }

Status SetTensor4dDescriptor(void* object, int format, int type, int n, int c, int h, int w) {
  ASSIGN_OR_RETURN(TensorDesc * tensor, Get<TensorDesc>(object));
  const int dims[] = {n, c, h, w};
  return SetPackedTensor(*tensor, format, type, dims);
}

Status SetTensor4dDescriptorEx(void* object, int type, int n, int c, int h, int w, int n_stride,
                               int c_stride, int h_stride, int w_stride) {
  ASSIGN_OR_RETURN(TensorDesc * tensor, Get<TensorDesc>(object));
  const int dims[] = {n, c, h, w}, strides[] = {n_stride, c_stride, h_stride, w_stride};
  return SetTensor(*tensor, type, dims, strides);
}

Status GetTensor4dDescriptor(void* object, int* type, int* n, int* c, int* h, int* w, int* n_stride,
                             int* c_stride, int* h_stride, int* w_stride) {
  ASSIGN_OR_RETURN(const TensorDesc* tensor, Get<TensorDesc>(object));
  Store(type, tensor->type);
  int* const dims[] = {n, c, h, w};
  int* const strides[] = {n_stride, c_stride, h_stride, w_stride};
  for (size_t d = 0; d < 4; ++d) {
    Store(dims[d], tensor->dims[d]);
    Store(strides[d], tensor->strides[d]);
  }
  return {};
}

Status SetTensorNdDescriptor(void* object, int type, int rank, const int* dims,
                             const int* strides) {
  ASSIGN_OR_RETURN(TensorDesc * tensor, Get<TensorDesc>(object));
  ASSIGN_OR_RETURN(const std::span<const int> extents, List(dims, rank, "dimA", 2));
  ASSIGN_OR_RETURN(const std::span<const int> steps, List(strides, rank, "strideA", 2));
  return SetTensor(*tensor, type, extents, steps);
}

Status SetTensorNdDescriptorEx(void* object, int format, int type, int rank, const int* dims) {
  ASSIGN_OR_RETURN(TensorDesc * tensor, Get<TensorDesc>(object));
  ASSIGN_OR_RETURN(const std::span<const int> extents, List(dims, rank, "dimA", 2));
  return SetPackedTensor(*tensor, format, type, extents);
}

Status GetTensorNdDescriptor(void* object, int wanted, int* type, int* rank, int* dims,
                             int* strides) {
  ASSIGN_OR_RETURN(const TensorDesc* tensor, Get<TensorDesc>(object));
  Store(type, tensor->type);
  Store(rank, tensor->rank);
  const int count = std::min(wanted, tensor->rank);
  CopyLengths(tensor->dims, count, dims);
  CopyLengths(tensor->strides, count, strides);
  return {};
}

Status GetTensorSizeInBytes(void* object, size_t* size) {
  ASSIGN_OR_RETURN(const TensorDesc* tensor, Get<TensorDesc>(object));
  RETURN_IF_ERROR(NotNull(size, "the place for the size"));
  *size = static_cast<size_t>(Span(*tensor) * ElementBytes(tensor->type));
  return {};
}

Status DeriveBNTensorDescriptor(void* derived, void* x, int mode) {
  ASSIGN_OR_RETURN(TensorDesc * to, Get<TensorDesc>(derived));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(x));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_BATCHNORM_SPATIAL_PERSISTENT, "cudnnBatchNormMode_t"));
  if (from->rank == 0) return Status::Text(Code::kBadParam, "xDesc was not set");
  return SetStatistics(*to, *from, mode != CUDNN_BATCHNORM_PER_ACTIVATION);
}

Status DeriveNormTensorDescriptor(void* scale_bias, void* mean_variance, void* x, int mode,
                                  int groups) {
  ASSIGN_OR_RETURN(TensorDesc * scale, Get<TensorDesc>(scale_bias));
  ASSIGN_OR_RETURN(TensorDesc * mean, Get<TensorDesc>(mean_variance));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(x));
  if (groups != 1)
    return Status::Error(Code::kNotSupported, "groupCnt is {}; cuDNN knows 1 alone", groups);
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_NORM_PER_CHANNEL, "cudnnNormMode_t"));
  if (from->rank == 0) return Status::Text(Code::kBadParam, "xDesc was not set");
  RETURN_IF_ERROR(SetStatistics(*scale, *from, mode == CUDNN_NORM_PER_CHANNEL));
  *mean = *scale;
  return {};
}

// ---- filters

Status CreateFilterDescriptor(void** out) { return CreateDescriptor<FilterDesc>(out); }
Status DestroyFilterDescriptor(void* object) { return DestroyDescriptor<FilterDesc>(object); }

Status SetFilter4dDescriptor(void* object, int type, int format, int k, int c, int h, int w) {
  const int dims[] = {k, c, h, w};
  return SetFilter(object, type, format, dims);
}

Status SetFilterNdDescriptor(void* object, int type, int format, int rank, const int* dims) {
  RETURN_IF_ERROR(Get<FilterDesc>(object).status());
  ASSIGN_OR_RETURN(const std::span<const int> extents, List(dims, rank, "filterDimA", 3));
  return SetFilter(object, type, format, extents);
}

Status GetFilter4dDescriptor(void* object, int* type, int* format, int* k, int* c, int* h, int* w) {
  ASSIGN_OR_RETURN(const FilterDesc* filter, Get<FilterDesc>(object));
  Store(type, filter->type);
  Store(format, filter->format);
  int* const dims[] = {k, c, h, w};
  for (size_t d = 0; d < 4; ++d) Store(dims[d], filter->dims[d]);
  return {};
}

Status GetFilterNdDescriptor(void* object, int wanted, int* type, int* format, int* rank,
                             int* dims) {
  ASSIGN_OR_RETURN(const FilterDesc* filter, Get<FilterDesc>(object));
  if (wanted <= 0)
    return Status::Error(Code::kBadParam, "nbDimsRequested is {}; it must be positive", wanted);
  Store(type, filter->type);
  Store(format, filter->format);
  Store(rank, filter->rank);
  CopyLengths(filter->dims, std::min(wanted, filter->rank), dims);
  return {};
}

Status GetFilterSizeInBytes(void* object, size_t* size) {
  ASSIGN_OR_RETURN(const FilterDesc* filter, Get<FilterDesc>(object));
  RETURN_IF_ERROR(NotNull(size, "the place for the size"));
  size_t elements = filter->rank == 0 ? 0 : 1;
  for (size_t d = 0; d < static_cast<size_t>(filter->rank); ++d)
    elements *= static_cast<size_t>(filter->dims[d]);
  if (filter->format == CUDNN_TENSOR_NCHW_VECT_C)
    elements /= static_cast<size_t>(VectorOf(filter->type));
  *size = elements * static_cast<size_t>(ElementBytes(filter->type));
  return {};
}

}  // namespace kiln::api::legacy
