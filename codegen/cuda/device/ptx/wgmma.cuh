#pragma once
// Instructions around wgmma, sm_90a: fences, waits, registers, fragments and descriptors. PTX ISA
// "wgmma". The instruction itself is printed with the kernel, for the one shape that it uses.

#include "codegen/cuda/device/numbers/pairs.cuh"

enum { kMajorK, kMajorOuter };  // which axis of an operand is contiguous in shared memory
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
template <int registers>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
// Two neighbours in fragment order through `apply`, with their words of C::kFull operands, to
// words of the results.
template <class C, class Apply, int operands, int full, int results>
__device__ inline void apply_pair(const Apply& apply, float a, float b,
                                  const float (&of_row)[operands], const unsigned (&words)[full],
                                  unsigned (&to)[results]) {
  float of_a[full], of_b[full], x[results], y[results];
#pragma unroll
  for (int f = 0; f < C::kFull; ++f) {
    if (C::kFullBf16 >> f & 1)
      unpack_pair<true>(words[f], of_a[f], of_b[f]);
    else
      unpack_pair<false>(words[f], of_a[f], of_b[f]);
  }
  if constexpr (C::kFull > 0) {
    apply(a, of_row, of_a, x);
    apply(b, of_row, of_b, y);
  } else {
    apply(a, of_row, x);
    apply(b, of_row, y);
  }
#pragma unroll
  for (int r = 0; r < results; ++r)
    to[r] = C::kPackBf16 >> r & 1 ? pack_pair<true>(x[r], y[r]) : pack_pair<false>(x[r], y[r]);
}
// Four 8x8 tiles of 16-bit values from fragments to rows of shared memory, each transposed: a pair
// in a register lies in two rows. PTX ISA "stmatrix".
__device__ inline void store_transposed(unsigned to, unsigned a, unsigned b, unsigned c,
                                        unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ inline void store_transposed(unsigned to, unsigned a, unsigned b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(a),
               "r"(b)
               : "memory");
}
// Stores fragments as they are: a pair stays side by side in its row.
__device__ inline void store_fragments(unsigned to, unsigned a, unsigned b, unsigned c,
                                       unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
// The ways back: what the stores have left, or would have.
__device__ inline void load_fragments(unsigned from, unsigned& a, unsigned& b, unsigned& c,
                                      unsigned& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(from)
               : "memory");
}
__device__ inline void load_transposed(unsigned from, unsigned& a, unsigned& b, unsigned& c,
                                       unsigned& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(from)
               : "memory");
}
__device__ inline void load_transposed(unsigned from, unsigned& a, unsigned& b) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(a), "=r"(b)
               : "r"(from)
               : "memory");
}
// A descriptor's address. In a cluster a shared address carries the block's rank above its 18 low
// bits: unmasked it would spill into the next field.
__device__ inline unsigned long long descriptor_address(unsigned address) {
  return (address & 0x3ffff) >> 4;
}
// The other fields: rows of `row_bytes`, swizzled over that width. K-major operands step 8 rows by
// the stride field and do not use the leading one; MN-major ones have panels `panel_bytes` apart.
__device__ constexpr unsigned long long descriptor_layout(int row_bytes, int panel_bytes) {
  const unsigned long long swizzle = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
  const unsigned long long stride = static_cast<unsigned long long>(8 * row_bytes) >> 4;
  const unsigned long long leading = static_cast<unsigned long long>(panel_bytes) >> 4;
  return (swizzle << 62) | (stride << 32) | (leading << 16);
}

// Accumulators of a thread.
template <class Value, int blocks, int size>
__device__ inline void clear_sums(Value (&sums)[blocks][size]) {
#pragma unroll
  for (int i = 0; i < blocks; ++i)
#pragma unroll
    for (int e = 0; e < size; ++e) sums[i][e] = 0;
}
template <class Value, int blocks, int size>
__device__ inline void add_sums(Value (&sums)[blocks][size], const Value (&more)[blocks][size]) {
#pragma unroll
  for (int i = 0; i < blocks; ++i)
#pragma unroll
    for (int e = 0; e < size; ++e) sums[i][e] += more[i][e];
}

// Tensor cores cut off what they add, which over a long sum counts: after `folds` steps of products
// a sum is added to totals, as f32, and the next step starts one anew. 0: sums are short.
template <int folds, class Sums>
struct wgmma_chain {
  Sums totals;
  int steps = 0;  // of the sum at hand

  __device__ inline wgmma_chain() { clear_sums(totals); }
  // A step has been committed.
  __device__ inline void next(Sums& sums) {
    if (++steps < folds) return;
    wgmma_wait<0>();
    add_sums(totals, sums);
    steps = 0;
  }
  // All of them are done.
  __device__ inline void finish(Sums& sums) {
    if (steps == 0) clear_sums(sums);
    add_sums(sums, totals);
  }
};
template <class Sums>
struct wgmma_chain<0, Sums> {
  int steps = 0;
  __device__ inline void next(Sums&) { ++steps; }
  __device__ inline void finish(Sums&) {}
};
