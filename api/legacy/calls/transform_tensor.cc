// cudnnTransformTensorEx and cudnnTransformFilter. Reference 3.2.99 and 3.2.101.
#include <algorithm>

#include "api/legacy/descriptors/transform.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"
#include "api/legacy/plans/places.h"

namespace kiln::api::legacy {
namespace {

using graph::TensorId;

int64_t FoldOf(const TensorTransformDesc& t, size_t dim) {
  return dim < 2 ? 1 : std::max<int64_t>(t.fold[dim - 2], 1);
}

bool Folds(const TensorTransformDesc& t) {
  return t.direction == CUDNN_TRANSFORM_FOLD &&
         std::ranges::any_of(t.fold, [](uint32_t fold) { return fold > 1; });
}
// Cutting off is no padding.
bool Pads(const TensorTransformDesc& t) {
  const auto is_some = [](int32_t padding) { return padding > 0; };
  return std::ranges::any_of(t.before, is_some) || std::ranges::any_of(t.after, is_some);
}

// Dim `dim` begins `before` places earlier and has `extent`; nothing where that changes nothing.
TensorId Shifted(CallGraph& g, TensorId x, size_t dim, int64_t before, int64_t extent) {
  const Dims& dims = g.DimsOf(x);
  if (before == 0 && extent == dims[dim]) return x;
  const auto axis = static_cast<int64_t>(dim), rank = static_cast<int64_t>(dims.size());
  return AtPlaces(g, x, PlacesAlong(g, {extent}, {1}, -before, axis, rank), axis);
}

// The dims as [N, C, the spatial ones before `dim`, dim, those behind it].
Dims Around(const Dims& dims, size_t dim) {
  Dims around = {dims[0], dims[1], 1, dims[dim], 1};
  for (size_t d = 2; d < dims.size(); ++d) {
    if (d != dim) around[d < dim ? 2 : 4] *= dims[d];
  }
  return around;
}

// Blocks of `fold` places become channels: all those of the first place come first.
TensorId FoldDim(CallGraph& g, TensorId x, size_t dim, int64_t fold) {
  Dims dims = g.DimsOf(x);
  const Dims a = Around(dims, dim);
  x = Reshaped(g, x, {a[0], a[1], a[2], a[3] / fold, fold, a[4]});
  x = Transposed(g, x, {0, 4, 1, 2, 3, 5});
  dims[1] *= fold;
  dims[dim] /= fold;
  return Reshaped(g, x, dims);
}

TensorId UnfoldDim(CallGraph& g, TensorId x, size_t dim, int64_t fold) {
  Dims dims = g.DimsOf(x);
  const Dims a = Around(dims, dim);
  x = Reshaped(g, x, {a[0], fold, a[1] / fold, a[2], a[3], a[4]});
  x = Transposed(g, x, {0, 2, 3, 4, 1, 5});
  dims[1] /= fold;
  dims[dim] *= fold;
  return Reshaped(g, x, dims);
}

// The channels' padding is that of the folded tensor, once for each place of a block, before the
// first block and behind the last one.
TensorId PadChannels(CallGraph& g, TensorId x, const TensorTransformDesc& t) {
  int64_t blocks = 1;
  for (size_t d = 2; d < static_cast<size_t>(t.rank); ++d) blocks *= FoldOf(t, d);
  const int64_t before = t.before[1] * blocks, after = t.after[1] * blocks;
  return Shifted(g, x, 1, before, g.DimsOf(x)[1] + before + after);
}

TensorId Transformed(CallGraph& g, TensorId x, const TensorTransformDesc& t) {
  const auto rank = static_cast<size_t>(t.rank);
  if (t.direction == CUDNN_TRANSFORM_UNFOLD) {
    x = PadChannels(g, x, t);
    for (size_t d = 2; d < rank; ++d) {
      if (FoldOf(t, d) > 1) x = UnfoldDim(g, x, d, FoldOf(t, d));
    }
  }
  for (size_t d = 0; d < rank; ++d) {
    if (d == 1) continue;
    const int64_t padded = g.DimsOf(x)[d] + t.before[d] + t.after[d];
    // A last block that is not full is filled up with zeros.
    const int64_t block = Folds(t) ? FoldOf(t, d) : 1;
    x = Shifted(g, x, d, t.before[d], (padded + block - 1) / block * block);
  }
  if (t.direction == CUDNN_TRANSFORM_FOLD) {
    for (size_t d = rank; d-- > 2;) {
      if (FoldOf(t, d) > 1) x = FoldDim(g, x, d, FoldOf(t, d));
    }
    x = PadChannels(g, x, t);
  }
  return x;
}

Status CheckTransform(const TensorTransformDesc& t, const TensorDesc& x, const TensorDesc& y,
                      const Blend& blend) {
  RETURN_IF_ERROR(CheckSet(x, "srcDesc"));
  RETURN_IF_ERROR(CheckSet(y, "destDesc"));
  ASSIGN_OR_RETURN(const Lengths dims, TransformedDims(t, x));
  if (y.rank != t.rank || y.dims != dims)
    return Status::Error(Code::kBadParam, "{} is not what the transform makes of {}", Text(y),
                         Text(x));
  if ((Folds(t) || Pads(t)) && (blend.alpha.slot >= 0 || blend.beta.slot >= 0))
    return Status::Text(Code::kNotSupported, "folding and padding take alpha 1 and beta 0");
  return {};
}

Status Run(Handle& handle, const char* function, const TensorTransformDesc& t, const void* alpha,
           const TensorDesc& x_desc, const void* x, const void* beta, const TensorDesc& y_desc,
           void* y) {
  Call call(handle, function);
  call.Add(t);
  const Operand from = call.Memory(x_desc, x), to = call.Memory(y_desc, y);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, to));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckTransform(t, x_desc, y_desc, blend));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(from));
    return g.Write(Transformed(g, value, t), to, blend);
  });
}

}  // namespace

Status TransformTensorEx(void* handle, void* transform, const void* alpha, void* x_desc,
                         const void* x, const void* beta, void* y_desc, void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorTransformDesc* t, Get<TensorTransformDesc>(transform));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* to, Get<TensorDesc>(y_desc));
  return Run(*h, "cudnnTransformTensorEx", *t, alpha, *from, x, beta, *to, y);
}

Status TransformFilter(void* handle, void* transform, const void* alpha, void* x_desc,
                       const void* x, const void* beta, void* y_desc, void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const TensorTransformDesc* t, Get<TensorTransformDesc>(transform));
  ASSIGN_OR_RETURN(const FilterDesc* from, Get<FilterDesc>(x_desc));
  ASSIGN_OR_RETURN(const FilterDesc* to, Get<FilterDesc>(y_desc));
  ASSIGN_OR_RETURN(const TensorDesc from_tensor, Described(*from));
  ASSIGN_OR_RETURN(const TensorDesc to_tensor, Described(*to));
  return Run(*h, "cudnnTransformFilter", *t, alpha, from_tensor, x, beta, to_tensor, y);
}

}  // namespace kiln::api::legacy
