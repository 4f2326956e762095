#pragma once
// bf16_t: the upper half of a float as storage. PTX ISA "cvt", cvt.rn.bf16.f32 from sm_80 on.
struct bf16_t {
  unsigned short bits;
  bf16_t() = default;
  __device__ explicit bf16_t(float v) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));
#else
    const unsigned u = __float_as_uint(v);  // plus half a last place, less a little if even
    bits = v == v ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : 0x7fff;
#endif
  }
  __device__ explicit operator float() const {
#if __CUDA_ARCH__ >= 800
    float v;  // one byte permutation, where a shift would first take pairs of halves apart
    asm("mov.b32 %0, {%1, %2};" : "=f"(v) : "h"((unsigned short)0), "h"(bits));
    return v;
#else
    return __uint_as_float(unsigned(bits) << 16);
#endif
  }
};
