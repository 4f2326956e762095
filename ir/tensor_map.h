// TensorMapSpec: a view of a tensor for the hardware's copies (TMA), as numbers. The runtime makes
// the driver's 128 opaque bytes of it. CUDA driver API "Tensor Map Object Management".
#pragma once

#include <array>
#include <cstdint>

#include "ir/dtype.h"

namespace kiln {

struct TensorMapSpec {
  // kTiled: boxes of the tensor. kPixels: im2col, dims {c, w, h, (d,) n}; the boxes of places are
  // walked in w, h, d, n order inside [lower, dim + upper).
  enum class Kind : uint8_t { kTiled, kPixels };
  Kind kind = Kind::kTiled;
  DType type = DType::kF16;  // f32 is loaded as tf32; as it is if it passes as i32
  int rank = 4;
  std::array<int64_t, 5> dims = {1, 1, 1, 1, 1};       // innermost first
  std::array<int64_t, 4> stride_bytes = {0, 0, 0, 0};  // of dims 1 …; multiples of 16
  int64_t offset_bytes = 0;                            // of the first element in the tensor
  std::array<int32_t, 5> box = {1, 1, 1, 1, 1};        // kTiled
  std::array<int32_t, 5> element_strides = {1, 1, 1, 1, 1};
  std::array<int32_t, 3> lower = {0, 0, 0}, upper = {0, 0, 0};  // kPixels: w, h, d
  int32_t channels = 0, pixels = 0;                             // kPixels: the box
  int swizzle_bytes = 128;                                      // 128, 64, 32, or 0 for none

  bool operator==(const TensorMapSpec&) const = default;
};

}  // namespace kiln
