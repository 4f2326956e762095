#include "api/backend/tensor.h"

namespace kiln::api {
namespace {

constexpr int kDataTypeRow = 1;  // its place below

// Bits of an element in memory; 0 for types that only computations have.
int BitsOf(cudnnDataType_t type);

// NOTE: the element is the address of a value of the tensor's data type. It is read at once where
// that type is known, else when the tensor is finalised.
constexpr AttrRow ConstantRow() {
  AttrRow row = {.name = CUDNN_ATTR_TENSOR_CONSTANT_VALUE,
                 .use = Use::kOptional,
                 .types = uint64_t{1} << CUDNN_TYPE_VOID_PTR};
  row.set = [](Descriptor& d, const AttrIn& in, int64_t) -> Status {
    RETURN_IF_ERROR(WantOne(in.count));
    const void* address = nullptr;
    std::memcpy(&address, in.data, sizeof(address));
    if (address == nullptr) return Status::Text(Code::kNullPointer, "the value is at NULL");
    auto& tensor = static_cast<TensorDesc&>(d);
    if (!tensor.by_value) {
      return Status::Text(Code::kBadParam,
                          "the tensor is not passed by value, or was not said to be yet");
    }
    tensor.constant_at = address;
    tensor.constant.clear();
    if ((tensor.set_rows >> kDataTypeRow & 1) != 0) tensor.ReadConstant();
    return {};
  };
  row.get = [](const Descriptor& d, const AttrOut& out) -> Status {
    const auto& constant = static_cast<const TensorDesc&>(d).constant;
    if (constant.empty()) return Status::Text(Code::kBadParam, "the tensor has no constant value");
    const void* const address = constant.data();
    return StoreElements(std::span(&address, 1), out);
  };
  return row;
}

constexpr AttrRow kRows[] = {
    Attr<&TensorDesc::uid>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
    Attr<&TensorDesc::data_type>(CUDNN_ATTR_TENSOR_DATA_TYPE),
    Attr<&TensorDesc::alignment>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
    Attr<&TensorDesc::dims>(CUDNN_ATTR_TENSOR_DIMENSIONS, Use::kRequired, CUDNN_DIM_MAX),
    Attr<&TensorDesc::strides>(CUDNN_ATTR_TENSOR_STRIDES, Use::kRequired, CUDNN_DIM_MAX),
    Attr<&TensorDesc::vector_count>(CUDNN_ATTR_TENSOR_VECTOR_COUNT, Use::kOptional),
    Attr<&TensorDesc::vector_dim>(CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, Use::kOptional),
    Attr<&TensorDesc::is_virtual>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, Use::kOptional),
    Attr<&TensorDesc::by_value>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, Use::kOptional),
    Attr<&TensorDesc::reordering>(CUDNN_ATTR_TENSOR_REORDERING_MODE, Use::kOptional),
    ConstantRow(),
    Attr<&TensorDesc::ragged_offset>(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, Use::kOptional),
    Attr<&TensorDesc::ragged_multiplier>(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_MULTIPLIER,
                                         Use::kOptional),
};
static_assert(kRows[kDataTypeRow].name == CUDNN_ATTR_TENSOR_DATA_TYPE);

int BitsOf(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BOOLEAN:
      return 1;
    case CUDNN_DATA_FP4_E2M1:
    case CUDNN_DATA_INT4:
    case CUDNN_DATA_UINT4:
      return 4;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
    case CUDNN_DATA_FP8_E8M0:
    case CUDNN_DATA_FP8_E5M3:
    case CUDNN_DATA_BYTE_BOOLEAN:
      return 8;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 16;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
    case CUDNN_DATA_UINT32:
    case CUDNN_DATA_INT8x4:
    case CUDNN_DATA_UINT8x4:
      return 32;
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
    case CUDNN_DATA_COMPLEX_FP32:
      return 64;
    case CUDNN_DATA_COMPLEX_FP64:
      return 128;
    case CUDNN_DATA_INT8x32:
      return 256;
    case CUDNN_DATA_FAST_FLOAT_FOR_FP8:
      return 0;
  }
  return 0;
}

Status CheckType(const TensorDesc& t) {
  switch (t.data_type) {
    case CUDNN_DATA_INT8x4:
    case CUDNN_DATA_UINT8x4:
    case CUDNN_DATA_INT8x32:
      return Status::Error(
          Code::kNotSupported,
          "{}: the backend describes vectors by CUDNN_ATTR_TENSOR_VECTOR_COUNT, not by {}",
          t.Text(), NameOf(t.data_type));
    case CUDNN_DATA_FAST_FLOAT_FOR_FP8:
      return Status::Error(Code::kBadParam, "{}: {} is a type of computations, not of tensors",
                           t.Text(), NameOf(t.data_type));
    default:
      break;
  }
  int64_t bytes = std::max(1, BitsOf(t.data_type) / 8);
  if (t.alignment <= 0 || t.alignment % bytes != 0) {
    return Status::Error(Code::kBadParam,
                         "{}: an alignment of {} bytes is no multiple of the {} bytes of {}",
                         t.Text(), t.alignment, bytes, NameOf(t.data_type));
  }
  return {};
}

