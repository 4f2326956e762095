// The weight space of recurrent networks: its size, and where each matrix and bias lies.
// Reference 7.2.24, 7.2.25, 7.2.28, 7.2.31 and 7.2.32.
//
// Clients call these thousands of times, on memory of the device or of the host, or on none:
// nothing is allocated or read. The layout itself is ir/graph/rnn.h's.
#include <algorithm>

#include "api/legacy/descriptors/rnn_descriptor.h"
#include "api/legacy/functions.h"
#include "api/lifecycle/handle.h"
#include "api/spec/generation.h"

namespace kiln::api::legacy {
namespace {

using graph::RnnAttrs;
using graph::RnnPlace;

struct WeightSpace {
  RnnAttrs attrs;
  int64_t input = 0;
  int type = CUDNN_DATA_FLOAT;
  size_t bytes = 0;  // as the client has it
  const void* base = nullptr;
};

// The status for a tensor that ends outside the buffer: 8 has the reference's, 9 that of 9.19.
Code OutsideCode() { return ThisGeneration().major == 8 ? Code::kInvalidValue : Code::kBadParam; }

// Gives the address of a tensor in the weight space, NULL if the network has no such tensor.
Result<void*> AddressOf(const WeightSpace& space, const RnnPlace& place, std::string_view what) {
  if (place.offset < 0) return nullptr;
  const auto element = static_cast<uint64_t>(ElementBytes(space.type));
  const uint64_t end = static_cast<uint64_t>(place.offset + place.rows * place.columns) * element;
  if (end > space.bytes)
    return Status::Error(OutsideCode(), "the {} ends at byte {} of a weight space of {}", what, end,
                         space.bytes);
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(space.base) +
                                 static_cast<uint64_t>(place.offset) * element);
}

Status CheckIndices(const WeightSpace& space, int pseudo_layer, int id) {
  RETURN_IF_ERROR(WeightElements(space.attrs, space.input).status());
  const int64_t layers = space.attrs.layers * graph::DirectionsOf(space.attrs);
  if (pseudo_layer < 0 || pseudo_layer >= layers)
    return Status::Error(Code::kBadParam, "pseudo-layer {}; the network has {}", pseudo_layer,
                         layers);
  const int64_t last = 2 * graph::BlocksOf(space.attrs.cell).gates;
  if (id < 0 || id > last)
    return Status::Error(Code::kBadParam, "linLayerID {}; 0 to {} are possible", id, last);
  const auto element = static_cast<uintptr_t>(ElementBytes(space.type));
  if (reinterpret_cast<uintptr_t>(space.base) % element != 0)
    return Status::Error(Code::kBadParam, "the weight space at {} is not aligned to its elements",
                         fmt::ptr(space.base));
  return {};
}

// Describes a tensor as [1, rows, columns], packed; gives an unset descriptor if it is absent.
TensorDesc TensorOf(const RnnPlace& place, int type) {
  if (place.offset < 0) return {};
  const auto rows = static_cast<int32_t>(place.rows), columns = static_cast<int32_t>(place.columns);
  const auto all = static_cast<int32_t>(std::min<int64_t>(place.rows * place.columns, INT32_MAX));
  return {.type = type, .rank = 3, .dims = {1, rows, columns}, .strides = {all, columns, 1}};
}

FilterDesc FilterOf(const RnnPlace& place, int type) {
  if (place.offset < 0) return {};
  return {.type = type,
          .rank = 3,
          .dims = {1, static_cast<int32_t>(place.rows), static_cast<int32_t>(place.columns)}};
}

// Clients ask for a descriptor and an address together, or for neither.
Status CheckPair(const void* desc, const void* address, std::string_view what) {
  if ((desc == nullptr) == (address == nullptr)) return {};
  return Status::Error(desc == nullptr ? Code::kBadParam : Code::kNullPointer,
                       "of the {}'s descriptor and address, one is NULL", what);
}

// ---- the forms of 8 that have neither width nor type in the network's descriptor ----

// Gives the width of x, which must be [batch, width, 1], packed.
Result<int64_t> InputWidth(void* x_desc) {
  ASSIGN_OR_RETURN(const TensorDesc* x, Get<TensorDesc>(x_desc));
  const bool is_packed = x->rank == 3 && x->dims[2] == 1 && x->strides[2] == 1 &&
                         x->strides[1] == 1 && x->strides[0] == x->dims[1];
  if (is_packed) return x->dims[1];
  return Status::Error(Code::kBadParam, "xDesc is {}; a packed one of batch, width and 1 is needed",
                       Text(*x));
}

Result<WeightSpace> SpaceOfV6(void* handle, void* rnn, void* x_desc, int type) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  ASSIGN_OR_RETURN(const RnnDesc* desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(CheckSet(*desc));
  ASSIGN_OR_RETURN(const int64_t width, InputWidth(x_desc));
  if (type != CUDNN_DATA_HALF && type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_DOUBLE)
    return Status::Error(Code::kNotSupported, "weights of data type {}", type);
  return WeightSpace{.attrs = AttrsOf(*desc), .input = width, .type = type};
}

Status LinLayerParams(void* handle, void* rnn, int pseudo_layer, void* x_desc, void* w_desc,
                      const void* w, int id, void* out_desc, void** address, bool is_matrix) {
  ASSIGN_OR_RETURN(const FilterDesc* whole, Get<FilterDesc>(w_desc));
  ASSIGN_OR_RETURN(WeightSpace space, SpaceOfV6(handle, rnn, x_desc, whole->type));
  ASSIGN_OR_RETURN(FilterDesc * filter, Get<FilterDesc>(out_desc));
  RETURN_IF_ERROR(NotNull(address, "the place for the address"));
  space.base = w;
  space.bytes = static_cast<size_t>(ElementBytes(whole->type));
  for (int d = 0; d < whole->rank; ++d)
    space.bytes *= static_cast<size_t>(whole->dims[static_cast<size_t>(d)]);
  RETURN_IF_ERROR(CheckIndices(space, pseudo_layer, id));
  const int64_t projection = 2 * graph::BlocksOf(space.attrs.cell).gates;
  if (!is_matrix && id == projection)
    return Status::Error(Code::kBadParam, "linLayerID {} has no bias", id);
  const RnnPlace place = is_matrix
                             ? graph::RnnMatrixPlace(space.attrs, space.input, pseudo_layer, id)
                             : graph::RnnBiasPlace(space.attrs, space.input, pseudo_layer, id);
  ASSIGN_OR_RETURN(*address, AddressOf(space, place, is_matrix ? "matrix" : "bias"));
  *filter = FilterOf(place, space.type);
  return {};
}

}  // namespace

