// Tensor maps of the emulated GPU: the parameters of cuTensorMapEncode… as they are, in the 128
// bytes of a CUtensorMap, and the copies that they describe.
#pragma once

#include <cstdint>
#include <functional>

namespace kiln::emulated {

struct TensorMap {
  static constexpr uint32_t kMagic = 0x4b544d50;

  uint64_t address;
  uint64_t strides[4];  // bytes, of dims 1 on
  uint32_t dims[5];
  uint32_t magic;
  uint16_t box[5];             // tiled
  int16_t lower[3], upper[3];  // im2col: of w, h, d
  uint16_t channels, pixels;
  uint8_t element_strides[5];
  uint8_t type, rank, swizzle, is_im2col, fills_nan;

  int ElementBytes() const;
  int64_t BoxBytes() const;
};
static_assert(sizeof(TensorMap) <= 128);

// Rows of a box in the order in which they lie in shared memory: body(place in the box in bytes,
// coordinates of the row's first element, whether the row is inside in all but its own axis).
struct BoxRow {
  int64_t at;
  int64_t coordinates[5];
  bool is_inside;
};
void ForRows(const TensorMap& map, const int32_t (&start)[5], const uint16_t (&offsets)[3],
             const std::function<void(const BoxRow&)>& body);
// Elements of a row and, of those, the ones that lie inside of the tensor: [begin, end).
int64_t RowElements(const TensorMap& map);
void InsideOf(const TensorMap& map, const BoxRow& row, int64_t& begin, int64_t& end);
uint64_t AddressOf(const TensorMap& map, const BoxRow& row, int64_t element);

// The place of a byte of a swizzled box: bits 4.. of the address xor those 3 places above, over as
// many bits as the width has chunks of 16 bytes. `kind`: CUtensorMapSwizzle, 0 none, 1: 32, 2: 64,
// 3: 128 bytes.
inline uint32_t Swizzled(uint32_t address, int kind) {
  const uint32_t chunks = (1u << kind) - 1;
  return address ^ (address >> 3 & chunks << 4);
}

}  // namespace kiln::emulated
