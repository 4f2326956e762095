#include "tests/support/emulated_gpu/tensor_map.h"

#include <algorithm>

namespace kiln::emulated {

int TensorMap::ElementBytes() const {
  constexpr int kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};  // by CUtensorMapDataType
  return kBytes[type];
}

int64_t RowElements(const TensorMap& map) { return map.is_im2col != 0 ? map.channels : map.box[0]; }

namespace {
int64_t BoxExtent(const TensorMap& map, int dim) {
  const int stride = std::max<int>(1, map.element_strides[dim]);
  return (map.box[dim] + stride - 1) / stride;
}
}  // namespace

int64_t TensorMap::BoxBytes() const {
  int64_t elements = RowElements(*this);
  if (is_im2col != 0) return elements * pixels * ElementBytes();
  for (int k = 1; k < rank; ++k) elements *= BoxExtent(*this, k);
  return elements * ElementBytes();
}

namespace {

bool IsInside(const TensorMap& map, const BoxRow& row) {
  for (int k = 1; k < map.rank; ++k)
    if (row.coordinates[k] < 0 || row.coordinates[k] >= map.dims[k]) return false;
  return true;
}

void ForTiles(const TensorMap& map, const int32_t (&start)[5],
              const std::function<void(const BoxRow&)>& body) {
  const int64_t row_bytes = map.box[0] * map.ElementBytes();
  int64_t rows = 1;
  for (int k = 1; k < map.rank; ++k) rows *= BoxExtent(map, k);
  for (int64_t r = 0; r < rows; ++r) {
    BoxRow row = {.at = r * row_bytes, .coordinates = {start[0]}, .is_inside = false};
    int64_t rest = r;
    for (int k = 1; k < map.rank; ++k) {
      row.coordinates[k] =
          start[k] + rest % BoxExtent(map, k) * std::max<int>(1, map.element_strides[k]);
      rest /= BoxExtent(map, k);
    }
    row.is_inside = IsInside(map, row);
    body(row);
  }
}

// Pixels one after the other in the box of base pixels, which goes from the lower corner to the
// tensor's end plus the upper corner.
void ForPixels(const TensorMap& map, const int32_t (&start)[5], const uint16_t (&offsets)[3],
               const std::function<void(const BoxRow&)>& body) {
  const int spatial = map.rank - 2;
  int64_t base[5];
  std::copy_n(start, 5, base);
  for (int p = 0; p < map.pixels; ++p) {
    BoxRow row = {.at = int64_t{p} * map.channels * map.ElementBytes(),
                  .coordinates = {base[0]},
                  .is_inside = false};
    for (int k = 1; k < map.rank; ++k)
      row.coordinates[k] = base[k] + (k <= spatial ? offsets[k - 1] : 0);
    row.is_inside = IsInside(map, row);
    body(row);
    for (int k = 1; k < map.rank; ++k) {
      base[k] += k <= spatial ? std::max<int>(1, map.element_strides[k]) : 1;
      if (k > spatial || base[k] < int64_t{map.dims[k]} + map.upper[k - 1]) break;
      base[k] = map.lower[k - 1];
    }
  }
}

}  // namespace

void ForRows(const TensorMap& map, const int32_t (&start)[5], const uint16_t (&offsets)[3],
             const std::function<void(const BoxRow&)>& body) {
  if (map.is_im2col != 0)
    ForPixels(map, start, offsets, body);
  else
    ForTiles(map, start, body);
}

void InsideOf(const TensorMap& map, const BoxRow& row, int64_t& begin, int64_t& end) {
  begin = std::clamp<int64_t>(-row.coordinates[0], 0, RowElements(map));
  end = std::clamp<int64_t>(int64_t{map.dims[0]} - row.coordinates[0], begin, RowElements(map));
  if (!row.is_inside) end = begin;
}

uint64_t AddressOf(const TensorMap& map, const BoxRow& row, int64_t element) {
  int64_t at = (row.coordinates[0] + element) * map.ElementBytes();
  for (int k = 1; k < map.rank; ++k)
    at += row.coordinates[k] * static_cast<int64_t>(map.strides[k - 1]);
  return map.address + static_cast<uint64_t>(at);
}

}  // namespace kiln::emulated
