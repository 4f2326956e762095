#pragma once
// e5m2_t: the upper byte of a half, largest 57344; conversion saturates. PTX ISA "cvt", .e5m2x2
// from sm_89 on.
struct e5m2_t {
  unsigned char bits;
  e5m2_t() = default;
  __device__ explicit e5m2_t(float v) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(v));
    bits = pair & 0xff;
#else
    const unsigned u = __float_as_uint(v), a = u & 0x7fffffff;
    const float scaled = __uint_as_float(a) * 65536.f;  // subnormals are multiples of 2^-16
    const unsigned magnitude = a >= 0x47600000 ? 0x7b
                               : a >= 0x38800000
                                   ? ((a + 0xfffff + (a >> 21 & 1)) >> 21) - (112 << 2)
                                   : __float_as_uint(scaled + 8388608.f) & 0x7;
    bits = a > 0x7f800000 ? 0x7f : (u >> 24 & 0x80) | magnitude;
#endif
  }
  __device__ explicit operator float() const {
    const unsigned sign = unsigned(bits & 0x80) << 24, magnitude = bits & 0x7f;
    const float v = magnitude >= 0x7c ? __uint_as_float(0x7f800000 | (magnitude & 3) << 21)
                                      : __uint_as_float(magnitude << 21) * 0x1p112f;
    return __uint_as_float(sign | __float_as_uint(v));
  }
};
