// See the header. The numbers are those of CUtensorMapDataType, CUtensorMapSwizzle and
// CUtensorMapL2promotion of the driver API.
#include "runtime/cuda/tensor_map.h"

#include <algorithm>

namespace kiln::runtime {
namespace {

constexpr int kMapUint8 = 0, kMapInt32 = 3, kMapFloat16 = 6, kMapBfloat16 = 9, kMapTfloat32 = 11;
// The width of a box's row. Fetches of 256 bytes bring a neighbour that another box asks for
// anyway, and every such line crosses between the halves of the L2 once more (docs/log).
constexpr int kPromote128Bytes = 2;

int MapType(DType type) {
  switch (type) {
    case DType::kF16:
      return kMapFloat16;
    case DType::kBF16:
      return kMapBfloat16;
    case DType::kF32:
      return kMapTfloat32;
    case DType::kI32:
      return kMapInt32;
    default:
      return kMapUint8;
  }
}

int MapSwizzle(int bytes) { return bytes == 128 ? 3 : bytes == 64 ? 2 : bytes == 32 ? 1 : 0; }

template <class To, size_t n, class From>
std::array<To, n> As(const std::array<From, n>& from) {
  std::array<To, n> to;
  std::ranges::transform(from, to.begin(), [](From v) { return static_cast<To>(v); });
  return to;
}

}  // namespace

Status EncodeMap(const Driver& driver, const TensorMapSpec& spec, void* address,
                 TensorMapBytes& map) {
  if (driver.TensorMapEncodeTiled == nullptr || driver.TensorMapEncodeIm2col == nullptr ||
      driver.TensorMapReplaceAddress == nullptr) {
    return Status::Error(Code::kIncompatibleDriver,
                         "{} has no cuTensorMapEncodeTiled: it is older than CUDA 12", driver.path);
  }
  const auto dims = As<uint64_t>(spec.dims);
  const auto strides = As<uint64_t>(spec.stride_bytes);
  const auto element_strides = As<uint32_t>(spec.element_strides);
  const int type = MapType(spec.type), swizzle = MapSwizzle(spec.swizzle_bytes);
  const auto rank = static_cast<unsigned>(spec.rank);
  if (spec.kind == TensorMapSpec::Kind::kTiled) {
    const auto box = As<uint32_t>(spec.box);
    return driver.Check(driver.TensorMapEncodeTiled(
                            &map, type, rank, address, dims.data(), strides.data(), box.data(),
                            element_strides.data(), 0, swizzle, kPromote128Bytes, 0),
                        "cuTensorMapEncodeTiled");
  }
  // Corners are in w, h, d order, whatever the header's comment says.
  return driver.Check(driver.TensorMapEncodeIm2col(
                          &map, type, rank, address, dims.data(), strides.data(), spec.lower.data(),
                          spec.upper.data(), static_cast<unsigned>(spec.channels),
                          static_cast<unsigned>(spec.pixels), element_strides.data(), 0, swizzle,
                          kPromote128Bytes, 0),
                      "cuTensorMapEncodeIm2col");
}

}  // namespace kiln::runtime
