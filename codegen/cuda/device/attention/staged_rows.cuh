#pragma once
// each_staged_row(staging, thread, sums, sync, each): accumulators of 64 rows by `columns` in the
// registers of a warpgroup, as f32 by way of 8 KB of shared memory, 32 columns at a time:
// each(row, column, x) of 8 neighbours, for results of 8 bits, which are finished in f32.
//
// Loops: where functions are called from many places NVVM inlines them too late, and leaves
// accumulators in memory.
struct staged_rows {
  static constexpr int kColumns = 32;
  // The chunk of 4 elements that lies at another one's place, so that rows lie in different banks.
  static __device__ inline unsigned at(unsigned staging, unsigned row, unsigned chunk) {
    return staging + row * 128 + ((chunk ^ row * 2 % 8) << 4);
  }
  static __device__ inline void load_8(unsigned staging, int row, int column, float (&x)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i += 4)
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(x[i]), "=f"(x[i + 1]), "=f"(x[i + 2]), "=f"(x[i + 3])
                   : "r"(at(staging, row, (column + i) / 4))
                   : "memory");
  }
};

template <int registers, class Sync, class Each>
__device__ inline void each_staged_row(unsigned staging, unsigned thread, float (&sums)[registers],
                                       const Sync& sync, const Each& each) {
  constexpr int kOfTurn = staged_rows::kColumns / 2;
  static_assert(registers % kOfTurn == 0);
#pragma unroll 1
  for (int first = 0; first < 2 * registers; first += staged_rows::kColumns) {
    sync();
    const unsigned row = thread / 32 * 16 + thread % 32 / 4, lane = thread % 4;
#pragma unroll
    for (int e = 0; e < kOfTurn; e += 2)
      asm volatile(
          "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(
              staged_rows::at(staging, row + (e & 2) * 4, e / 4 * 2 + lane / 2) + lane % 2 * 8),
          "f"(sums[e]), "f"(sums[e + 1])
          : "memory");
    sync();
#pragma unroll 1
    for (unsigned i = thread; i < 64 * staged_rows::kColumns / 8; i += 128) {
      float x[8];
      const int column = i % 4 * 8;
      staged_rows::load_8(staging, i / 4, column, x);
      each(i / 4, first + column, x);
    }
#pragma unroll
    for (int e = 0; e + kOfTurn < registers; ++e) sums[e] = sums[e + kOfTurn];
  }
  sync();
}