Status GetRNNWeightSpaceSize(void* handle, void* rnn, size_t* bytes) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  ASSIGN_OR_RETURN(const RnnDesc* desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  if (desc->set_by == RnnDesc::kNever) {
    *bytes = 0;  // as 9.19 answers
    return {};
  }
  RETURN_IF_ERROR(CheckSetByV8(*desc));
  ASSIGN_OR_RETURN(const int64_t elements, WeightElements(AttrsOf(*desc), desc->input));
  *bytes = static_cast<size_t>(elements) * static_cast<size_t>(ElementBytes(desc->type));
  return {};
}

Status GetRNNWeightParams(void* handle, void* rnn, int32_t pseudo_layer, size_t bytes,
                          const void* base, int32_t id, void* matrix_desc, void** matrix,
                          void* bias_desc, void** bias) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  ASSIGN_OR_RETURN(const RnnDesc* desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(CheckSet(*desc));
  RETURN_IF_ERROR(CheckSetByV8(*desc));
  RETURN_IF_ERROR(CheckPair(matrix_desc, matrix, "matrix"));
  RETURN_IF_ERROR(CheckPair(bias_desc, bias, "bias"));
  const WeightSpace space = {.attrs = AttrsOf(*desc),
                             .input = desc->input,
                             .type = desc->type,
                             .bytes = bytes,
                             .base = base};
  RETURN_IF_ERROR(CheckIndices(space, pseudo_layer, id));
  const RnnPlace matrix_place = graph::RnnMatrixPlace(space.attrs, space.input, pseudo_layer, id),
                 bias_place = graph::RnnBiasPlace(space.attrs, space.input, pseudo_layer, id);
  if (matrix != nullptr) {
    ASSIGN_OR_RETURN(TensorDesc * out, Get<TensorDesc>(matrix_desc));
    ASSIGN_OR_RETURN(*matrix, AddressOf(space, matrix_place, "matrix"));
    *out = TensorOf(matrix_place, space.type);
  }
  if (bias != nullptr) {
    ASSIGN_OR_RETURN(TensorDesc * out, Get<TensorDesc>(bias_desc));
    ASSIGN_OR_RETURN(*bias, AddressOf(space, bias_place, "bias"));
    *out = TensorOf(bias_place, space.type);
  }
  return {};
}

Status GetRNNParamsSize(void* handle, void* rnn, void* x_desc, size_t* bytes, int type) {
  ASSIGN_OR_RETURN(const WeightSpace space, SpaceOfV6(handle, rnn, x_desc, type));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  ASSIGN_OR_RETURN(const int64_t elements, WeightElements(space.attrs, space.input));
  *bytes = static_cast<size_t>(elements) * static_cast<size_t>(ElementBytes(type));
  return {};
}

Status GetRNNLinLayerMatrixParams(void* handle, void* rnn, int pseudo_layer, void* x_desc,
                                  void* w_desc, const void* w, int id, void* matrix_desc,
                                  void** matrix) {
  return LinLayerParams(handle, rnn, pseudo_layer, x_desc, w_desc, w, id, matrix_desc, matrix,
                        true);
}

Status GetRNNLinLayerBiasParams(void* handle, void* rnn, int pseudo_layer, void* x_desc,
                                void* w_desc, const void* w, int id, void* bias_desc, void** bias) {
  return LinLayerParams(handle, rnn, pseudo_layer, x_desc, w_desc, w, id, bias_desc, bias, false);
}

}  // namespace kiln::api::legacy
