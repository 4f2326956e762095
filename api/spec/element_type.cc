#include "api/spec/element_type.h"

#include <optional>

#include "api/spec/names.h"

namespace kiln::api {
namespace {

std::optional<DType> CoreType(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return DType::kF32;
    case CUDNN_DATA_DOUBLE:
      return DType::kF64;
    case CUDNN_DATA_HALF:
      return DType::kF16;
    case CUDNN_DATA_BFLOAT16:
      return DType::kBF16;
    case CUDNN_DATA_FP8_E4M3:
      return DType::kE4M3;
    case CUDNN_DATA_FP8_E5M2:
      return DType::kE5M2;
    case CUDNN_DATA_FP8_E8M0:
      return DType::kE8M0;
    case CUDNN_DATA_INT8:
      return DType::kI8;
    case CUDNN_DATA_UINT8:
      return DType::kU8;
    case CUDNN_DATA_INT32:
      return DType::kI32;
    case CUDNN_DATA_INT64:
      return DType::kI64;
    case CUDNN_DATA_BOOLEAN:
    case CUDNN_DATA_BYTE_BOOLEAN:
      return DType::kBool;
    case CUDNN_DATA_FP4_E2M1:
      return DType::kE2M1;
    case CUDNN_DATA_INT4:
      return DType::kI4;
    case CUDNN_DATA_UINT4:
      return DType::kU4;
    case CUDNN_DATA_UINT32:
      return DType::kU32;
    case CUDNN_DATA_COMPLEX_FP32:
      return DType::kC64;
    case CUDNN_DATA_COMPLEX_FP64:
      return DType::kC128;
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<DType> ElementType(cudnnDataType_t type) {
  if (auto core = CoreType(type)) return *core;
  return Status::Error(Code::kUnsupportedDataType, "Kiln has no tensors of {}", NameOf(type));
}

Result<DType> ComputeType(cudnnDataType_t type) {
  if (type == CUDNN_DATA_FAST_FLOAT_FOR_FP8) return DType::kF32;
  if (auto core = CoreType(type)) return *core;
  return Status::Error(Code::kUnsupportedDataType, "Kiln does not compute in {}", NameOf(type));
}

cudnnDataType_t MovingType(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
    case CUDNN_DATA_FP8_E8M0:
    case CUDNN_DATA_FP4_E2M1:
    case CUDNN_DATA_INT4:
    case CUDNN_DATA_UINT4:
      return CUDNN_DATA_FLOAT;  // holds every value of theirs
    case CUDNN_DATA_UINT32:
      return CUDNN_DATA_INT64;
    default:
      return type;
  }
}

}  // namespace kiln::api
