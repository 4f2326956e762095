#pragma once
// e4m3_t: 4 exponent bits (bias 7), 3 mantissa bits, no infinity, largest 448; conversion
// saturates. PTX ISA "cvt", .e4m3x2 from sm_89 on.
struct e4m3_t {
  unsigned char bits;
  e4m3_t() = default;
  __device__ explicit e4m3_t(float v) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(v));
    bits = pair & 0xff;
#else
    const unsigned u = __float_as_uint(v), a = u & 0x7fffffff;
    const float scaled = __uint_as_float(a) * 512.f;  // subnormals are multiples of 2^-9
    const unsigned magnitude = a >= 0x43e00000 ? 0x7e
                               : a >= 0x3c800000
                                   ? ((a + 0x7ffff + (a >> 20 & 1)) >> 20) - (120 << 3)
                                   : __float_as_uint(scaled + 8388608.f) & 0xf;
    bits = a > 0x7f800000 ? 0x7f : (u >> 24 & 0x80) | magnitude;
#endif
  }
  __device__ explicit operator float() const {
    const unsigned sign = unsigned(bits & 0x80) << 24, magnitude = bits & 0x7f;
    const float v = magnitude == 0x7f ? __uint_as_float(0x7fffffff)
                                      : __uint_as_float(magnitude << 20) * 0x1p120f;
    return __uint_as_float(sign | __float_as_uint(v));
  }
};
