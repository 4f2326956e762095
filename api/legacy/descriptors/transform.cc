#include "api/legacy/descriptors/transform.h"

#include <algorithm>

#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

template <class T, class Array>
void CopyOrClear(const T* from, size_t count, Array& to) {
  to = {};
  if (from != nullptr) std::copy_n(from, count, to.begin());
}

void Pad(const TensorTransformDesc& t, std::array<int64_t, CUDNN_DIM_MAX>& dims) {
  for (size_t d = 0; d < static_cast<size_t>(t.rank); ++d)
    dims[d] += int64_t{t.before[d]} + t.after[d];
}

}  // namespace

Result<Lengths> TransformedDims(const TensorTransformDesc& t, const TensorDesc& x) {
  if (t.rank == 0 || x.rank != t.rank)
    return Status::Error(Code::kBadParam, "a transform of {} dims for {}", t.rank, Text(x));
  std::array<int64_t, CUDNN_DIM_MAX> dims = {};
  std::ranges::copy(x.dims, dims.begin());
  const bool folds = t.direction == CUDNN_TRANSFORM_FOLD;
  if (folds) Pad(t, dims);
  for (size_t s = 0; s + 2 < static_cast<size_t>(t.rank); ++s) {
    const int64_t fold = std::max<int64_t>(t.fold[s], 1);
    if (!folds && dims[1] % fold != 0)
      return Status::Error(Code::kBadParam, "{} channels are no blocks of {} places of dim {}",
                           dims[1], fold, s + 2);
    dims[1] = folds ? dims[1] * fold : dims[1] / fold;
    dims[s + 2] = folds ? (dims[s + 2] + fold - 1) / fold : dims[s + 2] * fold;
  }
  if (!folds) Pad(t, dims);
  Lengths result = {};
  for (size_t d = 0; d < static_cast<size_t>(t.rank); ++d) {
    if (dims[d] <= 0 || dims[d] > INT32_MAX)
      return Status::Error(Code::kBadParam, "the transform leaves {} of dim {} of {}", dims[d], d,
                           Text(x));
    result[d] = static_cast<int32_t>(dims[d]);
  }
  return result;
}

Status CreateTensorTransformDescriptor(void** out) {
  return CreateDescriptor<TensorTransformDesc>(out);
}
Status DestroyTensorTransformDescriptor(void* object) {
  return DestroyDescriptor<TensorTransformDesc>(object);
}

Status SetTensorTransformDescriptor(void* object, uint32_t rank, int format, const int32_t* before,
                                    const int32_t* after, const uint32_t* fold, int direction) {
  ASSIGN_OR_RETURN(TensorTransformDesc * transform, Get<TensorTransformDesc>(object));
  if (rank <= 2)
    return Status::Error(Code::kBadParam, "{} dims; a transform has 3 to {}", rank, CUDNN_DIM_MAX);
  if (rank > CUDNN_DIM_MAX)
    return Status::Error(Code::kNotSupported, "{} dims; a transform has 3 to {}", rank,
                         CUDNN_DIM_MAX);
  if (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC)
    return Status::Error(Code::kNotSupported, "a transform makes NCHW or NHWC, not format {}",
                         format);
  RETURN_IF_ERROR(CheckEnum(direction, CUDNN_TRANSFORM_UNFOLD, "cudnnFoldingDirection_t"));
  transform->rank = static_cast<int32_t>(rank);
  transform->format = format;
  transform->direction = direction;
  CopyOrClear(before, rank, transform->before);
  CopyOrClear(after, rank, transform->after);
  CopyOrClear(fold, rank - 2, transform->fold);
  return {};
}

Status GetTensorTransformDescriptor(void* object, uint32_t wanted, int* format, int32_t* before,
                                    int32_t* after, uint32_t* fold, int* direction) {
  ASSIGN_OR_RETURN(const TensorTransformDesc* transform, Get<TensorTransformDesc>(object));
  if (wanted == 0) return Status::Text(Code::kBadParam, "0 dims are asked for");
  const size_t count = std::min<size_t>(wanted, CUDNN_DIM_MAX);
  Store(format, transform->format);
  Store(direction, transform->direction);
  if (before != nullptr) std::copy_n(transform->before.begin(), count, before);
  if (after != nullptr) std::copy_n(transform->after.begin(), count, after);
  if (fold != nullptr && count > 2) std::copy_n(transform->fold.begin(), count - 2, fold);
  return {};
}

Status InitTransformDest(void* object, void* source, void* destination, size_t* bytes) {
  ASSIGN_OR_RETURN(const TensorTransformDesc* transform, Get<TensorTransformDesc>(object));
  ASSIGN_OR_RETURN(const TensorDesc* x, Get<TensorDesc>(source));
  ASSIGN_OR_RETURN(TensorDesc * y, Get<TensorDesc>(destination));
  if (x->vector != 1) return Status::Text(Code::kNotSupported, "a transform takes no NCHW_VECT_C");
  ASSIGN_OR_RETURN(const Lengths dims, TransformedDims(*transform, *x));
  RETURN_IF_ERROR(SetPackedTensor(*y, transform->format, x->type,
                                  std::span(dims).first(static_cast<size_t>(transform->rank))));
  Store(bytes, Span(*y) * ElementBytes(y->type));
  return {};
}

}  // namespace kiln::api::legacy
