#pragma once
// largest_of<lanes, keeps_nan>(values, numbers, {sources...}, {taps...}): of each lane the largest
// source, and the tap of the first one equal to it. NaN is dropped, or larger than all numbers. Two
// 16-bit elements are compared at a time, PTX ISA "max" and "set" with .f16x2 and .bf16x2, sm_90
// on.

#include "codegen/cuda/device/numbers/bfloat16.cuh"
#include "codegen/cuda/device/numbers/half.cuh"
#include "codegen/cuda/device/numbers/minmax.cuh"

template <class T>
struct pair_of;
template <>
struct pair_of<half_t> {
  static constexpr unsigned lowest = 0xfc00fc00u;
  static __device__ inline unsigned max(unsigned a, unsigned b) {
    asm("max.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  static __device__ inline unsigned max_nan(unsigned a, unsigned b) {
    asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  static __device__ inline unsigned equal(unsigned a, unsigned b) {
    asm("set.eq.u32.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  static __device__ inline unsigned is_nan(unsigned a) {
    asm("set.nan.u32.f16x2 %0, %0, %0;" : "+r"(a));
    return a;
  }
};
template <>
struct pair_of<bf16_t> {
  static constexpr unsigned lowest = 0xff80ff80u;
  static __device__ inline unsigned max(unsigned a, unsigned b) {
    asm("max.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  static __device__ inline unsigned max_nan(unsigned a, unsigned b) {
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  static __device__ inline unsigned equal(unsigned a, unsigned b) {
    asm("set.eq.u32.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  static __device__ inline unsigned is_nan(unsigned a) {
    asm("set.nan.u32.bf16x2 %0, %0, %0;" : "+r"(a));
    return a;
  }
};
template <class T>
__device__ inline unsigned pair_at(const T* from, int p) {
  return reinterpret_cast<const unsigned*>(from)[p];
}
template <int lanes, bool keeps_nan, int n, class T>
__device__ inline void largest_of(T* values, const T* const (&sources)[n]) {
  using pair = pair_of<T>;
#pragma unroll
  for (int p = 0; p < lanes / 2; ++p) {
    unsigned best = pair::lowest;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const unsigned v = pair_at(sources[k], p);
      best = keeps_nan ? pair::max_nan(best, v) : pair::max(best, v);
    }
    reinterpret_cast<unsigned*>(values)[p] = best;
  }
}
// The tap of the first source that is the largest, of one pair. Where one of the largest is NaN
// (`has_nan`), its number is that of the first NaN.
template <bool has_nan, int n, class T>
__device__ inline unsigned first_of(unsigned best, const T* const (&sources)[n],
                                    const int (&taps)[n], int p) {
  unsigned number = 0;
#pragma unroll
  for (int k = n - 1; k >= 0; --k) {
    const unsigned v = pair_at(sources[k], p);
    unsigned is = pair_of<T>::equal(v, best);
    if (has_nan) is |= pair_of<T>::is_nan(v);
    number = (is & unsigned(taps[k] * 0x10001)) | (~is & number);
  }
  return number;
}
template <int lanes, bool keeps_nan, int n, class T>
__device__ inline void largest_of(T* values, signed char* numbers, const T* const (&sources)[n],
                                  const int (&taps)[n]) {
  largest_of<lanes, keeps_nan>(values, sources);
  unsigned nan = 0, number[lanes / 2];
#pragma unroll
  for (int p = 0; keeps_nan && p < lanes / 2; ++p) nan |= pair_of<T>::is_nan(pair_at(values, p));
  if (nan == 0) {
#pragma unroll
    for (int p = 0; p < lanes / 2; ++p)
      number[p] = first_of<false>(pair_at(values, p), sources, taps, p);
  } else {
#pragma unroll
    for (int p = 0; p < lanes / 2; ++p)
      number[p] = first_of<true>(pair_at(values, p), sources, taps, p);
  }
#pragma unroll
  for (int p = 0; p < lanes / 2; ++p) {
    numbers[2 * p] = static_cast<signed char>(number[p] & 0xff);
    numbers[2 * p + 1] = static_cast<signed char>(number[p] >> 16);
  }
}
