#pragma once
// panels<rows, columns>: the places of matrices of 16-bit elements in shared memory for ldmatrix,
// and how they get there. aligned_panels(address): the place where they may begin.
// multiply_16<is_bf16>: one product of a warp.

#include "codegen/cuda/device/ptx/mma.cuh"

// Rows of `columns` elements in panels of 64 or 32: chunk c of 8 elements of a row lies where
// chunk c ^ key(row) would, so that 8 rows of a matrix lie in different banks.
template <int rows, int columns>
struct panels {
  static constexpr int kChunks = columns % 64 == 0 ? 8 : 4;
  static constexpr int kOfRow = columns / 8;
  static constexpr int kPitch = kChunks * 16;  // bytes
  static __device__ inline int key(int row) { return kChunks == 8 ? row % 8 : row / 2 % 4; }
  // The place of a chunk of a row, in elements.
  static __device__ inline int at(int row, int chunk) {
    return (chunk / kChunks * rows + row) * (kChunks * 8) + (chunk % kChunks ^ key(row)) * 8;
  }
  // The place of a chunk in bytes from the row's first chunk of 8 on, with the key of that chunk in
  // it.
  static __device__ inline unsigned first(int row, int chunk) {
    return row * kPitch + (chunk ^ key(row)) * 16;
  }
  static __device__ inline unsigned further(unsigned first, int row, int chunk) {
    return (first ^ (chunk % kChunks * 16)) + (chunk / kChunks * rows + row) * kPitch;
  }
};
__device__ inline unsigned aligned_panels(unsigned address) { return (address + 127) & ~127u; }

// Loads all of some panels by `count` threads, of which this is one. Panels of f32 have two
// `columns` for each element, and so chunks of 4 elements.
template <int rows, int columns, unsigned count, bool is_async, int of_chunk = 8, class Load>
__device__ inline void load_panels(int to, unsigned thread, const Load& load, int batch,
                                   int first) {
  using shape = panels<rows, columns>;
  constexpr unsigned kOfRow = shape::kOfRow, kPieces = rows * kOfRow;
  constexpr int kUnrolled = is_async ? 16 : 1;
  // Whole rows at once, whose keys are the same each time: only the row changes.
  if constexpr (kPieces % count == 0 && count % (kOfRow * 8) == 0) {
    const int chunk = thread % kOfRow, row = thread / kOfRow,
              at = to + shape::at(row, chunk) * of_chunk / 8;
    constexpr int kRowsAtOnce = count / kOfRow;
#pragma unroll kUnrolled
    for (int i = 0; i < rows; i += kRowsAtOnce)
      load(at + i * (shape::kChunks * of_chunk), batch, first + row + i, chunk * of_chunk);
  } else {
#pragma unroll kUnrolled
    for (unsigned i = 0; i < kPieces; i += count) {
      const unsigned n = i + thread;
      if (kPieces % count != 0 && n >= kPieces) break;
      const int row = n / kOfRow, chunk = n % kOfRow;
      load(to + shape::at(row, chunk) * of_chunk / 8, batch, first + row, chunk * of_chunk);
    }
  }
}

// Hides x from the compiler, so that what follows from it is computed where it is used, not before
// the loop: registers are scarce there.
template <class T>
__device__ inline T computed_again(T x) {
  asm volatile("" : "+r"(x));
  return x;
}

template <bool is_bf16>
__device__ inline void multiply_16(float* sums, const unsigned* left, const unsigned* right) {
  if constexpr (is_bf16)
    mma_bf16(sums, left, right);
  else
    mma_f16(sums, left, right);
}
