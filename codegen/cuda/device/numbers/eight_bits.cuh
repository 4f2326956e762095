#pragma once
// Operands of 8 bits for products of f16, which has all values of e4m3 and of e5m2. `kind` is 1 of
// e4m3, 2 of e5m2, here and as a skeleton's kEight.
//
//   round_pair_8<kind>(low, high)   two f32 rounded to 8 bits, as a pair of f16. PTX ISA "cvt",
//                                   two at a time from sm_89 on
//   narrow_pair_8<kind>(low, high)  the same as two bytes, from sm_89 on
//   widen_8<kind>(bytes)            8 neighbours as f16

#include "codegen/cuda/device/numbers/fp8_e4m3.cuh"
#include "codegen/cuda/device/numbers/fp8_e5m2.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"

template <int kind>
__device__ inline unsigned round_pair_8(float low, float high) {
#if __CUDA_ARCH__ >= 890
  unsigned pair;
  if constexpr (kind == 1)
    asm("{ .reg .b16 p;\n"
        "cvt.rn.satfinite.e4m3x2.f32 p, %2, %1;\n"
        "cvt.rn.f16x2.e4m3x2 %0, p; }"
        : "=r"(pair)
        : "f"(low), "f"(high));
  else
    asm("{ .reg .b16 p;\n"
        "cvt.rn.satfinite.e5m2x2.f32 p, %2, %1;\n"
        "cvt.rn.f16x2.e5m2x2 %0, p; }"
        : "=r"(pair)
        : "f"(low), "f"(high));
  return pair;
#else
  if constexpr (kind == 1) return pack_pair<false>(float(e4m3_t(low)), float(e4m3_t(high)));
  return pack_pair<false>(float(e5m2_t(low)), float(e5m2_t(high)));
#endif
}

#if __CUDA_ARCH__ >= 890
template <int kind>
__device__ inline unsigned narrow_pair_8(float low, float high) {
  unsigned short pair;
  if constexpr (kind == 1)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(pair) : "f"(low), "f"(high));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(pair) : "f"(low), "f"(high));
  return pair;
}
#endif

template <int kind>
__device__ inline uint2 widen_4(unsigned bytes) {
  uint2 y;
  if constexpr (kind == 2) {  // f16 without the last 8 bits of its fraction
    y.x = __byte_perm(bytes, 0, 0x1404);
    y.y = __byte_perm(bytes, 0, 0x3424);
  } else {
#if __CUDA_ARCH__ >= 890
    asm("{ .reg .b16 a, b;\n"
        "mov.b32 {a, b}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, a;\n"
        "cvt.rn.f16x2.e4m3x2 %1, b; }"
        : "=r"(y.x), "=r"(y.y)
        : "r"(bytes));
#else
    e4m3_t of[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) of[i].bits = bytes >> 8 * i & 0xff;
    y.x = pack_pair<false>(float(of[0]), float(of[1]));
    y.y = pack_pair<false>(float(of[2]), float(of[3]));
#endif
  }
  return y;
}
template <int kind>
__device__ inline uint4 widen_8(uint2 bytes) {
  const uint2 low = widen_4<kind>(bytes.x), high = widen_4<kind>(bytes.y);
  return make_uint4(low.x, low.y, high.x, high.y);
}