// Extents are positive and everything addressed fits in 63 bits of bytes. A stride of 0 repeats the
// element, as broadcast tensors of frontends do.
Status CheckGeometry(const TensorDesc& t) {
  if (t.dims.empty()) return Status::Error(Code::kBadParam, "{} has no dimensions", t.Text());
  if (t.dims.size() != t.strides.size()) {
    return Status::Error(Code::kBadParam, "{} has {} dimensions and {} strides", t.Text(),
                         t.dims.size(), t.strides.size());
  }
  // Both are checked dimension by dimension, so that neither product leaves 128 bits.
  constexpr __int128 kMost = static_cast<__int128>(1) << 58;
  __int128 last = 0, count = t.vector_count;
  for (size_t i = 0; i < t.dims.size(); ++i) {
    if (t.dims[i] <= 0) {
      return Status::Error(Code::kBadParam, "{}: dimension {} has extent {}", t.Text(), i,
                           t.dims[i]);
    }
    if (t.strides[i] < 0) {
      return Status::Error(Code::kBadParam, "{}: dimension {} has stride {}", t.Text(), i,
                           t.strides[i]);
    }
    last += static_cast<__int128>(t.dims[i] - 1) * t.strides[i] * t.vector_count;
    count *= t.dims[i];
    if (last >= kMost || count >= kMost) {
      return Status::Error(Code::kBadParam, "{} addresses more memory than there is", t.Text());
    }
  }
  return {};
}

Status CheckVector(const TensorDesc& t) {
  if (t.vector_count == 1) return {};
  constexpr int64_t kMost = int64_t{1} << 20;
  const bool is_int8 = t.data_type == CUDNN_DATA_INT8, is_uint8 = t.data_type == CUDNN_DATA_UINT8;
  const bool exists = t.vector_count == 4 || (t.vector_count == 32 && !is_uint8);
  if (t.vector_count <= 0 || t.vector_count > kMost || ((is_int8 || is_uint8) && !exists)) {
    return Status::Error(Code::kNotSupported,
                         "{}: vectors of {} {} elements; of int8 there are 4 and 32, of uint8 4",
                         t.Text(), t.vector_count, NameOf(t.data_type));
  }
  if (t.vector_dim < 0 || t.vector_dim >= static_cast<int64_t>(t.dims.size())) {
    return Status::Error(Code::kBadParam, "{}: the vectorized dimension {} is none of its {}",
                         t.Text(), t.vector_dim, t.dims.size());
  }
  return {};
}

Status CheckRagged(const TensorDesc& t) {
  if (t.ragged_multiplier < 1) {
    return Status::Error(Code::kBadParam, "{}: a ragged offset counts {} elements", t.Text(),
                         t.ragged_multiplier);
  }
  if (t.ragged_multiplier == 1 || t.ragged_offset != nullptr) return {};
  return Status::Error(Code::kBadParam, "{} has a multiplier of ragged offsets and no offsets",
                       t.Text());
}

Status CheckConstant(const TensorDesc& t) {
  if (t.constant_at == nullptr || (t.by_value && NumElements(t.dims) == 1)) return {};
  return Status::Error(Code::kBadParam,
                       "{} has a constant value: it must be one element and passed by value",
                       t.Text());
}

}  // namespace

std::span<const AttrRow> TensorDesc::Rows() { return kRows; }

std::string TensorDesc::Text() const { return fmt::format("tensor {} ({})", uid, DimsText(dims)); }

Dims TensorDesc::PlainDims() const {
  Dims plain(dims.begin(), dims.end());
  if (vector_count != 1) plain[static_cast<size_t>(vector_dim)] *= vector_count;
  return plain;
}

bool TensorDesc::SameAs(const TensorDesc& other) const {
  return uid == other.uid && data_type == other.data_type && dims == other.dims &&
         strides == other.strides && is_virtual == other.is_virtual && by_value == other.by_value &&
         vector_count == other.vector_count && vector_dim == other.vector_dim &&
         reordering == other.reordering && ragged_multiplier == other.ragged_multiplier &&
         constant == other.constant;
}

void TensorDesc::ReadConstant() {
  const auto* const bytes = static_cast<const std::byte*>(constant_at);
  constant.assign(bytes, bytes + std::max(1, BitsOf(data_type) / 8));
}

Status TensorDesc::Finalize() {
  RETURN_IF_ERROR(CheckType(*this));
  RETURN_IF_ERROR(CheckVector(*this));
  RETURN_IF_ERROR(CheckGeometry(*this));
  RETURN_IF_ERROR(CheckRagged(*this));
  RETURN_IF_ERROR(CheckConstant(*this));
  if (by_value && is_virtual)
    return Status::Error(Code::kBadParam, "{} is passed by value: it must not be virtual", Text());
  if (uid == -1) {
    return Status::Text(Code::kBadParam, "uid -1 means that the tensor has none; give it another");
  }
  if (constant_at != nullptr && constant.empty()) ReadConstant();
  return {};
}

}  // namespace kiln::api
