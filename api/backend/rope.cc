#include "api/backend/rope.h"

#include <algorithm>

#include "ir/graph/rope.h"

namespace kiln::api {
namespace {

using Forward = RopeForwardDesc;
using Backward = RopeBackwardDesc;

constexpr AttrRow kForwardRows[] = {
    Attr<&Forward::x>(CUDNN_ATTR_OPERATION_ROPE_FWD_XDESC),
    Attr<&Forward::y>(CUDNN_ATTR_OPERATION_ROPE_FWD_YDESC),
    Attr<&Forward::freqs>(CUDNN_ATTR_OPERATION_ROPE_FWD_FREQSDESC),
    Attr<&Forward::output_scale>(CUDNN_ATTR_OPERATION_ROPE_FWD_OUTPUT_SCALE, Use::kOptional),
    Attr<&Forward::rope_dim>(CUDNN_ATTR_OPERATION_ROPE_FWD_ROPE_DIM, Use::kOptional),
};

constexpr AttrRow kBackwardRows[] = {
    Attr<&Backward::x>(CUDNN_ATTR_OPERATION_ROPE_BWD_DYDESC),
    Attr<&Backward::y>(CUDNN_ATTR_OPERATION_ROPE_BWD_DXDESC),
    Attr<&Backward::freqs>(CUDNN_ATTR_OPERATION_ROPE_BWD_FREQSDESC),
    Attr<&Backward::output_scale>(CUDNN_ATTR_OPERATION_ROPE_BWD_OUTPUT_SCALE, Use::kOptional),
    Attr<&Backward::rope_dim>(CUDNN_ATTR_OPERATION_ROPE_BWD_ROPE_DIM, Use::kOptional),
};

Status CheckFloat(const char* name, const TensorDesc& t) {
  ASSIGN_OR_RETURN(const DType dtype, ElementType(t.data_type));
  if (IsFloat(dtype)) return {};
  return Status::Error(Code::kBadParam, "{}, {}, is {}; only floating-point types are turned", name,
                       t.Text(), NameOf(t.data_type));
}

// Extents of x and y are equal; angles have one row a place, or more, and one a turned element.
Status CheckExtents(const TensorDesc& x, const TensorDesc& y, const TensorDesc& freqs,
                    int64_t rope_dim) {
  const size_t rank = x.dims.size();
  if (rank < 2)
    return Status::Error(Code::kBadParam, "{} has no dim of places before its last one", x.Text());
  if (!std::ranges::equal(x.dims, y.dims))
    return Status::Error(Code::kBadParam, "{} and {} must have equal extents", x.Text(), y.Text());
  const int64_t places = x.dims[rank - 2], depth = x.dims[rank - 1];
  if (depth % 2 != 0)
    return Status::Error(Code::kBadParam, "the last dim of {}, {}, must be even", x.Text(), depth);
  if (rope_dim < 2 || rope_dim > depth || rope_dim % 2 != 0) {
    return Status::Error(Code::kBadParam,
                         "{} elements to turn; of {} it may be an even number of 2 to {}", rope_dim,
                         x.Text(), depth);
  }
  const auto& angles = freqs.dims;
  bool fits = angles.size() == rank && angles[0] >= places && angles[rank - 1] >= rope_dim;
  for (size_t d = 1; fits && d + 1 < rank; ++d) fits = angles[d] == 1;
  if (fits) return {};
  return Status::Error(
      Code::kBadParam,
      "the angles, {}, must have {} dims: first at least {}, the places of {}, last "
      "at least {}, the elements to turn, and 1 between",
      freqs.Text(), rank, places, x.Text(), rope_dim);
}

}  // namespace

template <>
std::span<const AttrRow> RopeForwardDesc::Rows() {
  return kForwardRows;
}
template <>
std::span<const AttrRow> RopeBackwardDesc::Rows() {
  return kBackwardRows;
}

template <cudnnBackendDescriptorType_t T>
Status RopeOf<T>::Finalize() {
  if (x->data_type != y->data_type) {
    return Status::Error(Code::kBadParam, "{} is {}, and {} is {}; the types must be equal",
                         x->Text(), NameOf(x->data_type), y->Text(), NameOf(y->data_type));
  }
  RETURN_IF_ERROR(CheckFloat("the input", *x));
  RETURN_IF_ERROR(CheckFloat("the tensor of angles", *freqs));
  const int64_t depth = x->dims.empty() ? 0 : x->dims[x->dims.size() - 1];
  const int64_t turned = rope_dim == 0 ? depth : rope_dim;
  RETURN_IF_ERROR(CheckExtents(*x, *y, *freqs, turned));
  rope_dim = turned;
  return {};
}

template <cudnnBackendDescriptorType_t T>
Status RopeOf<T>::Import(GraphImport& import) const {
  // The two elements of a pair are turned apart: in place, one would read the other turned already.
  if (y->uid == x->uid || y->uid == freqs->uid) {
    return Status::Error(Code::kNotSupported,
                         "Kiln does not turn elements where they lie: the result is the operand {}",
                         y->Text());
  }
  ASSIGN_OR_RETURN(const graph::TensorId from, import.Tensor(*x));
  ASSIGN_OR_RETURN(const graph::TensorId angles, import.Tensor(*freqs));
  ASSIGN_OR_RETURN(const graph::TensorId to, import.Write(*y));
  graph::SpellRope(import.graph(), {.x = from,
                                    .freqs = angles,
                                    .y = to,
                                    .scale = output_scale,
                                    .rope_dim = rope_dim,
                                    .is_backward = T == RopeBackwardDesc::kType});
  return {};
}

template struct RopeOf<CUDNN_BACKEND_OPERATION_ROPE_FWD_DESCRIPTOR>;
template struct RopeOf<CUDNN_BACKEND_OPERATION_ROPE_BWD_DESCRIPTOR>;

}  // namespace kiln::api
