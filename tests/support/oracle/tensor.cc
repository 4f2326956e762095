// Packing, poisoning and inspecting strided memory images.
#include "tests/support/oracle/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kiln::oracle {
namespace {

// splitmix64, for poison in types that have no NaN.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

int64_t Count(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  return count;
}

std::string ToText(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ",")); }

bool Next(const Dims& dims, Dims& index) {
  for (size_t i = dims.size(); i-- > 0;) {
    if (++index[i] < dims[i]) return true;
    index[i] = 0;
  }
  return false;
}

Dense Dense::Of(Dims dims, const std::vector<double>& values) {
  Dense dense{.dims = std::move(dims), .values = {}};
  dense.values.reserve(values.size());
  for (const double v : values) dense.values.push_back({.v = v, .e = 0});
  return dense;
}

Image Image::Poisoned(DType dtype, Dims dims, Dims strides, uint64_t seed) {
  Image image{.dtype = dtype, .dims = std::move(dims), .strides = std::move(strides), .bytes = {}};
  image.bytes.resize(static_cast<size_t>(image.PayloadBytes() + 2 * kGuard));
  for (size_t i = 0; i < image.bytes.size(); ++i) {
    // All ones is NaN in every floating format; in an integer it would be a plausible -1.
    const bool has_nan = IsFloating(dtype) && Row(dtype).packed == 0;
    image.bytes[i] = has_nan ? 0xff : static_cast<uint8_t>(Mix(seed + i) | 0x80);
  }
  return image;
}

namespace {

int64_t ElementAt(const Image& image, const Dims& index) {
  int64_t element = 0;
  for (size_t i = 0; i < index.size(); ++i) element += index[i] * image.strides[i];
  return element;
}

int64_t BytesBefore(DType dtype, int64_t element) {
  const DTypeRow& row = Row(dtype);
  return row.packed != 0 ? element * row.packed / 8 : element * row.bytes;
}

}  // namespace

int64_t Image::Offset(const Dims& index) const {
  return kGuard + BytesBefore(dtype, ElementAt(*this, index));
}

double Image::At(const Dims& index) const {
  return DecodeAt(dtype, bytes.data() + kGuard, ElementAt(*this, index));
}

int64_t Image::Span() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return 0;
    last += (dims[i] - 1) * strides[i];
  }
  return last + 1;
}

int64_t Image::PayloadBytes() const {
  const int packed = Row(dtype).packed;
  return packed != 0 ? (Span() * packed + 7) / 8 : BytesBefore(dtype, Span());
}

void Image::Store(const std::vector<double>& row_major) {
  Dims index(dims.size(), 0);
  if (Count(dims) == 0) return;
  size_t i = 0;
  do {
    EncodeAt(dtype, row_major[i++], bytes.data() + kGuard, ElementAt(*this, index));
  } while (Next(dims, index));
}

std::vector<double> Image::Load() const {
  std::vector<double> values;
  if (Count(dims) == 0) return values;
  values.reserve(static_cast<size_t>(Count(dims)));
  Dims index(dims.size(), 0);
  do {
    values.push_back(At(index));
  } while (Next(dims, index));
  return values;
}

Dense Image::ToDense() const { return Dense::Of(dims, Load()); }

std::string CheckGaps(const Image& before, const Image& after) {
  if (before.bytes.size() != after.bytes.size()) return "the images differ in size";
  std::vector<bool> is_element(before.bytes.size(), false);
  if (Count(before.dims) > 0) {
    Dims index(before.dims.size(), 0);
    do {
      const int64_t offset = before.Offset(index);
      for (int b = 0; b < Row(before.dtype).bytes; ++b)
        is_element[static_cast<size_t>(offset + b)] = true;
    } while (Next(before.dims, index));
  }
  for (size_t i = 0; i < is_element.size(); ++i) {
    if (is_element[i] || before.bytes[i] == after.bytes[i]) continue;
    const int64_t at = static_cast<int64_t>(i) - Image::kGuard;
    const char* where = at < 0                        ? "before the tensor"
                        : at >= before.PayloadBytes() ? "after the tensor"
                                                      : "in a gap";
    return fmt::format("byte {} ({}) was overwritten: {:#04x} became {:#04x}", at, where,
                       before.bytes[i], after.bytes[i]);
  }
  return "";
}

std::string CheckUnchanged(const Image& before, const Image& after) {
  for (size_t i = 0; i < before.bytes.size(); ++i) {
    if (before.bytes[i] == after.bytes[i]) continue;
    return fmt::format("byte {} of an input changed: {:#04x} became {:#04x}",
                       static_cast<int64_t>(i) - Image::kGuard, before.bytes[i], after.bytes[i]);
  }
  return "";
}

}  // namespace kiln::oracle
