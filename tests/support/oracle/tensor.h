// Tensors of the oracle, in two forms: an Image is memory as a client hands it to the library
// (bytes, dtype, dims, strides, poison in every gap); a Dense is what the oracle computes with,
// each element a value and a bound on the error that a correct implementation may have there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/oracle/dtype.h"

namespace kiln::oracle {

using Dims = std::vector<int64_t>;

int64_t Count(const Dims& dims);  // product; 1 for no dims
std::string ToText(const Dims& dims);

// Steps `index` through `dims` in row-major order; false once past the end.
bool Next(const Dims& dims, Dims& index);

struct Value {
  double v = 0;
  double e = 0;  // |correct result - v| may be as large as this; infinite: anything goes
};

// Row-major.
struct Dense {
  Dims dims;
  std::vector<Value> values;

  static Dense Of(Dims dims, const std::vector<double>& values);  // exact values
};

// A strided tensor in memory between two guard zones. Every byte that is no element is poison.
struct Image {
  DType dtype{};
  Dims dims, strides;
  std::vector<uint8_t> bytes;

  static constexpr int64_t kGuard = 256;  // bytes before and after; keeps 256-byte alignment

  // Elements and gaps filled with poison: NaN in floating types, a pattern from `seed` in others.
  static Image Poisoned(DType dtype, Dims dims, Dims strides, uint64_t seed);

  int64_t Offset(const Dims& index) const;  // of an element's first byte in `bytes`
  double At(const Dims& index) const;
  int64_t Span() const;          // elements from the first to the last in memory, both included
  int64_t PayloadBytes() const;  // Span() in bytes; the payload begins at kGuard

  void Store(const std::vector<double>& row_major);  // rounds to dtype
  std::vector<double> Load() const;
  Dense ToDense() const;
};

// Empty when every byte of `after` that holds no element equals `before`'s; else a sentence.
std::string CheckGaps(const Image& before, const Image& after);

// Empty when all bytes are equal, as an input's must be after a run; else a sentence.
std::string CheckUnchanged(const Image& before, const Image& after);

}  // namespace kiln::oracle
