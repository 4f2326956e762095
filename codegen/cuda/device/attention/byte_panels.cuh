#pragma once
// load_bytes, widen_panels: panels of f16 (panels.cuh) of operands of 8 bits, by way of bytes in
// shared memory, which asynchronous copies bring while another block is multiplied. Each thread
// widens what it has copied itself, so that it waits for its own copies and for nobody.

#include "codegen/cuda/device/attention/panels.cuh"
#include "codegen/cuda/device/numbers/eight_bits.cuh"

// The bytes of some panels, one piece of 8 behind the other, by `count` threads.
template <int rows, int columns, unsigned count, class Load>
__device__ inline void load_bytes(int to, unsigned thread, const Load& load, int batch, int first) {
  constexpr unsigned kOfRow = columns / 8, kPieces = rows * kOfRow;
#pragma unroll 8
  for (unsigned i = 0; i < kPieces; i += count) {
    const unsigned n = i + thread;
    if (kPieces % count != 0 && n >= kPieces) break;
    load(to + n * 8, batch, first + n / kOfRow, n % kOfRow * 8);
  }
}
template <int kind, int rows, int columns, unsigned count, class T, class Bytes>
__device__ inline void widen_panels(T* to, const Bytes* from, unsigned thread) {
  using shape = panels<rows, columns>;
  constexpr unsigned kOfRow = columns / 8, kPieces = rows * kOfRow;
#pragma unroll 8
  for (unsigned i = 0; i < kPieces; i += count) {
    const unsigned n = i + thread;
    if (kPieces % count != 0 && n >= kPieces) break;
    *reinterpret_cast<uint4*>(to + shape::at(n / kOfRow, n % kOfRow)) =
        widen_8<kind>(*reinterpret_cast<const uint2*>(from + n * 8));
  }
}
