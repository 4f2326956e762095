#pragma once
// turned_weights<T>(f, d, unit, units, depth, depths): 16 bytes of a row of a transposed matrix, of
// which memory has neighbouring units side by side: of lane 4g + t that of unit g of eight, depths
// 8t on of 32. A lane reads two units of four depths, so that a warp's loads are 16 bytes of eight
// rows of memory each, and the warp transposes them. Nothing from unit `units` and depth `depths`
// on.

#include "codegen/cuda/device/ptx/copy.cuh"
#include "codegen/cuda/device/ptx/transpose_matrix.cuh"

template <class T, class F>
__device__ inline uint4 turned_weights(const F& f, int d, int unit, int units, int depth,
                                       int depths) {
  const int row = threadIdx.x % 32 / 4, at = unit + threadIdx.x % 4 * 2;
  unsigned words[4];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int k = depth + 8 * (row / 2) + 2 * n + row % 2;
    const bool exists = at < units && k < depths;
    __align__(4) T values[2];
    f.weight(d, exists ? at : 0, 0, exists ? k : 0, values);
    copy<4>(&words[n], reinterpret_cast<const unsigned*>(values));
    if (!exists) words[n] = 0;
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) words[n] = transpose_matrix(words[n]);
  return make_uint4(words[0], words[1], words[2], words[3]);
}
